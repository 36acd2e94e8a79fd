"""How much demand grows until a replica asked for now would serve: what `lookahead` multiplies the live rate by."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from floorcast.overlay import Lookahead
from scaling.capacity import Floats, Ints

_DAY_S = 86_400.0
_QUIET = 0.05
"""A rate under this share of the mean before it counts as that: growth out of next to nothing says nothing."""
_CHUNK = 4_096


def growth(rates: npt.ArrayLike, *, at: npt.ArrayLike, step_s: float, ahead_s: float, lookahead: Lookahead) -> Floats:
    """The growth that past days and the last hours let expect, for each position `at`.

    `rates` [steps] is a rate per step, or a load, NaN where not observed; as smooth as the live rate that the growth
    multiplies, or noise passes for growth. For a position the result is a quantile of
    (maximum from a step to `ahead_s` after it) / (rate in the step), of the steps within `around` of the same time of
    day on the `days` before, and of those of the `recent` past, the two blended by `recent_weight` on a log scale; one
    alone where the other has none, NaN where neither has any. Nothing after a position is looked at: a step counts
    once all that its growth is taken from is past.

    Result [positions]. Days are 24 hours, so that for `around` after a clock change the time of day is an hour off.
    """
    values = np.asarray(rates, dtype=np.float64)
    positions: Ints = np.asarray(at, dtype=np.int64)
    ahead = math.ceil(ahead_s / step_s)
    around = round(lookahead.around.total_seconds() / step_s)
    recent = max(round(lookahead.recent.total_seconds() / step_s), 1)
    day = round(_DAY_S / step_s)
    daily = (-day * np.arange(1, lookahead.days + 1)[:, None] + np.arange(-around, around + 1)).ravel()
    daily = daily[daily <= -ahead]
    lately = -ahead - np.arange(recent)
    grown = np.full(len(positions), np.nan)
    ratios = np.log(_ratios(values, ahead))
    for start in range(0, len(positions), _CHUNK):
        some = slice(start, start + _CHUNK)
        by_day = _quantile(_picked(ratios, positions[some], daily), lookahead.quantile)
        by_hour = _quantile(_picked(ratios, positions[some], lately), lookahead.quantile)
        weight = lookahead.recent_weight
        both = (1 - weight) * by_day + weight * by_hour
        grown[some] = np.where(np.isnan(by_day), by_hour, np.where(np.isnan(by_hour), by_day, both))
    factors: Floats = np.exp(grown)
    return factors


def forecast_growth(*, now: npt.ArrayLike, ahead: npt.ArrayLike) -> Floats:
    """The growth that a forecast sees: (its maximum ahead) / (what it says of now), at least 1.

    `now` [...] is its median of the running step, `ahead` [..., steps] a quantile of each step until a replica asked
    for now would serve. Only its shape counts: the level is the live rate's. NaN where it says nothing.
    """
    base, most = np.asarray(now, dtype=np.float64), np.asarray(ahead, dtype=np.float64).max(axis=-1)
    grown = np.divide(most, base, out=np.full(base.shape, np.nan), where=base > 0)
    at_least_one: Floats = np.maximum(grown, 1.0)
    return at_least_one


def _ratios(values: Floats, ahead: int) -> Floats:
    """[steps]: growth from each step to the most of the `ahead` steps after it and itself, NaN where one is unknown."""
    ratios = np.full(len(values), np.nan)
    if len(values) <= ahead:
        return ratios
    known = ~np.isnan(values)
    # Of what came before only, so that later data change no earlier ratio.
    mean = np.cumsum(np.where(known, values, 0)) / np.maximum(np.cumsum(known), 1)
    base = np.maximum(values, _QUIET * mean)
    most = np.lib.stride_tricks.sliding_window_view(values, ahead + 1).max(axis=1)
    np.divide(
        np.maximum(most, base[: len(most)]), base[: len(most)], out=ratios[: len(most)], where=base[: len(most)] > 0
    )
    return ratios


def _picked(ratios: Floats, positions: Ints, offsets: Ints) -> Floats:
    """[positions, offsets], NaN before the beginning."""
    index = positions[:, None] + offsets
    return np.where(index >= 0, ratios[np.maximum(index, 0)], np.nan)


def _quantile(sample: Floats, level: float) -> Floats:
    """[positions]: the smallest of a row that a share `level` of its known values does not exceed."""
    ordered = np.sort(sample, axis=1)
    count = sample.shape[1] - np.isnan(sample).sum(axis=1)
    rank = np.maximum(np.ceil(level * count - 1e-9).astype(np.int64) - 1, 0)
    found: Floats = ordered[np.arange(len(sample)), rank]
    return found
