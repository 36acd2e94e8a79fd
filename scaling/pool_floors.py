"""The floors of one pool, as arrays over its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from floorcast.pool import MOST_REPLICAS, Pool
from floorcast.types import Rule, Rung
from scaling.buffers import Buffer, apply_buffers, buffers_of
from scaling.capacity import Floats, Ints, Strings, required_replicas
from scaling.demand import DECIMALS, added, pool_demand
from scaling.ladder import RUNGS, Figures, Grid, fallback_replicas
from scaling.shape import descend, hold

_FRESH, _FALLBACK = RUNGS.index(Rung.FRESH), RUNGS.index(Rung.FALLBACK)
_DECISIVE = {"unified": slice(0, 2), "prefill": slice(0, 1), "decode": slice(1, 2)}
"""The metrics, in the order of METRICS, that a pool of each role is planned on."""

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True)
class Limits:
    """What rules in local time say of each window.

    `minimums` [windows] are replicas, 0 where no rule asks for one; `ceilings` [windows] are replicas, MOST_REPLICAS
    where no rule sets one. `minimum_rules` and `ceiling_rules` name for each window the rule that set its number, ""
    where none did.
    """

    minimums: Ints
    ceilings: Ints
    minimum_rules: Sequence[str]
    ceiling_rules: Sequence[str]


@dataclass(frozen=True)
class Move:
    """A rule after the buffers: the replicas [windows] after it, and for each window the name of who set them."""

    rule: Rule
    after: Ints
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class PoolFloors:
    """All that made one pool's floors; arrays are [windows] unless said otherwise.

    `deciding` is the step, from the grid's start, that the other arrays speak of; where `on_fallback`, it is the first
    step not known. `class_quantile`, `class_median` and `class_label` are [classes, metrics, windows]; demand, median,
    share and peak are [metrics, windows]. `buffered` are the replicas after each of the `buffers`, `wanted` those after
    all of them or of the fallback, and `moves` the rules that apply after that, in order.
    """

    classes: tuple[str, ...]
    class_quantile: Floats
    class_median: Floats
    class_label: npt.NDArray[np.int32]
    demand: Floats
    median: Floats
    share: Floats
    peak: Floats
    deciding: Ints
    binding: Strings
    required: Floats
    buffers: tuple[Buffer, ...]
    buffered: tuple[Floats, ...]
    on_fallback: npt.NDArray[np.bool_]
    rung: npt.NDArray[np.int8]
    wanted: Ints
    shortfall: Ints
    moves: tuple[Move, ...]

    @property
    def floors(self) -> Ints:
        return self.moves[-1].after


def pool_floors(
    pool: Pool,
    figures: Figures,
    members: list[int],
    grid: Grid,
    *,
    windows: int,
    width: int,
    before: Ints,
    share: Floats,
    peak: Floats,
    limits: Limits | None = None,
) -> PoolFloors:
    """The floors of a pool over `windows` steps from the start of the grid.

    `members` are the positions of its classes in the figures, `width` the number of steps that overlap a window
    and its lead, `before` [1 + windows] what was published before, 0 for nothing, `share` [metrics] what the pool
    keeps of its classes' spread within the lead window where all their forecasts are fresh, and `peak` [metrics] the
    factor for its busiest minute, on whatever rung there is a figure.
    """
    steps = windows + width - 1
    quantile = figures.quantile[members, :, :steps]
    label = figures.label[members, :, :steps]
    known = ~np.isnan(quantile)
    class_median = figures.median[members, :, :steps]
    worst = figures.rung[members, :, :steps].max(axis=0)
    # Further ahead than the lead window, classes err together: a day that is busier than usual is so for all.
    kept_share = np.where((worst == _FRESH) & (np.arange(steps) < width), share[:, None], 1.0)
    kept_peak = np.where(worst < _FALLBACK, peak[:, None], 1.0)
    demand, median = pool_demand(quantile, class_median, kept_share, kept_peak), added(class_median)
    required, binding = required_replicas(
        tokens_in_per_s=demand[0], tokens_out_per_s=demand[1], capacity=pool.capacity, role=pool.role
    )
    unknown: npt.NDArray[np.bool_] = np.logical_not(known[:, _DECISIVE[pool.role]].all(axis=(0, 1)))
    # A prefill and a decode pool share the worst rung of their classes, whichever of them is planned on the figure.
    missing: npt.NDArray[np.bool_] = np.logical_not(known.all(axis=(0, 1)))
    rung = np.where(known, figures.rung[members, :, :steps], 0).max(axis=(0, 1))
    rung = np.where(missing & (np.arange(steps) < windows), np.int8(_FALLBACK), rung)

    deciding = np.arange(windows) + _ahead(required, width).argmax(axis=1)
    buffers = buffers_of(pool.margin)
    buffered = apply_buffers(required[deciding], buffers)
    whole = buffered[-1].astype(np.int64)
    gap = _ahead(unknown & (np.arange(steps) < windows), width)
    fallback = fallback_replicas(pool)
    on_fallback = gap.any(axis=1) & (fallback > whole)
    deciding = np.where(on_fallback, np.arange(windows) + gap.argmax(axis=1), deciding)
    window_rung = _ahead(rung, width).max(axis=1)

    wanted = np.where(on_fallback, fallback, whole)
    degraded = (window_rung > 0) | _ahead(missing, width).any(axis=1)
    moves, shortfall = _moves(
        pool, wanted, grid, before=before, degraded=degraded, limits=limits or _no_limits(windows)
    )
    return PoolFloors(
        classes=tuple(figures.classes[member] for member in members),
        class_quantile=quantile[:, :, deciding].round(DECIMALS),
        class_median=class_median[:, :, deciding].round(DECIMALS),
        class_label=label[:, :, deciding],
        demand=demand[:, deciding],
        median=median[:, deciding],
        share=kept_share[:, deciding],
        peak=kept_peak[:, deciding],
        deciding=deciding,
        binding=binding[deciding],
        required=np.where(on_fallback, fallback, required[deciding]),
        buffers=buffers,
        buffered=buffered,
        on_fallback=on_fallback,
        rung=window_rung,
        wanted=wanted,
        shortfall=shortfall,
        moves=moves,
    )


def _moves(
    pool: Pool, wanted: Ints, grid: Grid, *, before: Ints, degraded: npt.NDArray[np.bool_], limits: Limits
) -> tuple[tuple[Move, ...], Ints]:
    """The rules after the buffers, in the order of `floorcast.types.RULES`, and the shortfall [windows].

    `degraded` says which windows are not below what was published `before`. A ceiling comes last, so that neither
    what was published nor a gentle descent lifts a floor over it.
    """
    bounds, shape = pool.bounds, pool.shape
    before = np.minimum(before, bounds.max)
    scheduled = np.maximum(wanted, limits.minimums)
    raised = np.maximum(scheduled, bounds.min)
    bounded = np.minimum(raised, bounds.max)
    kept = np.where(degraded, np.maximum(bounded, before[1:]), bounded)
    held = hold(kept, published=before, dwell_steps=_steps(shape.dwell, grid.step))
    floors = descend(
        held,
        before=int(before[0]),
        first_index=grid.first_index,
        step_down=shape.step_down,
        every_steps=_steps(shape.every, grid.step),
    )
    moves = (
        Move("scheduled_minimum", scheduled, limits.minimum_rules),
        Move("min_replicas", raised),
        Move("max_replicas", bounded),
        Move("already_published", kept),
        Move("dwell", held),
        Move("step_down", floors),
        Move("ceiling", np.minimum(floors, limits.ceilings), limits.ceiling_rules),
    )
    return moves, np.maximum(raised - np.minimum(bounded, limits.ceilings), 0)


def _no_limits(windows: int) -> Limits:
    unnamed = [""] * windows
    return Limits(np.zeros(windows, dtype=np.int64), np.full(windows, MOST_REPLICAS), unnamed, unnamed)


def _ahead(steps: npt.NDArray[_T], width: int) -> npt.NDArray[_T]:
    """[steps] to [windows, width]: the steps that each window has to cover."""
    return np.lib.stride_tricks.sliding_window_view(steps, width)


def _steps(duration: timedelta, step: timedelta) -> int:
    """Whole steps that last at least `duration`, never none."""
    return max(1, -(-duration // step))
