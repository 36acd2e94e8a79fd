"""Floors of times past, as the plan would have made them then."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.pool import Pool
from scaling.buffers import apply_buffers, buffers_of
from scaling.capacity import Floats, Ints, required_replicas
from scaling.ladder import Grid, fallback_replicas
from scaling.moves import Flags, Limits, moves
from scaling.pool_demand import DECISIVE


def past_floors(pool: Pool, rates: Floats, grid: Grid, limits: Limits) -> Ints:
    """[steps of the grid] the floor that was due at the beginning of each.

    `rates` [metrics, steps, levels] are quantiles of the pool's greatest rate within the lead window, as they were
    forecast at each step. From there it is the plan's own way: capacity, buffers, the rules of `scaling.moves`. With
    `combine: sum` both metrics' greatest rates count though they may not come together, so that such floors are no
    lower than the plan's. Where nothing was known the floor is the one before, at first `fallback_replicas`.
    """
    tokens_in, tokens_out = at_level(rates, pool.margin.quantile)
    required, _ = required_replicas(
        tokens_in_per_s=tokens_in, tokens_out_per_s=tokens_out, capacity=pool.capacity, role=pool.role
    )
    known = np.isfinite(required)
    buffered = apply_buffers(np.where(known, required, 0.0), buffers_of(pool.margin))[-1].astype(np.int64)
    last = np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))
    wanted = np.where(last >= 0, buffered[np.maximum(last, 0)], fallback_replicas(pool))
    idle = _idle(pool, rates)
    return _moved(pool, np.where(idle, 0, wanted), grid, limits, idle=idle)


def plain_minimums(pool: Pool, rates: Floats, grid: Grid, limits: Limits) -> Ints:
    """[steps] the floor of a pool whose gate is closed: `bounds.min` and the calendar's minimums, and one replica where
    the pool may scale to zero but demand does not stay low."""
    return _moved(pool, np.zeros(grid.count, dtype=np.int64), grid, limits, idle=_idle(pool, rates))


def at_level(rates: Floats, level: float) -> Floats:
    """[..., levels] to [...] at one level, linear between the two around it."""
    for place, (low, high) in enumerate(pairwise(QUANTILE_LEVELS)):
        if low <= level <= high:
            share = (level - low) / (high - low)
            between: Floats = rates[..., place] * (1 - share) + rates[..., place + 1] * share
            return between
    outside: Floats = rates[..., 0 if level < QUANTILE_LEVELS[0] else -1]
    return outside


def _idle(pool: Pool, rates: Floats) -> Flags:
    """[steps] where demand stays under the pool's threshold over the lead window; the wake-up is not looked at."""
    if pool.scale_to_zero is None:
        return np.zeros(rates.shape[1], dtype=np.bool_)
    total = at_level(rates, pool.margin.quantile)[DECISIVE[pool.role]].sum(axis=0)
    return np.asarray(total < pool.scale_to_zero.below_tokens_per_s)


def _moved(pool: Pool, wanted: Ints, grid: Grid, limits: Limits, *, idle: Flags) -> Ints:
    """The rules over all steps at once: dwell and step-down look back only, so that this is what publications at each
    step would have come to."""
    nothing = np.zeros(1 + len(wanted), dtype=np.int64)
    fresh = np.zeros(len(wanted), dtype=np.bool_)
    rules, _ = moves(pool, wanted, grid, idle=idle, before=nothing, degraded=fresh, limits=limits)
    return rules[-1].after
