"""When a class that was not there has come, which costs a server far less than all of the time since then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from floorcast.source import PrometheusSource
from floorcast.units import EPOCH
from floorcast.workload import WorkloadClass
from pipelines.sources.prometheus.client import PrometheusClient
from pipelines.sources.prometheus.importer import Question, questions
from pipelines.sources.prometheus.presets import COUNTERS

_CELL = timedelta(minutes=5)
_AT_ONCE = timedelta(days=7)


def first_samples(
    source: PrometheusSource,
    classes: Mapping[str, WorkloadClass],
    since: Mapping[str, datetime],
    *,
    end: datetime,
) -> dict[str, datetime | None]:
    """For each class in `since` the time, to 5 minutes, from when on it has both tokens in and tokens out again, after
    the time given there. None where it has not up to `end`.

    Raises ConfigError and DataError as `import_prometheus` does.
    """
    asked = [one for one in questions(source, classes) if one.workload_class in since and one.metric in COUNTERS[:2]]
    with PrometheusClient(source) as client, ThreadPoolExecutor(source.concurrency) as pool:
        answers = pool.map(lambda one: _first(client, one, since[one.workload_class], end), asked)
        found: dict[str, datetime | None] = {}
        for one, first in zip(asked, answers, strict=True):
            other = found.setdefault(one.workload_class, first)
            found[one.workload_class] = None if first is None or other is None else max(first, other)
    return found


def _first(client: PrometheusClient, question: Question, since: datetime, end: datetime) -> datetime | None:
    # Unlike count_over_time, last_over_time keeps the name that tells a counter from the one it was renamed from.
    promql = f"count(last_over_time({question.promql}[5m]))" if question.names else question.promql
    # A point tells of the five minutes before it; of the last ones only a part has passed.
    while since < end:
        until = since + _AT_ONCE
        series = client.query_range(promql, start=since + _CELL, end=min(until, end + _CELL), step=_CELL)
        times = [t for one in series for t, value in one.values if math.isfinite(value)]
        if times:
            return EPOCH + timedelta(seconds=min(times)) - _CELL
        since = until
    return None
