"""What a Prometheus source holds of each class, for `floorcast check`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl

from floorcast.config import WorkloadClass
from floorcast.source import PrometheusSource
from floorcast.types import Frozen
from floorcast.units import EPOCH, floor_to_step, format_duration
from pipelines.sources.prometheus.client import PrometheusClient, Series
from pipelines.sources.prometheus.importer import Question, questions
from pipelines.sources.prometheus.presets import COUNTERS, selector
from pipelines.sources.prometheus.series import to_samples

_CELL = timedelta(minutes=5)
_SPAN = timedelta(days=30)
"""At one point in `_CELL`, under the 11,000 points that Prometheus answers at most."""

WANTED = timedelta(days=14)
"""Two weekly seasons: what a forecast needs to know the week."""


class Gap(Frozen):
    """Time without a sample, to 5 minutes."""

    start: datetime
    end: datetime


class Examined(Frozen):
    """One class and metric. `first` and `last` are to 5 minutes; `missing` says what a forecast still lacks."""

    workload_class: str
    metric: str
    names: tuple[str, ...]
    """The metric names that have series; empty for the user's own queries."""
    series: int
    """The most series that had samples at once."""
    first: datetime | None
    last: datetime | None
    resolution: timedelta | None
    """The median time between samples in the newest hour."""
    gaps: tuple[Gap, ...]
    missing: tuple[str, ...]


def examine(source: PrometheusSource, classes: Mapping[str, WorkloadClass], now: datetime) -> list[Examined]:
    """Ask the server what there is of each class within `source.history` before `now` (30 days at the most).

    Raises ConfigError and DataError as `import_prometheus` does.
    """
    with PrometheusClient(source) as client, ThreadPoolExecutor(source.concurrency) as pool:
        return list(pool.map(lambda question: _examine(source, client, question, now), questions(source, classes)))


def _examine(source: PrometheusSource, client: PrometheusClient, question: Question, now: datetime) -> Examined:
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
    first = cells[0] - _CELL if cells else None
    last = min(cells[-1], now) if cells else None
    gaps = tuple(Gap(start=before, end=after - _CELL) for before, after in pairwise(cells) if after - before > _CELL)
    largest = points["value"].max() if question.names else points.height and 1
    return Examined(
        workload_class=question.workload_class,
        metric=question.metric,
        names=names,
        series=int(largest) if isinstance(largest, int | float) else 0,
        first=first,
        last=last,
        resolution=_resolution(client, question, last) if last and names else None,
        gaps=gaps,
        missing=tuple(_missing(question, first, last, now)),
    )


def _points(series: list[Series]) -> pl.DataFrame:
    """Number of the cell that a point ends, and its value."""
    rows = [pair for one in series for pair in one.values]
    return (
        pl.DataFrame(rows, schema={"t": pl.Float64, "value": pl.Float64}, orient="row")
        .filter(pl.col("value").is_finite())
        .with_columns((pl.col("t") / _CELL.total_seconds()).round().cast(pl.Int64))
    )


def _resolution(client: PrometheusClient, question: Question, last: datetime) -> timedelta | None:
    found = client.samples(question.promql, end=last, span=timedelta(hours=1))
    samples = to_samples([(question.workload_class, question.metric, found)]).sort("series", "t")
    apart = samples.select(pl.col("t").diff().over("series").median()).item()
    return None if apart is None else timedelta(milliseconds=apart)


def _missing(question: Question, first: datetime | None, last: datetime | None, now: datetime) -> list[str]:
    if first is None or last is None:
        if question.metric not in COUNTERS[:2]:
            return []
        asked = " or ".join(question.names) or "the query"
        return [f"no series of {asked} with {question.labels}: compare `match` with the labels at the server"]
    found = []
    if now - last > 3 * _CELL:
        found.append(f"nothing new for {format_duration(now - last)}: is it still scraped?")
    if last - first < WANTED:
        found.append(f"{format_duration(last - first)} of history; the week shows after {format_duration(WANTED)}")
    return found
