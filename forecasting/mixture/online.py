"""Quantiles around many point forecasts, steered by the coverage they achieved, and weighted by their trailing loss.

All arrays are numpy, with one row an origin; the series of a batch are advanced together. The weights are those of
exponentially weighted experts (Cesa-Bianchi and Lugosi, 2006) on losses relative to the best; the offsets and the last
correction follow each miss and each cover as adaptive conformal inference does (Gibbs and Candès, 2021; Angelopoulos et
al., 2023), in units of a scale that follows the expert's recent errors.

Silence that was foretold teaches nothing. A rate of exactly 0 under a bound of next to 0 is where all levels are at
once, and counts as covered by each with its own probability, as in the randomised integral transform of a discrete
distribution (Czado, Gneiting and Held, 2009): on the mean that moves no offset. Otherwise the twenty hours in which a
nightly job does not run would wear away the margins of the four in which it does, and choose the experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from floorcast.columns import QUANTILE_LEVELS
from forecasting.models.logscale import CEILING
from forecasting.series import FloatArray

BoolArray = npt.NDArray[np.bool_]

SPREADS = ("recent", "level")
"""Units of an expert's offsets: its recent error; or the geometric mean of its error and its forecast, since errors
grow with the rate. An expert that gives its own quantiles has them as they are in place of the second."""

SHARPNESS = 8.0
"""Weights are exp(-SHARPNESS (trailing loss / least trailing loss - 1))."""

LOSS_HALF_LIFE = timedelta(hours=12)
UNIT_HALF_LIFE = timedelta(hours=4)
RESIDUAL_HALF_LIFE = timedelta(days=1)
SHORT_ERROR, MIDDLE_ERROR, LONG_ERROR = timedelta(hours=1), timedelta(hours=4), timedelta(hours=8)
RATE = 0.015
CORRECTION_RATE = 0.1
LEAST_ERROR, LEAST_LEVEL = 0.02, 0.1
"""Added to errors and forecasts in a scale, as shares of the series' mean: a quiet hour must not promise quiet."""

MOST_SURPRISE = 20.0
"""A residual counts for the spread as no more than this many spreads, and one unit."""

LEAST_UNIT = 1e-3
"""Where the mixture loses nothing, losses are counted in this share of the least error."""

LEAST_RATE = 1e-6
"""Tokens/s that an error counts as at least: an idle series must not divide by nothing."""

WARM_UP = timedelta(days=2)
"""The first residuals, from which the offsets start."""


@dataclass(frozen=True)
class Outcome:
    """`quantiles` (origins, series, levels) in tokens/s. At the last origin: `weights` and `offsets`
    (series, members, levels), `scales` (series, members) and `correction` (series, levels), both in tokens/s; a member
    is an expert with a spread, experts outermost. Over the origins from `judged_from` on whose target is known:
    `earned` (series, members, levels) the mean weights, `losses` (series, members, levels) and `mixture_losses`
    (series, levels) the mean pinball losses, all NaN where there was none."""

    quantiles: FloatArray
    weights: FloatArray
    offsets: FloatArray
    scales: FloatArray
    correction: FloatArray
    earned: FloatArray
    losses: FloatArray
    mixture_losses: FloatArray


@dataclass(frozen=True)
class Input:
    """What came in, one row an origin, in tokens/s: `points` (origins, series, experts); `direct` (origins, series, the
    last experts, levels) the quantiles of those that give their own, whose points are their medians; `actual`, and of
    the rates before the `mean` and the `highest`, (origins, series). `usable` is (series, experts). What came after
    origin t, `actual[t]`, is looked at from origin t + `delay` on; NaN is not learned from."""

    points: FloatArray
    direct: FloatArray
    actual: FloatArray
    mean: FloatArray
    highest: FloatArray
    usable: BoolArray
    delay: int
    step: timedelta


@dataclass(frozen=True)
class _Issued:
    """One origin's: (series, members), with levels last where they differ by level."""

    scale: FloatArray
    bound: FloatArray
    weights: FloatArray
    mixed: FloatArray
    mixed_scale: FloatArray
    quantiles: FloatArray


