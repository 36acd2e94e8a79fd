"""The floors of one pool, as arrays over its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from floorcast.pool import Pool
from floorcast.types import Rung
from scaling.buffers import Buffer, apply_buffers, buffers_of
from scaling.capacity import Floats, Ints, Strings, required_replicas
from scaling.ladder import RUNGS, Grid, fallback_replicas
from scaling.moves import Flags, Limits, Move, moves, no_limits, steps_of
from scaling.pool_demand import DECISIVE, PoolDemand

_FALLBACK = RUNGS.index(Rung.FALLBACK)

_T = TypeVar("_T", bound=np.generic)


@dataclass(frozen=True)
class PoolFloors:
    """All that made one pool's floors; arrays are [windows] unless said otherwise.

    `deciding` is the step, from the grid's start, that the other arrays speak of; where `on_fallback`, it is the first
    step not known. `class_quantile`, `class_median` and `class_label` are [classes, metrics, windows]; demand, median,
    share, peak and those `taken` over are [metrics, windows]. `buffered` are the replicas after each of the `buffers`,
    but for the windows `idle`, which need none; the windows `degraded` rest on a figure that is not fresh, or miss one;
    `wanted` are those after all buffers or of the fallback, `before` [1 + windows] what was published for the step
    before and from there on, and `moves` the rules that apply after all buffers, in order.
    """

    classes: tuple[str, ...]
    class_quantile: Floats
    class_median: Floats
    class_label: npt.NDArray[np.int32]
    demand: Floats
    median: Floats
    share: Floats
    peak: Floats
    taken: Mapping[str, tuple[float, Floats]]
    deciding: Ints
    binding: Strings
    required: Floats
    buffers: tuple[Buffer, ...]
    buffered: tuple[Floats, ...]
    on_fallback: Flags
    idle: Flags
    degraded: Flags
    rung: npt.NDArray[np.int8]
    wanted: Ints
    before: Ints
    shortfall: Ints
    moves: tuple[Move, ...]

    @property
    def floors(self) -> Ints:
        return self.moves[-1].after

    @property
    def own(self) -> Floats:
        """[metrics, windows] the demand of its own classes, without what it takes over."""
        return self.demand - sum(share * other for share, other in self.taken.values())


def pool_floors(
    pool: Pool,
    demand: PoolDemand,
    grid: Grid,
    *,
    windows: int,
    width: int,
    before: Ints,
    idle: Flags,
    limits: Limits | None = None,
    closed: bool = False,
    late: bool = False,
) -> PoolFloors:
    """The floors of a pool over `windows` steps from the start of the grid.

    `width` is the number of steps that overlap a window and its lead, `before` [1 + windows] what was published before,
    0 for nothing, and `idle` [windows] what `idle_windows` says. Where the gate is `closed` what demand asks for is
    told, and not made a floor. Where it is `late`, nothing
    new being known of its classes, no floor is below what was published.
    """
    steps = windows + width - 1
    required, binding = required_replicas(
        tokens_in_per_s=demand.demand[0, :steps],
        tokens_out_per_s=demand.demand[1, :steps],
        capacity=pool.capacity,
        role=pool.role,
    )
    unknown, missing, inside = demand.unknown[:steps], demand.missing[:steps], np.arange(steps) < windows
    deciding = np.arange(windows) + _ahead(required, width).argmax(axis=1)
    buffers = buffers_of(pool.margin)
    buffered = apply_buffers(required[deciding], buffers)
    whole = np.where(idle, 0, buffered[-1]).astype(np.int64)
    gap = _ahead(unknown & inside, width)
    fallback = fallback_replicas(pool)
    on_fallback = gap.any(axis=1) & (fallback > whole)
    deciding = np.where(on_fallback, np.arange(windows) + gap.argmax(axis=1), deciding)
    rung = _ahead(np.where(missing & inside, np.int8(_FALLBACK), demand.rung[:steps]), width).max(axis=1)
    wanted = np.where(on_fallback, fallback, whole)
    degraded = late | (rung > 0) | _ahead(missing, width).any(axis=1)
    rules, shortfall = moves(
        pool,
        wanted,
        grid,
        idle=idle,
        before=before,
        degraded=degraded,
        limits=limits or no_limits(windows),
        closed=closed,
    )
    return PoolFloors(
        classes=demand.classes,
        class_quantile=demand.class_quantile[:, :, deciding],
        class_median=demand.class_median[:, :, deciding],
        class_label=demand.class_label[:, :, deciding],
        demand=demand.demand[:, deciding],
        median=demand.median[:, deciding],
        share=demand.share[:, deciding],
        peak=demand.peak[:, deciding],
        taken={name: (share, other[:, deciding]) for name, (share, other) in demand.taken.items()},
        deciding=deciding,
        binding=binding[deciding],
        required=np.where(on_fallback, fallback, required[deciding]),
        buffers=buffers,
        buffered=buffered,
        on_fallback=on_fallback,
        idle=idle,
        degraded=degraded,
        rung=rung,
        wanted=wanted,
        before=before,
        shortfall=shortfall,
        moves=rules,
    )


def idle_windows(
    pool: Pool,
    demand: PoolDemand,
    beside: Sequence[tuple[Pool, PoolDemand]],
    step: timedelta,
    *,
    windows: int,
    width: int,
) -> Flags:
    """[windows] where no replica is needed: demand stays under the pool's threshold over the lead window and the
    wake-up after it.

    A request needs a prefill and a decode replica, so of pools planned together all must stay low, each of those
    `beside` under its own threshold (this pool's where it has none), over the longest of the wake-ups. A step not known
    is not low; past the grid, steps are left out.
    """
    if pool.scale_to_zero is None:
        return np.zeros(windows, dtype=np.bool_)
    each = [(one, asked, one.scale_to_zero or pool.scale_to_zero) for one, asked in ((pool, demand), *beside)]
    low = np.logical_and.reduce(
        [
            (asked.demand[DECISIVE[one.role]].sum(axis=0) < zero.below_tokens_per_s) & ~asked.unknown
            for one, asked, zero in each
        ]
    )
    reach = width + max(steps_of(zero.wake_up, step) for _, _, zero in each)
    padded = np.append(low, np.ones(reach, dtype=np.bool_))
    return np.asarray(_ahead(padded, reach)[:windows].all(axis=1))


def _ahead(steps: npt.NDArray[_T], width: int) -> npt.NDArray[_T]:
    """[steps] to [windows, width]: the steps that each window has to cover."""
    return np.lib.stride_tricks.sliding_window_view(steps, width)
