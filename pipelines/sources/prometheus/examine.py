"""What a Prometheus source holds of each class, for `floorcast check`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import groupby, pairwise

import polars as pl

from floorcast.source import PrometheusSource
from floorcast.types import Frozen
from floorcast.units import EPOCH, floor_to_step, format_duration
from floorcast.workload import WorkloadClass
from pipelines.sources.prometheus.client import PrometheusClient, Series
from pipelines.sources.prometheus.importer import Question, questions
from pipelines.sources.prometheus.presets import COUNTERS, PRESETS, Signal, matchers, selector
from pipelines.sources.prometheus.series import copy_labels, doubts, merged_by, to_samples

_CELL = timedelta(minutes=5)
_SPAN = timedelta(days=30)
"""At one point in `_CELL`, under the 11,000 points that Prometheus answers at most."""

WANTED = timedelta(days=21)
"""Three weekly seasons: what a forecast needs to know the week."""


class Gap(Frozen):
    """Time without a sample, to 5 minutes."""

    start: datetime
    end: datetime


class CounterFound(Frozen):
    """One metric of a class. `first` and `last` are to 5 minutes."""

    metric: str
    names: tuple[str, ...]
    """The metric names that have series; empty for the user's own queries."""
    series: int
    """The most series that had samples at once."""
    first: datetime | None
    last: datetime | None
    resolution: timedelta | None
    """The median time between samples in the newest hour."""
    merged_by: tuple[str, ...]
    """Labels in which series of that hour differ that are taken for copies of one counter."""
    doubts: tuple[str, ...]
    """What in the newest hour speaks against the way that copies are told from other replicas."""
    gaps: tuple[Gap, ...]


class SignalFound(Frozen):
    """A live signal of a class, now. No names where the server has no such series in the last five minutes."""

    signal: str
    names: tuple[str, ...]
    series: int
    value: float | None
    """Summed over the replicas; a share is the highest of them, a time in seconds the 95th percentile of all in the
    last five minutes. None where that is not a number, as without traffic."""


class Examined(Frozen):
    """One class: `labels` are the matchers it was asked for with; `missing` says what a forecast still lacks,
    or cannot trust."""

    workload_class: str
    labels: str
    counters: tuple[CounterFound, ...]
    signals: tuple[SignalFound, ...]
    missing: tuple[str, ...]


def examine(source: PrometheusSource, classes: Mapping[str, WorkloadClass], now: datetime) -> list[Examined]:
    """Ask the server what there is of each class within `source.history` before `now` (30 days at the most).

    Raises ConfigError and DataError as `import_prometheus` does.
    """
    asked = {name: list(ours) for name, ours in groupby(questions(source, classes), lambda one: one.workload_class)}
    signals = PRESETS[source.preset].signals
    with PrometheusClient(source) as client, ThreadPoolExecutor(source.concurrency) as pool:
        counters = {
            name: [pool.submit(_counter, source, client, question, now) for question in ours]
            for name, ours in asked.items()
        }
        live = {
            name: [
                pool.submit(_signal, source, client, key, signal, ours[0].labels, now)
                for key, signal in signals.items()
            ]
            for name, ours in asked.items()
        }
        return [
            _class(ours, [one.result() for one in counters[name]], [one.result() for one in live[name]], now)
            for name, ours in asked.items()
        ]


def _class(asked: list[Question], counters: list[CounterFound], signals: list[SignalFound], now: datetime) -> Examined:
    # Counters that lack the same are named together.
    lacking: dict[str, list[str]] = {}
    for question, counter in zip(asked, counters, strict=True):
        for text in [*_missing(question, counter, now), *counter.doubts]:
            lacking.setdefault(text, []).append(counter.metric)
    return Examined(
        workload_class=asked[0].workload_class,
        labels=asked[0].labels,
        counters=tuple(counters),
        signals=tuple(signals),
        missing=tuple(f"{', '.join(metrics)}: {text}" for text, metrics in lacking.items()),
    )