def advance(given: Input, *, judged_from: int) -> Outcome:
    """Go through the origins in order, learning and forecasting. Those from `judged_from` on are judged."""
    state = _State(given)
    issued: list[_Issued] = []
    earned, losses = np.zeros_like(state.trailing), np.zeros_like(state.trailing)
    mixture_losses = np.zeros_like(state.unit)
    judged = np.zeros(len(state.unit))
    for origin in range(len(given.points)):
        told = origin - given.delay
        if told >= 0 and (known := np.isfinite(given.actual[told])).any():
            loss, mixture_loss = state.learn(told, known, issued[told])
            if told >= judged_from:
                learned = known[:, None]
                earned += issued[told].weights * learned[..., None]
                losses += loss * learned[..., None]
                mixture_losses += mixture_loss * learned
                judged += known
        issued.append(state.issue(origin))
        if told >= 0:
            issued[told] = replace(issued[told], bound=_SEEN, weights=_SEEN)
    judged = np.where(judged > 0, judged, np.nan)[:, None]
    return Outcome(
        quantiles=np.stack([one.quantiles for one in issued]),
        weights=issued[-1].weights,
        offsets=state.offset,
        scales=issued[-1].scale,
        correction=state.correction * issued[-1].mixed_scale,
        earned=earned / judged[..., None],
        losses=losses / judged[..., None],
        mixture_losses=mixture_losses / judged,
    )


_SEEN = np.zeros(0)
"""Stands in for what was judged already: a week of bounds would take a gigabyte."""


class _State:
    """What is learned as the origins pass."""

    def __init__(self, given: Input) -> None:
        self._given = given
        self._least = np.maximum(LEAST_ERROR * given.mean, LEAST_RATE)[..., None]
        self._members = np.repeat(given.usable, len(SPREADS), axis=1)[..., None]
        rows = _warm_up(given)
        points, actual = given.points[rows], given.actual[rows]
        self._short = _first_errors(points, actual)
        self._middle, self._long = self._short.copy(), self._short.copy()
        own = np.arange(self._members.shape[1]) >= len(SPREADS) * (given.points.shape[2] - given.direct.shape[2])
        steered = ~own | (np.arange(len(own)) % len(SPREADS) == 0)
        self._rate = RATE * steered[:, None]
        self.offset = _first_offsets(_by_member(points, given.direct[rows]), actual, self._scale(0)) * steered[:, None]
        self._spread = np.abs(self.offset).mean(axis=2)
        series = len(given.usable)
        self.unit = np.zeros((series, len(_LEVELS)))
        self.correction = np.zeros_like(self.unit)
        self._correction_spread = np.zeros(series)
        self.trailing = np.ones_like(self.offset)
        self._seen = np.zeros(series)

    def issue(self, origin: int) -> _Issued:
        scale = self._scale(origin)
        bound = np.maximum(self._starts(origin) + self.offset * scale[..., None], 0.0)
        best = np.where(self._members, self.trailing, np.inf).min(axis=1, keepdims=True)
        worse_by = self.trailing / np.maximum(best, LEAST_UNIT) - 1
        weights = np.exp(-SHARPNESS * np.minimum(worse_by, 1e3)) * self._members
        weights /= weights.sum(axis=1, keepdims=True)
        mixed, mixed_scale = (weights * bound).sum(axis=1), (weights * scale[..., None]).sum(axis=1)
        ceiling = CEILING * self._given.highest[origin][:, None]
        quantiles = np.sort(np.clip(mixed + self.correction * mixed_scale, 0.0, ceiling), axis=1)
        return _Issued(scale, bound, weights, mixed, mixed_scale, quantiles)

    def learn(self, origin: int, known: BoolArray, then: _Issued) -> tuple[FloatArray, FloatArray]:
        """Learn what came after an origin, where `known` (series,). Returns its pinball losses: of the members
        (series, members, levels), and of the mixture (series, levels)."""
        actual = np.where(known, self._given.actual[origin], 0.0)[:, None]
        learned = known[:, None]
        error = np.abs(actual - self._given.points[origin])
        self._short += self._fade(SHORT_ERROR) * learned * (error - self._short)
        self._middle += self._fade(MIDDLE_ERROR) * learned * (error - self._middle)
        self._long += self._fade(LONG_ERROR) * learned * (error - self._long)

        residual = (actual[..., None] - self._starts(origin)) / then.scale[..., None]
        surprise = _surprise(residual[..., _MEDIAN], self._spread)
        self._spread += self._fade(RESIDUAL_HALF_LIFE) * learned * (surprise - self._spread)
        teaches = learned[..., None] & ~_foretold_silence(actual[..., None], then.bound, self._least[origin][..., None])
        pace = self._rate * teaches * np.maximum(self._spread[..., None], np.abs(self.offset))
        self.offset += pace * ((residual > self.offset) - _TAIL)

        self._seen += known
        first = 1 / np.maximum(self._seen, 1)[:, None]  # what comes first counts as its plain mean
        off = (actual - then.mixed) / then.mixed_scale
        ease = np.maximum(self._fade(RESIDUAL_HALF_LIFE), first[:, 0]) * known
        self._correction_spread += ease * (
            _surprise(off[:, _MEDIAN], self._correction_spread) - self._correction_spread
        )
        teaches = learned & ~_foretold_silence(actual, then.quantiles, self._least[origin])
        pace = CORRECTION_RATE * teaches * self._correction_spread[:, None]
        self.correction += pace * ((off > self.correction) - _TAIL)

        loss = _pinball(actual[..., None], then.bound)
        mixture_loss = _pinball(actual, then.quantiles)
        self.unit += np.maximum(self._fade(UNIT_HALF_LIFE), first) * teaches * (mixture_loss - self.unit)
        # In units of what the mixture loses these hours, a burst weighs no more than a quiet hour.
        relative = loss / np.maximum(self.unit, LEAST_UNIT * self._least[origin])[:, None]
        ease = np.maximum(self._fade(LOSS_HALF_LIFE), first) * teaches
        self.trailing += ease[:, None] * (relative - self.trailing)
        return loss, mixture_loss

    def _starts(self, origin: int) -> FloatArray:
        return _by_member(self._given.points[origin], self._given.direct[origin])

    def _scale(self, origin: int) -> FloatArray:
        least, mean = self._least[origin], self._given.mean[origin][:, None]
        recent = np.maximum(self._short, self._long) + least
        level = np.sqrt((self._middle + least) * (self._given.points[origin] + LEAST_LEVEL * mean + least))
        return np.stack([recent, level], axis=2).reshape(len(recent), -1)

    def _fade(self, half_life: timedelta) -> float:
        faded: float = 0.5 ** (self._given.step / half_life)
        return 1.0 - faded


