"""Blocks of time that a placement is made for: what is asked in each, and what pools and quotas hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from floorcast.config import Config
from floorcast.pool import MOST_REPLICAS, Pool
from floorcast.types import FloorSchedule
from scaling.capacity import Floats, Ints, Strings
from scaling.ladder import Figures, Grid
from scaling.moves import Limits
from scaling.placement.programme import Blocks, Group

_HOUR = timedelta(hours=1)


def uses_of(pool: Pool, peaks: Floats) -> Floats:
    """[resources, 2]: the replicas that a token per second in or out keeps busy, the `peaks` [metrics] and the minimum
    margin included."""
    rates = np.array([pool.capacity.prefill_tokens_per_s, pool.capacity.decode_tokens_per_s])
    busy = np.asarray(peaks) * (1 + pool.margin.minimum) / (rates * pool.capacity.target_utilization)
    if pool.role != "unified":
        return np.diag(busy)[:1] if pool.role == "prefill" else np.diag(busy)[1:]
    return busy[None, :] if pool.capacity.combine == "sum" else np.diag(busy)


def edges_of(config: Config, group: Group, grid: Grid, limits: Mapping[str, Limits]) -> Ints:
    """Steps at which a block begins, and the end of the grid: the ends of the lead windows, after these the hours of
    the clock, and where a calendar changes what a pool may have."""
    leads = [config.lead_steps(name) - 1 for name in group.pools]
    per_hour = max(1, _HOUR // grid.step)
    hours = np.flatnonzero((grid.first_index + np.arange(grid.count)) % per_hour == 0)
    inside = [*leads, *hours[hours > max(leads)].tolist()]
    for name in group.pools:
        least, most, _ = _calendar(config, name, grid, limits)
        inside += (1 + np.flatnonzero(np.diff(least) | np.diff(most))).tolist()
    return np.unique([0, *(edge for edge in inside if edge < grid.count), grid.count])


def blocks_of(
    config: Config,
    group: Group,
    figures: Figures,
    grid: Grid,
    edges: Ints,
    *,
    peaks: Mapping[str, Floats],
    limits: Mapping[str, Limits],
    before: Mapping[str, Ints],
    published: FloorSchedule | None,
) -> tuple[Blocks, Strings]:
    """The blocks between the `edges`, and the name of what limits each pool in each: [blocks, pools].

    A pool has no more than was published for it, `before`, while it has no time to start: none where that is 0. Where
    nothing was published, nothing is known of what it has, and its bounds alone hold. A ceiling holds for a lead time
    longer than its calendar says, since no replica is asked for before. The room of a quota is what the group's other
    pools, which serve together with another and are not placed, leave of it.
    """
    starts = edges[:-1]
    shape = (len(starts), len(group.pools))
    least, most, names = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=object)
    for at, name in enumerate(group.pools):
        pool = config.pools[name]
        there = np.minimum.reduceat(_there(pool, name, grid, before[name], published), starts)
        waiting = (starts < config.lead_steps(name) - 1) & (there < pool.bounds.max)
        anyway = max(pool.margin.warm, pool.bounds.min)
        could = np.maximum(np.where(waiting, there, pool.bounds.max), anyway)
        minimums, ceilings, rules = (values[starts] for values in _calendar(config, name, grid, limits))
        most[:, at] = np.minimum(could, ceilings)
        least[:, at] = np.minimum(np.maximum(anyway, minimums), most[:, at])
        by_pool = np.where(waiting, f"startup.p90 of {name}", f"bounds.max of {name}")
        names[:, at] = np.where(ceilings < could, rules, by_pool)
    members = [figures.classes.index(name) for name in group.classes]
    demand = np.maximum.reduceat(np.nan_to_num(figures.quantile[members]), starts, axis=2).transpose(2, 0, 1)
    room = []
    for quota in config.quotas:
        covered = [name for name, pool in config.pools.items() if quota.covers(pool)]
        if set(covered) & set(group.pools):
            taken = np.zeros(grid.count)
            for name in set(covered) - set(group.pools):
                need = _need(config, name, figures, grid, peaks=peaks[name], limits=limits)
                taken += need * config.pools[name].gpu.per_replica
            room.append(quota.gpus - np.maximum.reduceat(taken, starts))
    return Blocks(demand, least, most, np.array(room).reshape(-1, len(starts)).T), names.astype(np.str_)


def _there(pool: Pool, name: str, grid: Grid, before: Ints, published: FloorSchedule | None) -> Ints:
    """[steps] replicas that were published, `bounds.max` where nothing was."""
    found = np.full(grid.count, pool.bounds.max)
    if published is not None and name in published.pools:
        windows = published.pools[name].windows
        first = max((windows[0].start - grid.start) // grid.step, 0)
        end = max(-((grid.start - windows[-1].end) // grid.step), 0)
        found[: len(before) - 1][first:end] = before[1:][first:end]
    return found


def _calendar(
    config: Config, name: str, grid: Grid, limits: Mapping[str, Limits]
) -> tuple[Ints, Ints, npt.NDArray[np.object_]]:
    """[steps] the minimum, the least ceiling of the step and of the lead before it, and that one's name."""
    if name not in limits:
        none = np.full(grid.count, MOST_REPLICAS)
        return np.zeros_like(none), none, np.full(grid.count, "", dtype=object)
    own, before = limits[name], config.lead_steps(name) - 1
    padded = np.concatenate([np.full(before, MOST_REPLICAS), own.ceilings])
    set_at = np.arange(grid.count) + np.lib.stride_tricks.sliding_window_view(padded, before + 1).argmin(axis=1)
    rules = np.array([*[""] * before, *own.ceiling_rules], dtype=object)[set_at]
    return own.minimums, padded[set_at], "ceiling " + rules + f" of {name}"


def _need(
    config: Config, name: str, figures: Figures, grid: Grid, *, peaks: Floats, limits: Mapping[str, Limits]
) -> Floats:
    """[steps] replicas that a pool needs which is not placed. What is not known of its classes is 0."""
    pool = config.pools[name]
    members = [figures.classes.index(member) for member in config.classes_of(name)]
    rates = np.nan_to_num(figures.quantile[members]).sum(axis=0)
    busy = (uses_of(pool, peaks) @ rates).max(axis=0)
    least, most, _ = _calendar(config, name, grid, limits)
    whole = np.maximum(np.ceil(busy) + pool.margin.warm, np.maximum(least, pool.bounds.min))
    need: Floats = np.minimum(whole, np.minimum(most, pool.bounds.max))
    return need
