"""Quantiles around a point forecast, from the residuals that the same forecaster left in its backtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from floorcast.columns import QUANTILE_LEVELS
from forecasting.models.base import IntArray
from forecasting.series import FloatArray

Kind = Literal["add", "scale"]

MIN_RESIDUALS = 12
"""A horizon bucket with fewer residuals takes the margins of the bucket before it."""

EXTRA_DAYS = 10.0
"""What a level leaves outside is taken d / (d + EXTRA_DAYS) times as large where d days were seen: the steps of a day
err together, so that a few days show less than their number of residuals promises."""

RATE = 0.8
"""Of the correction, in mean absolute residuals an hour."""

HOURS = 24
_LEVELS = np.asarray(QUANTILE_LEVELS)
_TAIL = 1.0 - _LEVELS


@dataclass(frozen=True)
class Pairs:
    """Forecasts and what came, both (origins, horizon) in tokens/s, `actual` NaN where not known. `targets`, of the
    same shape, are the steps forecast, counted from a midnight in UTC; a day has `day` steps."""

    actual: FloatArray
    path: FloatArray
    targets: IntArray
    day: int

    def of(self, origins: slice) -> Pairs:
        return Pairs(self.actual[origins], self.path[origins], self.targets[origins], self.day)


class Margins(BaseModel):
    """Quantiles of residuals by horizon and hour of the day.

    `offsets[b]` holds one offset for each of `QUANTILE_LEVELS`, for horizons up to `ends[b]` steps (the last bucket
    serves all longer ones), and `spreads[b]` the mean absolute residual. Kind `add` adds an offset times the `hours`
    factor of the target's hour (UTC) to the forecast; kind `scale` adds it times that times (forecast + `base`).
    Offsets of kind `add` and `base` are in tokens/s.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    base: float
    ends: tuple[int, ...]
    offsets: tuple[tuple[float, ...], ...]
    spreads: tuple[float, ...]
    hours: tuple[float, ...]

    @classmethod
    def from_residuals(cls, pairs: Pairs, *, kind: Kind, base: float, ends: tuple[int, ...]) -> Self:
        """Estimate from a backtest.

        A quantile takes the ceil((n + 1) q)-th smallest residual, as in split conformal prediction (Lei et al., 2018),
        so that few residuals widen it, with q moved outwards where few days were seen (`EXTRA_DAYS`): were days the
        exchangeable units, a guarantee would take the ceil((d + 1) q)-th of d (Dunn, Wasserman and Ramdas, 2023).
        """
        unit = pairs.path + base if kind == "scale" else np.ones_like(pairs.path)
        residuals = (pairs.actual - pairs.path) / unit
        hours = _by_hour(np.abs(residuals), _hour(pairs.targets, pairs.day))
        residuals /= hours[_hour(pairs.targets, pairs.day)]
        offsets: list[tuple[float, ...]] = []
        spreads: list[float] = []
        for first, end in zip((0, *ends), ends, strict=False):
            known = np.isfinite(residuals[:, first:end])
            seen = residuals[:, first:end][known]
            if len(seen) >= MIN_RESIDUALS or not offsets:
                days = len(np.unique(pairs.targets[:, first:end][known] // pairs.day))
                offsets.append(tuple(conformal(seen, _widened(days)).tolist()))
                spreads.append(float(np.abs(seen).mean()) if len(seen) else 0.0)
            else:
                offsets.append(offsets[-1])
                spreads.append(spreads[-1])
        return cls(
            kind=kind,
            base=base,
            ends=ends,
            offsets=tuple(offsets),
            spreads=tuple(spreads),
            hours=tuple(hours.tolist()),
        )

    def follow(self, pairs: Pairs) -> Self:
        """The same with offsets moved, hour by hour, by how far the coverage that they would have had is off.

        As in adaptive conformal inference (Gibbs and Candès, 2021): too many misses of a level in an hour raise it,
        too few lower it.
        """
        known = np.isfinite(pairs.actual)
        if not known.any():
            return self
        bucket = np.broadcast_to(self._bucket(pairs.path.shape[1]), known.shape)[known]
        off = ((pairs.actual - pairs.path) / self._unit(pairs.path, pairs.targets, pairs.day))[known]
        when = (pairs.targets * HOURS // pairs.day)[known]
        order = np.argsort(when, kind="stable")
        offsets, spreads = np.asarray(self.offsets), np.asarray(self.spreads)
        for places in np.split(order, np.flatnonzero(np.diff(when[order])) + 1):
            mine = bucket[places]
            missed = (off[places, None] > offsets[mine]) - _TAIL
            sums = (mine == np.arange(len(offsets))[:, None]).astype(float)
            mean = sums @ missed / np.maximum(sums.sum(axis=1), 1)[:, None]
            offsets = offsets + RATE * spreads[:, None] * mean
        offsets = np.sort(offsets, axis=1)
        return self.model_copy(update={"offsets": tuple(map(tuple, offsets.tolist()))})

    def apply(self, path: FloatArray, targets: IntArray, day: int) -> FloatArray:
        """Quantiles of point forecasts (..., horizon) of `targets`: (..., horizon, levels), non-negative."""
        offsets = np.asarray(self.offsets)[self._bucket(path.shape[-1])]
        unit = self._unit(path, targets, day)
        result: FloatArray = np.maximum(path[..., None] + offsets * unit[..., None], 0.0)
        return result

    def _bucket(self, horizon: int) -> IntArray:
        found = np.searchsorted(self.ends, np.arange(1, horizon + 1))
        return np.minimum(found, len(self.ends) - 1)

    def _unit(self, path: FloatArray, targets: IntArray, day: int) -> FloatArray:
        factor: FloatArray = np.asarray(self.hours)[_hour(targets, day)]
        return factor * (path + self.base) if self.kind == "scale" else factor


def conformal(residuals: FloatArray, levels: Sequence[float] | FloatArray) -> FloatArray:
    """Of each level the ceil((n + 1) q)-th smallest of n residuals, 0 where there is none."""
    if len(residuals) == 0:
        return np.zeros(len(levels))
    ranks = np.ceil((len(residuals) + 1) * np.asarray(levels)).astype(int)
    quantiles: FloatArray = np.sort(residuals)[np.clip(ranks, 1, len(residuals)) - 1]
    return quantiles


def _hour(targets: IntArray, day: int) -> IntArray:
    return targets % day * HOURS // day


def _widened(days: int) -> FloatArray:
    share = max(days, 1) / (max(days, 1) + EXTRA_DAYS)
    outward: FloatArray = np.where(_LEVELS < 0.5, _LEVELS * share, _LEVELS)
    return np.where(_LEVELS > 0.5, 1 - _TAIL * share, outward)


def _by_hour(errors: FloatArray, hours: IntArray) -> FloatArray:
    """How much larger errors are at each hour than on the whole, (24,): of the hour and its neighbours, half way to 1,
    and nearer where it was seen less."""
    known = np.isfinite(errors)
    total = np.bincount(hours[known], weights=errors[known], minlength=HOURS)
    count = np.bincount(hours[known], minlength=HOURS).astype(float)
    total, count = (each + np.roll(each, 1) + np.roll(each, -1) for each in (total, count))
    if not total.sum():
        return np.ones(HOURS)
    mean, usual = total.sum() / count.sum(), count.mean()
    factors: FloatArray = (total / mean + usual) / (count + usual)
    return factors
