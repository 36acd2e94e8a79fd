"""A Prometheus source into demand steps, one chunk of time after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import empty
from floorcast.errors import ConfigError, DataError
from floorcast.source import PrometheusSource
from floorcast.units import EPOCH, floor_to_step
from floorcast.workload import WorkloadClass
from pipelines.sources.chunk import CLOCK_TOLERANCE, Chunk
from pipelines.sources.prometheus.client import PrometheusClient, Series
from pipelines.sources.prometheus.counters import (
    GAP_INTERVALS,
    MINUTES,
    intervals,
    per_minute,
    seen_until,
    to_cached,
    to_demand,
)
from pipelines.sources.prometheus.presets import CACHED, COUNTERS, PRESETS, matchers, selector
from pipelines.sources.prometheus.series import to_samples

_MINUTE = timedelta(minutes=1)
_AROUND = timedelta(minutes=5)
_AHEAD = timedelta(minutes=15)
"""How far beyond the present samples are looked for. A server takes none that are more than 10 minutes ahead of it."""
_MAX_POINTS = 10_000
"""Prometheus answers at most 11,000 points a series."""


@dataclass(frozen=True)
class Question:
    """What is asked for one class and metric: a selector of the counter's names, or PromQL of the user's own."""

    workload_class: str
    metric: str
    labels: str
    names: tuple[str, ...]
    promql: str


def import_prometheus(
    source: PrometheusSource,
    *,
    classes: Mapping[str, WorkloadClass],
    step: timedelta,
    start: datetime,
    end: datetime,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Chunk]:
    """Read the classes that have a `match`, from `start` (rounded down to a step) to the last complete step.

    `end` is taken for the present; later samples are counted and not used. A step is complete when a sample at or
    after its end was read of each counter that is still scraped, or of a query of the user's own, or when more than
    `allowed_lateness` has passed since. Chunks come in time order,
    contiguous, each at most `source.chunk` long and ending on a multiple of it since 1970, so that a resumed import
    cuts time as an undisturbed one does; `progress` is told how many of how many are done. A class without series in a
    step has no row there.

    Raises ConfigError where labels or queries cannot be used, and DataError where the server does not answer with
    all there is; the chunks before it stand, and the time from there on remains to be read.
    """
    asked = questions(source, classes)
    chunk = max(source.chunk // step, 1) * step
    if source.queries is not None:
        chunk = min(chunk, _MAX_POINTS * _MINUTE // step * step)
    read = _read_counters if source.queries is None else _read_queries
    low, stop = floor_to_step(start, step), floor_to_step(end, step)
    settled = floor_to_step(end - source.allowed_lateness, step)
    total = -((floor_to_step(low, chunk) - stop) // chunk)
    with PrometheusClient(source) as client, ThreadPoolExecutor(source.concurrency) as pool:
        done = 0
        while low < stop:
            high = min(floor_to_step(low, chunk) + chunk, stop)
            found = read(_Reader(source, client, pool), asked, low, high, end)
            proven = low if found.last is None else floor_to_step(found.last, step)
            complete = min(high, max(proven, settled))
            if complete > low:
                demand = to_demand(found.minutes, step=step, source=source.name)
                demand = demand.filter(pl.col("step_start") < complete)
                yield Chunk(
                    start=low,
                    end=complete,
                    demand=demand,
                    cached=to_cached(found.minutes, demand, step=step),
                    samples=found.samples,
                    server_s=found.server_s,
                    ahead=found.ahead,
                    newest_ahead=found.newest_ahead,
                )
            done += 1
            if progress is not None:
                progress(done, total)
            if complete < high:
                return
            low = high


@dataclass(frozen=True)
class _Read:
    minutes: pl.DataFrame
    samples: int
    server_s: float
    last: datetime | None
    """Up to when nothing more is to come, but for late data."""
    ahead: int = 0
    newest_ahead: datetime | None = None


def questions(source: PrometheusSource, classes: Mapping[str, WorkloadClass]) -> list[Question]:
    """What to ask the server for. Raises ConfigError where labels or queries cannot be used."""
    asked = []
    for name, spec in classes.items():
        if not spec.match or (source.classes and name not in source.classes):
            continue
        labels = ",".join(
            filter(
                None,
                [
                    matchers(source.match.items(), where=f"source {source.name}: match"),
                    matchers(spec.match.items(), where=f"classes.{name}.match"),
                ],
            )
        )
        if source.queries is None:
            counters = PRESETS[source.preset].counters
            asked += [
                Question(name, metric, labels, names, selector(names, labels))
                for metric, names in [*counters.items(), (CACHED, PRESETS[source.preset].cached)]
                if names
            ]
            continue
        for metric in (*COUNTERS, CACHED):
            promql = getattr(source.queries, metric)
            if promql is not None:
                asked.append(Question(name, metric, labels, (), promql.replace("$selector", labels)))
    first: dict[tuple[str, str], str] = {}
    for one in asked:
        other = first.setdefault((one.metric, one.promql), one.workload_class)
        if other != one.workload_class:
            raise ConfigError(
                f"classes {other} and {one.workload_class} ask for the same series and would count them twice",
                where=f"source {source.name}",
                remedy="give each class a `match` of its own; in `queries`, write $selector between the braces, as in "
                "rate(prompt_tokens_total{$selector}[1m])",
            )
    return asked


@dataclass(frozen=True)
class _Reader:
    """Asks all of a chunk's questions, `source.concurrency` at once."""

    source: PrometheusSource
    client: PrometheusClient
    pool: ThreadPoolExecutor

    def ask(
        self, asked: list[Question], one: Callable[[Question], list[Series]]
    ) -> tuple[list[tuple[Question, list[Series]]], float]:
        """The answers in order of the questions, and the seconds they took. The first failure ends the rest."""
        began = time.monotonic()
        futures = [self.pool.submit(one, question) for question in asked]
        try:
            answers = [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
        return list(zip(asked, answers, strict=True)), time.monotonic() - began


def _read_counters(reader: _Reader, asked: list[Question], low: datetime, high: datetime, now: datetime) -> _Read:
    interval = reader.source.scrape_interval
    # Enough to know what was there before and what goes on after.
    around = max(_AROUND, 2 * GAP_INTERVALS * interval)
    everything, server_s = _samples(reader, asked, low, high, now, around)
    needed = GAP_INTERVALS * _slowest(everything, interval)
    if needed > around:
        everything, more_s = _samples(reader, asked, low, high, now, needed)
        server_s += more_s
    samples = everything.filter(pl.col("t") <= _milliseconds(now))
    ahead = everything.filter(pl.col("t") > _milliseconds(now + CLOCK_TOLERANCE))
    return _Read(
        minutes=per_minute(samples, start=low, end=high, scrape_interval=interval),
        samples=samples.height,
        server_s=server_s,
        last=_moment(seen_until(samples, scrape_interval=interval)),
        ahead=ahead.height,
        newest_ahead=_moment(ahead["t"].max()),
    )


def _samples(
    reader: _Reader, asked: list[Question], low: datetime, high: datetime, now: datetime, around: timedelta
) -> tuple[pl.DataFrame, float]:
    """SAMPLES from `around` before `low` to as long after `high`, and the seconds they took."""
    until = high + around if high + around <= now else now + _AHEAD
    answers, server_s = reader.ask(
        asked, lambda one: reader.client.samples(one.promql, end=until, span=until - low + around)
    )
    _refuse_shared(reader.source, answers)
    found = ((one.workload_class, one.metric, series) for one, series in answers)
    return to_samples(found, copies=reader.source.copies, distinct=reader.source.distinct), server_s


def _refuse_shared(source: PrometheusSource, answers: list[tuple[Question, list[Series]]]) -> None:
    """Raise ConfigError where two classes were answered with the same series: both would count it."""
    owners: dict[frozenset[tuple[str, str]], str] = {}
    for question, found in answers:
        for one in found:
            other = owners.setdefault(frozenset(one.metric.items()), question.workload_class)
            if other != question.workload_class:
                labels = ", ".join(f'{name}="{value}"' for name, value in sorted(one.metric.items()))
                raise ConfigError(
                    f"classes {other} and {question.workload_class} both match the series {{{labels}}} "
                    "and would count it twice",
                    where=f"source {source.name}",
                    remedy="tell the classes apart with further labels in their `match`",
                )


def _slowest(samples: pl.DataFrame, scrape_interval: timedelta) -> timedelta:
    slowest = intervals(samples, scrape_interval=scrape_interval)["interval"].max()
    return timedelta(milliseconds=slowest) if isinstance(slowest, int) else scrape_interval


def _milliseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _moment(milliseconds: object) -> datetime | None:
    return EPOCH + timedelta(milliseconds=milliseconds) if isinstance(milliseconds, int) else None


def _read_queries(reader: _Reader, asked: list[Question], low: datetime, high: datetime, now: datetime) -> _Read:
    """A point tells of the minute before it. A step is shown to be complete by a point a minute after its end."""
    until = max(high, min(high + _AROUND, floor_to_step(now, _MINUTE)))
    answers, server_s = reader.ask(
        asked, lambda one: reader.client.query_range(one.promql, start=low + _MINUTE, end=until, step=_MINUTE)
    )
    rates = pl.concat([empty(MINUTES), *(_minutes(reader.source, one, series) for one, series in answers)])
    newest = rates["minute"].max()
    return _Read(
        minutes=rates.filter(pl.col("minute") < round(high.timestamp()) // 60),
        samples=rates.height,
        server_s=server_s,
        last=EPOCH + newest * _MINUTE if isinstance(newest, int) else None,
    )


def _minutes(source: PrometheusSource, question: Question, series: list[Series]) -> pl.DataFrame:
    where = f"source {source.name}: queries.{question.metric}"
    if len(series) > 1:
        raise DataError(
            f"the query gives {len(series)} series for class {question.workload_class}, e.g. {series[0].metric}",
            where=where,
            remedy="wrap it in sum(...), so that it gives one",
        )
    points = pl.DataFrame(
        series[0].values if series else [], schema={"t": pl.Float64, "rate": pl.Float64}, orient="row"
    ).filter(pl.col("rate").is_finite())
    if points.filter(pl.col("rate") < 0).height:
        raise DataError(
            f"the query gives a negative rate for class {question.workload_class}",
            where=where,
            remedy="use rate() over a counter, which cannot fall",
        )
    return points.select(
        workload_class=pl.lit(question.workload_class),
        metric=pl.lit(question.metric),
        minute=(pl.col("t") / 60).round().cast(pl.Int64) - 1,
        count=pl.col("rate") * 60,
        observed=pl.lit(1.0),
    )
