"""Starts of pods, from what kube-state-metrics says of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import polars as pl

from floorcast.columns import STARTUPS, conform
from floorcast.pool import Target
from floorcast.replica import StartupMeasure
from floorcast.source import PrometheusSource
from floorcast.units import EPOCH
from pipelines.sources.prometheus.client import PrometheusClient
from pipelines.sources.prometheus.presets import matchers

POD_NAMES = {
    "Deployment": "{}-[a-z0-9]+-[a-z0-9]{{5}}",
    "StatefulSet": "{}-[0-9]+",
    "LeaderWorkerSet": "{}-[0-9]+",
}
"""The pods that each kind makes; of a LeaderWorkerSet the leaders."""

_BY = ("namespace", "pod", "uid")
_MINUTE = timedelta(minutes=1)
_PIECE = timedelta(days=1)
"""So much time is asked for at once: servers limit the points of a subquery."""


def read_starts(
    source: PrometheusSource, pool: str, target: Target, measure: StartupMeasure, *, since: datetime, now: datetime
) -> pl.DataFrame:
    """STARTUPS of the pods that were there between `since` and `now`.

    When a pod was first ready is what `kube_pod_status_ready_time` was at the least, else the first time, to a scrape
    interval, that `kube_pod_status_ready` said so. Of a pod from before `since` that may be a later time.

    Raises ConfigError and DataError as `import_prometheus` does.
    """
    pods = measure.pods or POD_NAMES[target.kind].format((target.name or pool).replace(".", "[.]"))
    own = matchers(
        [("namespace", target.namespace), *measure.match.items()], where=f"pools.{pool}.startup.measure.match"
    )
    escaped = pods.replace("\\", "\\\\").replace('"', '\\"')
    labels = f'{own},pod=~"{escaped}"'
    fine = f":{max(round(source.scrape_interval.total_seconds()), 1)}s"
    pieces = max(-((since - now) // _PIECE), 1)
    ends = [now - place * _PIECE for place in range(pieces)]

    with PrometheusClient(source) as client:

        def ask(aggregate: Literal["min", "max"], promql: str) -> dict[tuple[str, ...], float]:
            """The least or greatest value by pod over the time; the query says `[RANGE]` or `[FINE]` for a piece."""
            values: dict[tuple[str, ...], list[float]] = {}
            for end in ends:
                span = round((end - max(end - _PIECE, since)).total_seconds())
                over = promql.replace("[FINE]", f"[{span}s{fine}]").replace("[RANGE]", f"[{span}s]")
                query = f"{aggregate} by ({', '.join(_BY)}) ({over})"
                for one in client.query_range(query, start=end, end=end, step=_MINUTE):
                    who = tuple(one.metric.get(name, "") for name in _BY)
                    values.setdefault(who, []).extend(value for _, value in one.values)
            return {who: min(found) if aggregate == "min" else max(found) for who, found in values.items()}

        created = ask("max", f"last_over_time(kube_pod_created{{{labels}}}[RANGE])")
        if not created:
            return pl.DataFrame(schema=dict(STARTUPS))
        seen = ask("max", f"max_over_time(timestamp(kube_pod_created{{{labels}}})[FINE])")
        ready = ask("min", f"min_over_time(kube_pod_status_ready_time{{{labels}}}[RANGE])")
        if created.keys() - ready.keys():
            told = f'kube_pod_status_ready{{{labels},condition="true"}} == 1'
            ready = ask("min", f"min_over_time(timestamp({told})[FINE])") | ready
        restarts = ask("max", f"max_over_time(kube_pod_container_status_restarts_total{{{labels}}}[RANGE])")
    rows = [
        {
            "pool": pool,
            "pod": f"{who[0]}/{who[1]}",
            "created_at": _time(at),
            "ready_at": _time(max(ready[who], at)) if who in ready else None,
            "seen_at": _time(seen.get(who, at)),
            "restarts": round(restarts.get(who, 0)),
        }
        for who, at in created.items()
    ]
    return conform(pl.DataFrame(rows, schema=dict(STARTUPS)), STARTUPS).sort("pod", "created_at")


def _time(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
