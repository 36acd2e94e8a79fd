"""Replay a project's stored demand and published floors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.errors import DataError, NotFoundError
from floorcast.event import Window
from floorcast.units import ceil_to_step, format_duration
from pipelines.project import Project
from pipelines.stages.common import planned_on, read_stored
from scaling.capacity import Floats, Ints
from scaling.effective import LOOK_BACK, cached_shares, effective_history
from scaling.replay.compare import Comparison, compare
from scaling.replay.conditions import Conditions, conditions_of
from scaling.replay.traffic import Traffic, from_demand, work
from store.cached_tokens import read_cached_tokens
from store.connection import open_store
from store.floors import floors_in_force

STEP_S = 10.0
PAST = timedelta(days=14)
"""How far before the interval demand is looked at for floors that are made from past days."""
OURS = "floorcast"
ENOUGH = timedelta(days=1)
"""Published floors of so long, or of half the interval, are worth replaying them alone."""


@dataclass(frozen=True)
class PoolReplay:
    """One pool's comparison from `start` to `end`. `notes` say what it rests on."""

    pool: str
    start: datetime
    end: datetime
    comparison: Comparison
    notes: tuple[str, ...]


def replay_pool(project: Project, name: str, *, now: datetime, days: float, seed: int) -> PoolReplay:
    """Every policy on a pool's stored demand in the `days` before `now`, up to the last step stored.

    Where floors published then are there for ENOUGH of it, from the first of them on, so that all policies see the
    same; else without them. The pool must be one of `named_pools`. Raises DataError where no demand is stored.
    """
    config = project.config
    classes = planned_on(config)[name]
    end = project.as_of(now)
    first = ceil_to_step(end - timedelta(days=days), config.step)
    demand = read_stored(project, [Window(first - PAST, end)], classes=classes)
    if demand.is_empty():
        raise DataError(
            f"no demand is stored from {first - PAST:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC",
            where=f"pool {name}",
            remedy="run `floorcast ingest`, or name a time with --now that has demand before it",
        )
    with open_store(project.store_path) as store:
        cached = read_cached_tokens(store, start=end - LOOK_BACK, end=end)
        floors = floors_in_force(store, start=first, end=end).filter(pool=name)
    demand = effective_history(demand, cached_shares(config, cached, demand, now=end))
    begin, last = demand.select(begin=pl.col("step_start").min(), last=pl.col("step_start").max()).row(0)
    if last < first:
        raise DataError(
            f"no demand is stored from {first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; the newest is of "
            f"{last:%Y-%m-%d %H:%M}",
            where=f"pool {name}",
            remedy="run `floorcast ingest`, or replay more --days, or up to an earlier --now",
        )
    start, end = max(first, begin), last + config.step
    pool, notes = config.pools[name], []
    floors = floors.filter(pl.col("window_start") < end)
    floors_from = floors["window_start"].min()
    if not isinstance(floors_from, datetime):
        notes.append(f"no floors are published for this time; {OURS} is left out")
    elif end - max(start, floors_from) < min(ENOUGH, (end - start) / 2):
        floors = floors.clear()
        notes.append(
            f"floors are published from {floors_from:%Y-%m-%d %H:%M} UTC on only, for "
            f"{format_duration(end - floors_from)} of this time; {OURS} is left out"
        )
    elif floors_from > start:
        start = floors_from
        notes.append(f"replayed from {start:%Y-%m-%d %H:%M} UTC, where published floors begin")
    traffic = traffic_of(project, name, demand, start=start, end=end, seed=seed, step_s=STEP_S)
    past = traffic_of(project, name, demand, start=begin, end=end, seed=seed, step_s=STEP_S)
    required = required_by_step(past, project, name)
    published: dict[str, Ints] = {}
    if not floors.is_empty():
        grid = pl.datetime_range(start, end, config.step, closed="left", time_zone="UTC", time_unit="us", eager=True)
        joined = grid.alias("window_start").to_frame().join(floors, on="window_start", how="left")
        missing = joined["min_replicas"].null_count()
        published = {OURS: joined["min_replicas"].fill_null(pool.bounds.min).to_numpy()}
        if missing:
            notes.append(f"{missing:,} of {joined.height:,} steps had no valid floor; bounds.min stands for it")
    conditions = conditions_of(pool)
    if len({one.max_wait_s for one in traffic.streams}) > 1:
        said = "; ".join(f"{one.name} within {format_duration(one.max_wait_s)}" for one in traffic.streams)
        notes.append(f"on time: {said}. Waits are of all together")
    notes += _assumed(conditions)
    found = compare(
        traffic,
        pool=pool,
        conditions=conditions,
        required=required,
        window_s=config.step_s,
        floors=published,
        seed=seed,
    )
    return PoolReplay(name, start, end, found, tuple(notes))


def named_pools(project: Project, named: Sequence[str] | None) -> list[str]:
    """The pools named, all that classes are planned on where none is. Raises NotFoundError for another."""
    served = planned_on(project.config)
    if unknown := [one for one in named or () if one not in served]:
        raise NotFoundError(
            f"no pool {unknown[0]} that classes are planned on",
            where=str(project.file),
            remedy=f"name one of {', '.join(served)}",
        )
    return list(named or served)


def traffic_of(
    project: Project, name: str, demand: pl.DataFrame, *, start: datetime, end: datetime, seed: int, step_s: float
) -> Traffic:
    """A stream for each priority and longest wait among the pool's classes: the highest priority first, and of the same
    priority who may wait least."""
    config = project.config
    alike: dict[tuple[int, timedelta], list[str]] = {}
    for one in planned_on(config)[name]:
        slo = config.classes[one].slo or config.pools[name].slo
        alike.setdefault((config.classes[one].priority, slo.max_wait), []).append(one)
    streams = tuple(
        from_demand(
            demand,
            classes=classes,
            start=start,
            end=end,
            step=config.step,
            seed=seed,
            name=", ".join(sorted(classes)),
            step_s=step_s,
            max_wait_s=max_wait.total_seconds(),
        )
        for (_, max_wait), classes in sorted(alike.items(), key=lambda item: (-item[0][0], item[0][1]))
    )
    return Traffic(start, step_s, streams)


def required_by_step(traffic: Traffic, project: Project, name: str) -> Floats:
    """[windows] replicas that each step of the configuration's grid took at the target utilization."""
    pool = project.config.pools[name]
    load = np.sum([work(stream, pool, traffic.step_s) for stream in traffic.streams], axis=0)
    means: Floats = load.reshape(-1, round(project.config.step_s / traffic.step_s)).mean(axis=1)
    return means / traffic.step_s / pool.capacity.target_utilization


def _assumed(conditions: Conditions) -> list[str]:
    low, high = conditions.metric_age_s
    return [
        f"assumed: every startup takes {format_duration(float(conditions.startup_s.max()))}, metrics are {low:g} to "
        f"{high:g} s old, the policy decides every {conditions.tick_s:g} s, and a replica under pressure gives "
        f"{conditions.knee.most:g} times its capacity with {conditions.knee.ttft_s[-1]:g} s to the first token"
    ]