def _counter(source: PrometheusSource, client: PrometheusClient, question: Question, now: datetime) -> CounterFound:
    end = floor_to_step(now, _CELL)
    span = min(source.history, _SPAN)

    # The part of the newest cell that has passed counts too: its point lies after `now`.
    def present(promql: str) -> pl.DataFrame:
        return _points(client.query_range(promql, start=end - span, end=end + _CELL, step=_CELL))

    if question.names:
        by_name = {
            name: present(f"count(count_over_time({selector((name,), question.labels)}[5m]))")
            for name in question.names
        }
        names = tuple(name for name, points in by_name.items() if points.height)
        points = pl.concat(list(by_name.values())).group_by("t").agg(pl.col("value").sum()).sort("t")
    else:
        names, points = (), present(question.promql)
    cells = [EPOCH + t * _CELL for t in points["t"]]
    last = min(cells[-1], now) if cells else None
    newest = client.samples(question.promql, end=last, span=timedelta(hours=1)) if last is not None and names else []
    largest = points["value"].max() if question.names else points.height and 1
    return CounterFound(
        metric=question.metric,
        names=names,
        series=int(largest) if isinstance(largest, int | float) else 0,
        first=cells[0] - _CELL if cells else None,
        last=last,
        resolution=_resolution(question, newest),
        merged_by=tuple(merged_by(newest, source)),
        # Requests dealt out in turn rise alike on all replicas; tokens do not.
        doubts=tuple(doubts(newest, source)) if question.metric in COUNTERS[:2] else (),
        gaps=tuple(Gap(start=before, end=after - _CELL) for before, after in pairwise(cells) if after - before > _CELL),
    )


def _points(series: list[Series]) -> pl.DataFrame:
    """Number of the cell that a point ends, and its value."""
    rows = [pair for one in series for pair in one.values]
    return (
        pl.DataFrame(rows, schema={"t": pl.Float64, "value": pl.Float64}, orient="row")
        .filter(pl.col("value").is_finite())
        .with_columns((pl.col("t") / _CELL.total_seconds()).round().cast(pl.Int64))
    )


def _resolution(question: Question, found: list[Series]) -> timedelta | None:
    samples = to_samples([(question.workload_class, question.metric, found)]).sort("series", "t")
    apart = samples.select(pl.col("t").diff().over("series").median()).item()
    return None if apart is None else timedelta(milliseconds=apart)


def _signal(
    source: PrometheusSource, client: PrometheusClient, key: str, signal: Signal, labels: str, now: datetime
) -> SignalFound:
    histogram = signal.kind == "histogram"
    own = matchers(signal.labels.items(), where=f"preset: {key}")
    labels = ",".join(filter(None, [labels, own]))

    def instant(promql: str) -> list[Series]:
        return client.query_range(promql, start=now, end=now, step=_CELL)

    def select(suffix: str) -> str:
        return selector([name + suffix for name in signal.names], labels)

    counts = instant(f"count by (__name__) ({select('_count' if histogram else '')})")
    by_name = {one.metric["__name__"].removesuffix("_count"): one.values[-1][1] for one in counts}
    names = tuple(name for name in signal.names if name in by_name)
    if not names:
        return SignalFound(signal=key, names=(), series=0, value=None)
    copies = ", ".join(copy_labels(source))
    value = instant(
        f"histogram_quantile(0.95, sum by (le) (rate({select('_bucket')}[5m])))"
        if histogram
        else f"{signal.over}(max without ({copies}) ({select('')}))"
    )
    number = value[0].values[-1][1] if value else float("nan")
    return SignalFound(
        signal=key, names=names, series=int(sum(by_name.values())), value=number if math.isfinite(number) else None
    )


def _missing(question: Question, found: CounterFound, now: datetime) -> list[str]:
    if question.metric not in COUNTERS[:2]:
        return []
    if found.first is None or found.last is None:
        first, *others = question.names or ("the query",)
        asked = f"{first} (nor of {len(others)} other names)" if others else first
        return [f"no series of {asked} with these labels: compare `match` with those at the server"]
    lacks, history = [], found.last - found.first
    if now - found.last > 3 * _CELL:
        lacks.append(f"nothing new for {format_duration(now - found.last)}: is it still scraped?")
    if history < WANTED:
        lacks.append(f"{format_duration(history)} of history; a weekly shape needs {format_duration(WANTED)}")
    return lacks
