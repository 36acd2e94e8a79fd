"""What replicas really did: into the store, and from there against the configured capacities."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import polars as pl

from floorcast.columns import FINDINGS, Metric, empty
from floorcast.config import Config
from floorcast.errors import DataError, FloorcastError, NotFoundError
from floorcast.pool import Pool
from floorcast.replica import CapacityMeasure
from floorcast.source import PrometheusSource
from floorcast.units import floor_to_step
from pipelines.project import Project
from pipelines.sources.prometheus.load import read_load
from pipelines.stages.common import CONTRADICTED, read_series
from scaling.calibration.contradiction import Contradiction, contradictions
from scaling.calibration.loaded import loaded_steps
from store.cached_tokens import read_cached_tokens
from store.connection import open_store
from store.findings import read_findings
from store.pool_load import read_pool_load, upsert_pool_load


def read_loads(project: Project, now: datetime) -> tuple[dict[str, int], dict[str, str]]:
    """Read the load of every pool that measures its capacity, from what is stored of it on. By pool how many steps were
    read; and why others could not be, of which what is stored stands."""
    config, as_of = project.config, project.as_of(now)
    sources = {one.name: one for one in config.sources if isinstance(one, PrometheusSource)}
    read: dict[str, int] = {}
    failed: dict[str, str] = {}
    for name, pool in config.pools.items():
        if (measure := pool.capacity.measure) is None:
            continue
        source, oldest = sources[measure.source], floor_to_step(as_of - measure.window, config.step)
        with open_store(project.store_path) as store:
            last = read_pool_load(store, name, start=oldest, end=as_of)["step_start"].max()
        # Late data re-open steps, as they do those of demand.
        late = source.allowed_lateness - config.step
        since = max(floor_to_step(last - late, config.step), oldest) if isinstance(last, datetime) else oldest
        labels = [config.classes[one].match for one in config.classes_of(name)]
        try:
            found = read_load(source, name, measure, labels, step=config.step, start=since, end=as_of)
        except FloorcastError as error:
            failed[name] = error.what
            continue
        with open_store(project.store_path) as store:
            upsert_pool_load(store, found)
        read[name] = found.height
    return read, failed


def known_load(
    project: Project, pool: str, measure: CapacityMeasure, as_of: datetime, demand: pl.DataFrame
) -> pl.DataFrame:
    """The `loaded_steps` of a pool in the measure's window before `as_of`; `demand` is DEMAND without masked steps."""
    start = as_of - measure.window
    with open_store(project.store_path) as store:
        load = read_pool_load(store, pool, start=start, end=as_of)
        cached = read_cached_tokens(store, start=start, end=as_of)
    return loaded_steps(project.config, pool, load, demand, cached)


def history_of(project: Project, pool: str, as_of: datetime) -> pl.DataFrame:
    """The `loaded_steps` of one pool. Raises NotFoundError where there is no such pool or no store, DataError where the
    pool measures nothing."""
    config = project.config
    if pool not in config.pools:
        raise NotFoundError(f"no pool {pool}", where=str(project.file), remedy=f"name one of {', '.join(config.pools)}")
    if (measure := config.pools[pool].capacity.measure) is None:
        raise DataError(
            "its replicas and their queue are not observed",
            where=f"pools.{pool}.capacity",
            remedy="add `measure: {source: NAME}` with a Prometheus source, and run `floorcast ingest`",
        )
    if not project.store_path.exists():
        raise NotFoundError("no database yet", where=str(project.store_path), remedy="run `floorcast ingest`")
    _, demand = read_series(project, as_of=as_of)
    return known_load(project, pool, measure, as_of, demand)


def capacity_contradicted(project: Project, as_of: datetime) -> pl.DataFrame:
    """FINDINGS of pools whose capacity is contradicted by what their replicas did."""
    config = project.config
    measured = {name: pool.capacity.measure for name, pool in config.pools.items() if pool.capacity.measure}
    if not measured:
        return empty(FINDINGS)
    _, demand = read_series(project, as_of=as_of)
    rows = [
        {
            "kind": CONTRADICTED,
            "workload_class": "",
            "metric": one.binding if one.binding in set(Metric) else "",
            "start": one.start,
            "end": one.end,
            "severity": "warning",
            "masked": False,
            "evidence": json.dumps(evidence(one, name, config)),
            "pool": name,
        }
        for name, measure in measured.items()
        for one in contradictions(
            known_load(project, name, measure, as_of, demand), config.pools[name], step=config.step
        )
    ]
    return pl.DataFrame(rows, schema=dict(FINDINGS))


def stored_contradictions(project: Project, now: datetime) -> dict[str, list[dict[str, Any]]]:
    """By pool the evidence of what the last ingest found against its capacity."""
    found: dict[str, list[dict[str, Any]]] = {}
    if project.store_path.exists():
        with open_store(project.store_path) as store:
            rows = read_findings(store, at=now).filter(kind=CONTRADICTED)
        for name, text in rows.select("pool", "evidence").iter_rows():
            found.setdefault(name, []).append(json.loads(text))
    return found


def contradicted(config: Config, name: str, steps: pl.DataFrame) -> list[dict[str, float | int | str]]:
    """The `evidence` of what the `loaded_steps` of a pool say against its capacity."""
    return [evidence(one, name, config) for one in contradictions(steps, config.pools[name], step=config.step)]


def evidence(found: Contradiction, name: str, config: Config) -> dict[str, float | int | str]:
    """Figures, what they say and what to do about it."""
    pool, low = config.pools[name], found.capacity_is == "low"
    utilization = pool.capacity.target_utilization
    hours = found.steps * config.step_s / 3600
    served = " and ".join(_rates(found, pool))
    if low:
        says = (
            f"for {hours:.3g} h no request waited while a replica served more than its capacity: {served}, "
            f"{found.load:.2f} times it, for an hour. Floors are up to {1 - 1 / found.load:.0%} too dear"
        )
        remedy = f"unless latencies were missed then, raise the capacity: `floorcast calibrate --from-history {name}`"
    else:
        says = (
            f"for {hours:.3g} h requests waited, {found.waiting_per_replica:.3g} a replica, while each served "
            f"{served}, {found.load:.2f} of its capacity, where floors count on {utilization:.2f}. They are too low, "
            f"by {utilization / found.load - 1:.0%} or more"
        )
        remedy = (
            f"lower the capacity: `floorcast calibrate --from-history {name}`; if that shows no lower one, look for "
            "replicas that get more requests than others"
        )
    return {
        "capacity_is": f"too {found.capacity_is}",
        "load": round(found.load, 3),
        "tokens_in_per_s": round(found.tokens_in_per_s, 1),
        "tokens_out_per_s": round(found.tokens_out_per_s, 1),
        "waiting_per_replica": round(found.waiting_per_replica, 2),
        "hours": round(hours, 2),
        "says": says,
        "remedy": remedy,
    }


def _rates(found: Contradiction, pool: Pool) -> list[str]:
    """As `3,432 of 2,600 tokens out per s`, of what decides."""
    of = {
        "tokens_in": (found.tokens_in_per_s, pool.capacity.prefill_tokens_per_s, "in"),
        "tokens_out": (found.tokens_out_per_s, pool.capacity.decode_tokens_per_s, "out"),
    }
    deciding = of.values() if found.binding == "sum" else [of[found.binding]]
    return [f"{rate:,.0f} of {capacity:,.0f} tokens {way} per s" for rate, capacity, way in deciding]