_LEVELS = np.asarray(QUANTILE_LEVELS)
_TAIL = 1.0 - _LEVELS
_MEDIAN = QUANTILE_LEVELS.index(0.5)


def _pinball(actual: FloatArray, forecast: FloatArray) -> FloatArray:
    """Losses at the levels, which are the last axis of `forecast`."""
    error = actual - forecast
    losses: FloatArray = np.maximum(_LEVELS * error, -_TAIL * error)
    return losses


def _foretold_silence(actual: FloatArray, bound: FloatArray, least: FloatArray) -> BoolArray:
    result: BoolArray = (actual <= 0) & (bound <= least)
    return result


def _surprise(residual: FloatArray, spread: FloatArray) -> FloatArray:
    """Absolute residuals as far as they teach: a class that wakes is off by thousands of its idle errors at once, and
    its errors follow within the hour, but not its spread, which is slow."""
    return np.minimum(np.abs(residual), MOST_SURPRISE * spread + 1.0)


def _by_member(points: FloatArray, direct: FloatArray) -> FloatArray:
    """What offsets are added to: (..., members, levels) of points (..., experts) and direct (..., experts, levels)."""
    base = np.repeat(points[..., None], len(_LEVELS), axis=-1)
    base[..., base.shape[-2] - direct.shape[-2] :, :] = direct
    return np.repeat(base, len(SPREADS), axis=-2)


def _warm_up(given: Input) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and series of each series' first origins, from the first on whose target is known."""
    count = min(WARM_UP // given.step, len(given.points))
    begins = np.minimum(np.isfinite(given.actual).argmax(axis=0), len(given.points) - count)
    return begins + np.arange(count)[:, None], np.arange(len(begins))


def _first_errors(points: FloatArray, actual: FloatArray) -> FloatArray:
    """Mean absolute errors, (series, experts); 0 where nothing came."""
    errors = np.abs(actual[:, :, None] - points)
    seen = np.isfinite(errors)
    mean: FloatArray = np.where(seen, errors, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return mean


def _first_offsets(base: FloatArray, actual: FloatArray, scale: FloatArray) -> FloatArray:
    """Quantiles of residuals from what members start from, (series, members, levels): the ceil((n + 1) q)-th smallest
    of n."""
    residuals = np.sort((actual[..., None, None] - base) / scale[..., None], axis=0)  # NaN sorts last
    seen = np.isfinite(residuals[..., 0]).sum(axis=0)
    ranks = np.clip(np.ceil((seen[..., None] + 1) * _LEVELS), 1, np.maximum(seen, 1)[..., None]).astype(int) - 1
    start: FloatArray = np.nan_to_num(np.take_along_axis(residuals, ranks[None], axis=0)[0])
    return start
