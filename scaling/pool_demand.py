"""What its classes ask of a pool, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from floorcast.pool import Pool
from floorcast.types import Rung
from scaling.capacity import Floats
from scaling.demand import DECIMALS, added, pool_demand
from scaling.ladder import RUNGS, Figures

_FRESH, _FALLBACK = RUNGS.index(Rung.FRESH), RUNGS.index(Rung.FALLBACK)
DECISIVE = {"unified": slice(0, 2), "prefill": slice(0, 1), "decode": slice(1, 2)}
"""The metrics, in the order of METRICS, that a pool of each role is planned on."""


@dataclass(frozen=True)
class PoolDemand:
    """Arrays over the steps of the grid.

    `class_quantile`, `class_median` and `class_label` are [classes, metrics, steps]; demand, median, share and peak
    [metrics, steps]. [steps] are `unknown` and `missing`, whether some class has no figure of a metric that the pool is
    planned on, or of any, and `rung`, the worst of its classes, a position in RUNGS: a prefill and a decode pool share
    the worst, whichever of them is planned on the figure. `taken` holds by pool the share and the demand [metrics,
    steps] that is taken over from it, which `demand` and `median` contain.
    """

    classes: tuple[str, ...]
    class_quantile: Floats
    class_median: Floats
    class_label: npt.NDArray[np.int32]
    demand: Floats
    median: Floats
    share: Floats
    peak: Floats
    unknown: npt.NDArray[np.bool_]
    missing: npt.NDArray[np.bool_]
    rung: npt.NDArray[np.int8]
    taken: Mapping[str, tuple[float, Floats]]


def own_demand(
    pool: Pool,
    figures: Figures,
    members: list[int],
    *,
    width: int,
    share: Floats,
    peak: Floats,
    hurried: npt.NDArray[np.bool_],
) -> PoolDemand:
    """The demand of a pool's own classes.

    `members` are their positions in the figures, `share` [metrics] what the pool keeps of its classes' spread within
    the `width` steps of the lead window where all their forecasts are fresh, and `peak` [metrics] the factor for its
    busiest minute, on whatever rung there is a figure. `hurried` [members] are those that may not wait: the others have
    no busiest minute, so that the factor of a step is that much nearer to 1.
    """
    quantile, median, rung = figures.quantile[members], figures.median[members], figures.rung[members]
    worst = rung.max(axis=0)
    # Further ahead than the lead window, classes err together: a day that is busier than usual is so for all.
    kept_share = np.where((worst == _FRESH) & (np.arange(quantile.shape[2]) < width), share[:, None], 1.0)
    every = added(quantile)
    in_haste = np.divide(added(quantile[hurried]), every, out=np.ones_like(every), where=every > 0)
    kept_peak = np.where(worst < _FALLBACK, 1 + (peak[:, None] - 1) * in_haste, 1.0)
    known = ~np.isnan(quantile)
    return PoolDemand(
        classes=tuple(figures.classes[member] for member in members),
        class_quantile=quantile.round(DECIMALS),
        class_median=median.round(DECIMALS),
        class_label=figures.label[members],
        demand=pool_demand(quantile, median, kept_share, kept_peak),
        median=added(median),
        share=kept_share,
        peak=kept_peak,
        unknown=np.logical_not(known[:, DECISIVE[pool.role]].all(axis=(0, 1))),
        missing=np.logical_not(known.all(axis=(0, 1))),
        rung=np.where(known, rung, 0).max(axis=(0, 1)),
        taken={},
    )


def with_taken_over(pool: Pool, own: PoolDemand, others: Mapping[str, PoolDemand]) -> PoolDemand:
    """What a pool must carry if the region of another is lost: its own demand and its share of that pool's own.

    What is not known of another pool is not known of this one either, and its rung counts.
    """
    taken = {name: (share, others[name].demand) for name, share in pool.margin.takes_over.items()}
    if not taken:
        return own
    lost = [others[name] for name in taken]
    return replace(
        own,
        demand=total_demand(own.demand, taken),
        median=own.median + sum(share * others[name].median for name, (share, _) in taken.items()),
        unknown=np.logical_or.reduce([own.unknown, *(other.unknown for other in lost)]),
        missing=np.logical_or.reduce([own.missing, *(other.missing for other in lost)]),
        rung=np.maximum.reduce([own.rung, *(other.rung for other in lost)]),
        taken=taken,
    )


def total_demand(own: Floats, taken: Mapping[str, tuple[float, Floats]]) -> Floats:
    """Own demand and the shares of others', to a thousandth of a token per second; arrays of one shape."""
    total: Floats = np.round(own + sum(share * demand for share, demand in taken.values()), DECIMALS)
    return total
