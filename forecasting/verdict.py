"""A backtest judged on the outlook: the loss of its quantile bound, and the margins that made the bound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.units import format_duration
from forecasting import accuracy
from forecasting.margins import Kind, Margins, Pairs
from forecasting.series import FloatArray

Horizon = Literal["lead", "outlook"]
HORIZONS: tuple[Horizon, Horizon] = ("lead", "outlook")
"""`lead`: the steps a floor due now must cover, forecast by experts combined and judged on their maximum, since
replicas must suffice for it. `outlook`: the steps after them, judged one by one; no floor due now depends on them."""

BASE_SHARE = 0.1
"""Margins by ratio are ratios to the forecast plus this share of the series' mean, so that a forecast near zero
does not make any residual an enormous ratio; at least `LEAST_BASE` tokens/s, for a class that was idle."""

LEAST_BASE = 1.0

KINDS: tuple[Kind, ...] = ("add", "scale")


@dataclass(frozen=True)
class Target:
    """What the forecasts are for: the floor's quantile, the lead window and the whole horizon, both in steps, and how
    many steps the newest data are behind the present."""

    quantile: float
    lead_steps: int
    horizon_steps: int
    late_steps: int = 0

    @property
    def due_steps(self) -> int:
        """Steps from the cutoff to where the lead window of a floor due now ends."""
        return self.lead_steps + self.late_steps

    def settings(self, step: timedelta) -> str:
        """What a fit depends on beside its data: made for other settings, it counts in other steps."""
        return f"step {format_duration(step)}, lead window {self.lead_steps} steps, quantile {self.quantile:g}"


@dataclass(frozen=True)
class Verdict:
    """`losses` has one pinball loss in tokens/s an origin, NaN where it could not be judged, of `bound` (origins, steps
    after the lead window); `wape` and `bias` are of the point forecast, None where the actuals sum to 0."""

    losses: FloatArray
    bound: FloatArray
    margins: Margins
    wape: float | None
    bias: float | None

    @property
    def score(self) -> float:
        return float(np.nanmean(self.losses))

    @property
    def origins(self) -> int:
        return int(np.isfinite(self.losses).sum())


def judge(result: Pairs, *, target: Target, mean: float) -> Verdict | str:
    """Judge with both kinds of margin and keep the better one; the reason where nothing could be judged.

    `mean` is the series' mean rate before the first origin, in tokens/s.
    """
    ends = target_ends(target)
    base = max(BASE_SHARE * mean, LEAST_BASE)
    after = slice(target.lead_steps, None)
    actual = result.actual[:, after]
    if not np.isfinite(actual).any():
        return "no step after a lead window was observed"
    bounds = {kind: _cross_fitted(result, kind=kind, base=base, ends=ends, target=target)[:, after] for kind in KINDS}
    losses = {kind: losses_by_origin(actual, bound, target) for kind, bound in bounds.items()}
    kind = min(KINDS, key=lambda each: float(np.nanmean(losses[each])))
    median = result.path[:, after]
    return Verdict(
        losses=losses[kind],
        bound=bounds[kind],
        margins=Margins.from_residuals(result, kind=kind, base=base, ends=ends),
        wape=accuracy.or_none(accuracy.wape(actual=actual, forecast=median)),
        bias=accuracy.or_none(accuracy.bias(actual=actual, forecast=median)),
    )


def target_ends(target: Target) -> tuple[int, ...]:
    """Ends of the margins' horizon buckets, in steps: one step, the lead window, then doubling to the horizon."""
    ends = {1, min(target.lead_steps, target.horizon_steps), target.horizon_steps}
    end = 2 * target.lead_steps
    while end < target.horizon_steps:
        ends.add(end)
        end *= 2
    return tuple(sorted(ends))


def losses_by_origin(actual: FloatArray, bound: FloatArray, target: Target) -> FloatArray:
    """The mean pinball loss at the target's quantile of each origin, of arrays (origins, steps); NaN where nothing was
    observed."""
    losses = accuracy.pinball_losses(actual=actual, forecast=bound, quantile=target.quantile)
    seen = np.isfinite(losses)
    total = np.where(seen, losses, 0.0).sum(axis=1)
    means: FloatArray = np.divide(total, seen.sum(axis=1), out=np.full(len(losses), np.nan), where=seen.any(axis=1))
    return means


def _cross_fitted(result: Pairs, *, kind: Kind, base: float, ends: tuple[int, ...], target: Target) -> FloatArray:
    """The bound of each origin, (origins, horizon), with margins from the other half of the origins only."""
    half = len(result.path) // 2
    bound = np.empty(result.path.shape)
    for mine, other in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        margins = Margins.from_residuals(result.of(other), kind=kind, base=base, ends=ends)
        one = result.of(mine)
        bound[mine] = at_level(margins.apply(one.path, one.targets, one.day), target.quantile)
    return bound


def at_level(quantiles: FloatArray, level: float) -> FloatArray:
    """One level of an array whose last axis is `QUANTILE_LEVELS`, interpolated linearly between levels."""
    upper = min(max(int(np.searchsorted(QUANTILE_LEVELS, level)), 1), len(QUANTILE_LEVELS) - 1)
    low, high = QUANTILE_LEVELS[upper - 1], QUANTILE_LEVELS[upper]
    weight = (level - low) / (high - low)
    result: FloatArray = quantiles[..., upper - 1] * (1 - weight) + quantiles[..., upper] * weight
    return result
