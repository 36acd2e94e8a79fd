"""A pool's ready replicas and waiting requests, by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import POOL_LOAD, conform
from floorcast.errors import DataError
from floorcast.replica import CapacityMeasure
from floorcast.source import PrometheusSource
from floorcast.units import EPOCH
from pipelines.sources.prometheus.client import PrometheusClient, Series
from pipelines.sources.prometheus.presets import PRESETS, matchers, selector
from pipelines.sources.prometheus.series import copy_labels

_PIECE = timedelta(days=1)
"""So much time is asked for at once: servers limit the samples that a query may touch."""


def read_load(
    source: PrometheusSource,
    pool: str,
    measure: CapacityMeasure,
    classes: Sequence[dict[str, str]],
    *,
    step: timedelta,
    start: datetime,
    end: datetime,
) -> pl.DataFrame:
    """POOL_LOAD of the steps from `start` to `end`, which are on the grid. `classes` are the labels of those that the
    pool serves.

    Within a step both are looked at once a scrape interval. Raises ConfigError and DataError as `import_prometheus`
    does, and DataError where a query gives several series, or less than 0.
    """
    ready = measure.ready_replicas or _replicas(source, pool, measure, classes)
    waiting = measure.waiting_requests or _waiting(source, pool, measure, classes)
    # Without its beginning, which belongs to the step before, and which Prometheus 2 looks at too.
    fine = f"[{round(step.total_seconds()) - 1}s:{max(round(source.scrape_interval.total_seconds()), 1)}s]"
    asked = {
        "ready_min": f"min_over_time(({ready}){fine})",
        "ready_max": f"max_over_time(({ready}){fine})",
        "waiting_requests": f"avg_over_time(({waiting}){fine})",
    }
    found: dict[str, dict[datetime, float]] = {column: {} for column in asked}
    with PrometheusClient(source) as client:
        low = start
        while low < end:
            high = min(low + _PIECE, end)
            for column, promql in asked.items():
                # The value at a step's end speaks of the step.
                series = client.query_range(promql, start=low + step, end=high, step=step)
                found[column] |= _points(series, where=f"pools.{pool}.capacity.measure: {column}", step=step)
            low = high
    first, *others = found.values()
    rows = [
        {"pool": pool, "step_start": at} | {column: values[at] for column, values in found.items()}
        for at in sorted(first.keys() & others[0].keys() & others[1].keys())
    ]
    schema = dict(POOL_LOAD) | {"ready_min": pl.Float64(), "ready_max": pl.Float64()}
    return conform(pl.DataFrame(rows, schema=schema), POOL_LOAD)


def _gauges(
    source: PrometheusSource, pool: str, measure: CapacityMeasure, classes: Sequence[dict[str, str]], more: str = ""
) -> str:
    """PromQL of the series of the preset's gauge of waiting requests; `more` is a further matcher."""
    signal, where = PRESETS[source.preset].signals["waiting_requests"], f"pools.{pool}.capacity.measure.match"
    of_source = matchers([*source.match.items(), *signal.labels.items()], where=where)
    own = dict.fromkeys(
        matchers(labels.items(), where=where) for labels in ([measure.match] if measure.match else classes)
    )
    return " or ".join(selector(signal.names, ",".join(filter(None, [of_source, one, more]))) for one in own)


def _waiting(source: PrometheusSource, pool: str, measure: CapacityMeasure, classes: Sequence[dict[str, str]]) -> str:
    return f"sum(max without ({', '.join(copy_labels(source))}) ({_gauges(source, pool, measure, classes)}))"


def _replicas(source: PrometheusSource, pool: str, measure: CapacityMeasure, classes: Sequence[dict[str, str]]) -> str:
    """Pods that tell how many requests wait; where there is no such label, instances. A replica that loads its model
    tells nothing yet."""
    pods = _gauges(source, pool, measure, classes, 'pod!=""')
    others = _gauges(source, pool, measure, classes, 'pod=""')
    return f"count(count by (namespace, pod) ({pods}) or count by (instance) ({others}))"


def _points(series: Sequence[Series], *, where: str, step: timedelta) -> dict[datetime, float]:
    """By the beginning of the step that ends at a point, its value."""
    if len(series) > 1:
        raise DataError(
            f"the query gives {len(series)} series, e.g. {series[0].metric}",
            where=where,
            remedy="wrap it in sum(...), so that it gives one",
        )
    values = {EPOCH + timedelta(seconds=t) - step: value for one in series for t, value in one.values}
    if any(value < 0 for value in values.values()):
        raise DataError("the query gives less than 0", where=where, remedy="ask for a count or a gauge")
    return {at: value for at, value in values.items() if math.isfinite(value)}
