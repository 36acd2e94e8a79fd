"""From forecasts to floors: for every pool and step, the replicas that must be there, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from floorcast.columns import FLOORS, conform
from floorcast.config import Config
from floorcast.pool import Pool
from floorcast.types import FloorSchedule, Rung
from floorcast.units import floor_to_step, format_time
from scaling.admission import class_parts, class_rates
from scaling.calendar import limits
from scaling.capacity import Floats, Ints
from scaling.deadlines import schedule_deadlines
from scaling.demand import METRICS
from scaling.effective import effective, effective_history
from scaling.ladder import RUNGS, Figures, Grid, Waiting, gather
from scaling.moves import Move
from scaling.partners import served_by_partners
from scaling.placement import Placement, Relaxation, place
from scaling.pool_demand import PoolDemand, own_demand, with_taken_over
from scaling.pool_floors import PoolFloors, idle_windows, pool_floors
from scaling.quotas import Claim, ration
from scaling.reasons import reasons

_FRESH_INTERVALS = 3

_DECIMALS = 9


@dataclass(frozen=True)
class Plan:
    """`floors` is a FLOORS frame; `rungs` is what `worst_rungs` says of it; `relax` says which limits leave no room for
    classes of several pools."""

    floors: pl.DataFrame
    rungs: dict[str, Rung]
    relax: tuple[Relaxation, ...] = ()


def plan(
    config: Config,
    *,
    now: datetime,
    forecasts: pl.DataFrame,
    history: pl.DataFrame,
    published: FloorSchedule | None,
    shares: pl.DataFrame | None = None,
    in_force: pl.DataFrame | None = None,
    cached: Mapping[str, float] | None = None,
    closed: Collection[str] = (),
    stalled: Collection[str] = (),
    usual: pl.DataFrame | None = None,
    changes: pl.DataFrame | None = None,
) -> Plan:
    """Floors of every pool over the horizon, from the step that holds `now`.

    `forecasts` is a FORECASTS frame that reaches a lead time and the longest wait past the horizon, `history` a DEMAND
    frame free of outages, `published` the publication in force before this one (issued strictly before `now`), and
    `shares` a POOL_SHARES frame that belongs to the forecasts; without one the quantiles of a pool's classes are added
    up.
    `in_force` are the floors of the steps before `now` (pool, window_start, min_replicas), for what classes that may
    wait still have waiting; without one, all they brought within their wait.
    `stalled` are the classes of which nothing has come since that publication: whatever is made anew of the same data,
    no floor of their pools is below it. `cached` is the share of prompt tokens in the prefix cache by class, none
    unless given. The pools of `closed` publish their plain minimums. `usual` is the history without events,
    `history` itself unless given, and `changes` (KNOWN_CHANGES) is what is known of the coming time: past weeks are
    looked up in the one, and changed by the other.

    The floor of a window covers the most demanding of all steps that overlap the window or the lead time after
    it. Then, in order: the buffers of `scaling.buffers`, the rules of `scaling.moves`, quotas. The rung of a window is
    the worst among its classes and steps. A step inside the horizon at which some class has no figure asks for at least
    `fallback_replicas`; past the horizon it is left out. A forecast is fresh for three publication intervals, or three
    steps if those are longer.

    Raises LeakageError where a forecast has seen data from after `now`.
    """
    windows, start = config.horizon_steps, floor_to_step(now, config.step)
    widths = {name: config.lead_steps(name) for name in config.pools}
    grid = Grid(start, config.step, windows + max(widths.values()) - 1)
    fresh_for = _FRESH_INTERVALS * max(config.publication_interval, config.step)
    # What arrives by the end of the grid may wait; done by its end, all that waits would be due at once.
    further = replace(grid, count=grid.count + config.longest_wait_steps)
    past = history if usual is None else usual
    figures = gather(config, further, now=now, forecasts=forecasts, history=past, fresh_for=fresh_for, changes=changes)
    figures = effective(figures, cached or {})
    history = effective_history(history, cached or {})
    figures = schedule_deadlines(config, figures, further, history=history, in_force=in_force).first(grid.count)
    starts = pl.datetime_range(start, start + config.horizon, config.step, closed="left", time_zone="UTC", eager=True)
    times = [format_time(start + step * config.step) for step in range(further.count + 1)]
    kept = {} if shares is None else _kept(config, shares, forecasts)
    before = {name: _published(published, name, grid, windows) for name in config.pools}
    of_pool = {
        name: np.array([kept.get((name, metric.value), (1.0, 1.0)) for metric in METRICS]).T for name in config.pools
    }
    peaks = {name: peak for name, (_, peak) in of_pool.items()}
    placement = place(config, figures, grid, peaks=peaks, before=before, published=published)
    own, waiting = _own_demands(config, figures, placement, of_pool)
    demands = {name: with_taken_over(pool, own[name], own) for name, pool in config.pools.items()}
    made = {}
    for name, pool in sorted(config.pools.items()):
        beside = [(config.pools[other], demands[other]) for other in config.together.get(name, ()) if other != name]
        made[name] = pool_floors(
            pool,
            demands[name],
            grid,
            windows=windows,
            width=widths[name],
            before=before[name],
            idle=idle_windows(pool, demands[name], beside, config.step, windows=windows, width=widths[name]),
            limits=limits(pool.calendar, grid, windows=windows, width=widths[name], zone=config.zone)
            if pool.calendar
            else None,
            closed=name in closed,
            late=any(one in stalled for one in config.classes_of(name)),
        )
    useful = served_by_partners(config, made)
    claims = {name: _claim(one, config.pools[name], before[name], useful[name]) for name, one in made.items()}
    granted, uses = ration(config, claims)
    made = {name: _cut(one, granted[name]) if name in granted else one for name, one in made.items()}
    frames = []
    for name, one in made.items():
        texts = reasons(
            one,
            config.pools[name],
            times=times,
            lead=_lead(config, name),
            labels=figures.labels,
            waiting=waiting[name],
            cached=figures.cached,
            uses=[use for use in uses if use.quota.covers(config.pools[name])],
            specs=[config.classes[member] for member in one.classes],
            placed=placement.shares.get(name),
        )
        frames.append(_frame(name, one, texts, starts=starts, step=config.step))
    floors = conform(pl.concat(frames), FLOORS)
    return Plan(floors, worst_rungs(config, floors, now=now), placement.relax)


def _own_demands(
    config: Config, figures: Figures, placement: Placement, of_pool: Mapping[str, Floats]
) -> tuple[dict[str, PoolDemand], dict[str, dict[str, Waiting]]]:
    """By pool what its classes, or the parts of them that are placed on it, ask for, and what of them waits. `of_pool`
    are the share and the peak factor, [2, metrics]."""
    position = {workload_class: place for place, workload_class in enumerate(figures.classes)}
    own, waiting = {}, {}
    for name, pool in config.pools.items():
        classes, width, (share, peak) = config.classes_of(name), config.lead_steps(name), of_pool[name]
        part, places = figures, [position[one] for one in classes]
        if name in placement.shares:
            part, places = figures.part(places, placement.shares[name]), list(range(len(places)))
            # What is kept of the classes' spread is known of them whole, or of the same part of each.
            share = np.where(np.ptp(placement.shares[name][:, :width], axis=0).any(), 1.0, share)
        waiting[name] = part.waiting
        hurried = np.array([not config.wait_steps(one) for one in classes])
        own[name] = own_demand(pool, part, places, width=width, share=share, peak=peak, hurried=hurried)
    return own, waiting


def _frame(name: str, made: PoolFloors, texts: list[str], *, starts: pl.Series, step: timedelta) -> pl.DataFrame:
    """FLOORS of a pool."""
    return pl.DataFrame(
        {
            "pool": [name] * len(texts),
            "window_start": starts,
            "window_end": starts + step,
            "min_replicas": made.floors,
            "required_replicas": made.required,
            "rung": [RUNGS[rung].value for rung in made.rung.tolist()],
            "reason": texts,
        }
    )


def _lead(config: Config, pool: str) -> dict[str, Any]:
    """What the reasons of a pool say of its lead, and of the pools that share it."""
    slowest, partners = config.lead_of(pool), [name for name in config.together.get(pool, ()) if name != pool]
    said: dict[str, Any] = {"lead_s": config.lead(pool).total_seconds()}
    if (found := config.pools[pool].startup.measured) is not None:
        said["startup_p90_s"], said["startup_starts"] = found.p90.total_seconds(), found.starts
        said["startup_since"] = format_time(found.since)
    return said | ({"lead_of": slowest} if slowest != pool else {}) | ({"partners": partners} if partners else {})


def _claim(made: PoolFloors, pool: Pool, before: Ints, useful: Floats) -> Claim:
    """What the pool asks of the quotas.

    It takes from no other pool what it wants beyond its need: what the rules of shape hold, what is above the `useful`
    share [classes, windows] of its classes, and, where its demand is not known or not from a fresh forecast, what is
    above the floor published before. Where none was, the figures that there are count.
    """
    least, already = np.full_like(made.floors, pool.bounds.min), before[1:]
    wanted = next(move.after for move in made.moves if move.rule == "max_replicas")
    need = np.where(made.degraded, np.maximum(wanted, already), wanted)
    guessed = made.on_fallback | ((made.rung > 0) & (already > 0))
    need = np.where(guessed, np.minimum(need, np.maximum(already, least)), need)
    parts = class_parts(class_rates(made.class_quantile, made.own), made.binding, pool.capacity)
    need = np.ceil(need * (parts * useful).sum(axis=0).round(_DECIMALS)).astype(np.int64)
    return Claim(
        floors=made.floors,
        least=least,
        classes=made.classes,
        parts=parts,
        beyond_need=np.maximum(made.floors - need, 0),
    )


def _cut(made: PoolFloors, granted: Ints) -> PoolFloors:
    """With the floors that quotas leave: the last rule of all."""
    needed = next(move.after for move in made.moves if move.rule == "multiple_of")
    return replace(made, moves=(*made.moves, Move("quota", granted)), shortfall=np.maximum(needed - granted, 0))


def _kept(config: Config, shares: pl.DataFrame, forecasts: pl.DataFrame) -> dict[tuple[str, str], tuple[float, float]]:
    """Share and peak factor by pool and metric. A share from another cutoff than the newest of each of the pool's
    classes speaks of other forecasts, and is 1."""
    cutoffs = forecasts.group_by("workload_class", "metric").agg(pl.col("cutoff").max())
    newest = {(name, metric): cutoff for name, metric, cutoff in cutoffs.iter_rows()}
    kept = {}
    for row in shares.to_dicts():
        own = all(newest.get((name, row["metric"])) == row["cutoff"] for name in config.classes_of(row["pool"]))
        kept[row["pool"], row["metric"]] = (row["share"] if own else 1.0, row["peak"])
    return kept


def worst_rungs(config: Config, floors: pl.DataFrame, *, now: datetime) -> dict[str, Rung]:
    """For every pool of a FLOORS frame the worst rung among the windows that start within its lead time from `now`:
    those whose replicas must be asked for now."""
    leads = pl.DataFrame({"pool": list(config.pools), "until": [now + config.lead(pool) for pool in config.pools]})
    worst = (
        floors.join(leads, on="pool")
        .filter(pl.col("window_start") <= pl.col("until"))
        .group_by("pool")
        .agg(pl.col("rung").replace_strict({rung.value: place for place, rung in enumerate(RUNGS)}).max())
    )
    return {pool: RUNGS[place] for pool, place in worst.sort("pool").iter_rows()}


def _published(schedule: FloorSchedule | None, pool: str, grid: Grid, windows: int) -> Ints:
    """[1 + windows] floors published before, for the step before the grid's start and from there on; 0 for none.

    Where the step has changed since, a window has the greatest of the floors that overlap it.
    """
    floors = np.zeros(1 + windows, dtype=np.int64)
    if schedule is None or pool not in schedule.pools:
        return floors
    origin, step_s = (grid.start - grid.step).timestamp(), grid.step.total_seconds()
    old = schedule.pools[pool].windows
    first = np.floor((np.array([window.start.timestamp() for window in old]) - origin) / step_s).astype(np.int64)
    after = np.ceil((np.array([window.end.timestamp() for window in old]) - origin) / step_s).astype(np.int64)
    value = np.array([window.min_replicas for window in old])
    for offset in range(int((after - first).max())):
        at = first + offset
        covered = (at < after) & (at >= 0) & (at <= windows)
        np.maximum.at(floors, at[covered], value[covered])
    return floors
