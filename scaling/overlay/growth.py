"""How much load grows until a replica asked for now serves, at moments of the past that were like this one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from floorcast.overlay import Lookahead
from scaling.capacity import Floats, Ints

_DAY_S = 86_400.0
_OFFSET = 0.1
"""Share of the mean load added before taking logarithms: next to nothing, growth is a sum and not a factor."""
_LEAST_LOAD = 0.5
"""Share of that offset below which a live load counts as so much: the factor is applied to a rate measured later, and
out of nothing it would be without bound."""
_EXACT_S = 240.0
"""How far from the same time of day a job that starts every day at that minute may be."""
_ANY_TIME = 0.02
_ANY_LOAD = 1e-6
"""Weight of any other time of day, and of any other load: they decide where nothing like this moment was seen."""
_RANGE, _BINS = 6.0, 2400
"""Growth is counted in bins of 0.5 %, from a factor of 1/400 to 400."""


def growth(
    load: npt.ArrayLike,
    *,
    at: npt.ArrayLike,
    step_s: float,
    ahead_s: float,
    lookahead: Lookahead,
    live: npt.ArrayLike | None = None,
) -> Floats:
    """What the live load is to be multiplied by, at the beginning of each step `at`, to be ready for what comes:
    `loads_ahead` at the quantile of `lookahead`, [positions], over what was live. A live load of less than half the
    offset counts as that half, so that the factor stays bounded."""
    loads, seen = _seen(load, live)
    levels = (lookahead.quantile,)
    made = loads_ahead(loads, at=at, step_s=step_s, ahead_s=ahead_s, lookahead=lookahead, levels=levels, live=seen)
    positions: Ints = np.asarray(at, dtype=np.int64)
    day = round(_DAY_S / step_s)
    least = np.array([_LEAST_LOAD * _offset(loads, begin) for begin in (positions // day * day).tolist()])
    factors: Floats = made[0] / np.maximum(seen[positions], least)
    return factors


def loads_ahead(
    load: npt.ArrayLike,
    *,
    at: npt.ArrayLike,
    step_s: float,
    ahead_s: float,
    lookahead: Lookahead,
    levels: Sequence[float],
    live: npt.ArrayLike | None = None,
) -> Floats:
    """The load that a replica asked for now is to serve, at some quantiles in rising order, [levels, positions].

    `load` [steps] is what each step took, in replicas or any other unit, `live` [steps] what rates said at its
    beginning, the load of the step before unless given; NaN where not known. The growth of a moment is (load + c) /
    (live + c), from what was live then to the greater of the two steps that begin `ahead_s` later, when a replica
    asked for then serves; c is a tenth of the mean load, so that growth out of next to nothing is a sum and not a
    factor. Of past moments, weighted by how like this one they were, quantiles are taken and applied to what is live:
    by their load (Gaussian on a log scale, of width `near`), by their time of day (Gaussian of width `around`; the
    very minute counts `same_minute` times more, for what starts by the clock), and by their age (`fade`).

    Where nothing of the past is like it, all of it counts. NaN in the first day and where the live load is unknown.
    Nothing after the beginning of a step is looked at. Days are 24 hours, so that for some days after a clock change
    the time of day is an hour off.
    """
    loads, seen = _seen(load, live)
    positions: Ints = np.asarray(at, dtype=np.int64)
    steps, ahead, day = len(loads), int(np.ceil(ahead_s / step_s)), round(_DAY_S / step_s)
    by_lag = _by_lag(steps, step_s, day, lookahead)
    later = np.full(steps, np.nan)
    if steps > ahead + 1:
        later[: steps - ahead - 1] = np.maximum(loads[ahead:-1], loads[ahead + 1 :])
    found = np.full((len(levels), len(positions)), np.nan)
    for begin in np.unique(positions // day).tolist():
        # The offset follows the load from day to day.
        base = _offset(loads, begin * day)
        if not base > 0:
            continue
        logs = np.log(seen + base)
        grown = np.log(later + base) - logs
        bins, known = _bins(grown), ~np.isnan(grown)
        for place in np.flatnonzero(positions // day == begin).tolist():
            position = int(positions[place])
            past = slice(0, position - ahead - 1)
            like = np.exp(-0.5 * ((logs[past] - logs[position]) / lookahead.near) ** 2) + _ANY_LOAD
            weight = np.where(known[past], by_lag[position : ahead + 1 : -1] * like, 0.0)
            grown_by = np.exp(_quantiles(bins[past], weight, levels))
            found[:, place] = np.maximum((seen[position] + base) * grown_by - base, 0.0)
    return found


def _seen(load: npt.ArrayLike, live: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    loads = np.asarray(load, dtype=np.float64)
    return loads, np.concatenate([[np.nan], loads[:-1]]) if live is None else np.asarray(live, dtype=np.float64)


def _offset(loads: Floats, begin: int) -> float:
    """A share of the mean load before a day's beginning; NaN before the second day."""
    return float(_OFFSET * np.nanmean(loads[:begin])) if begin else float("nan")


def _by_lag(steps: int, step_s: float, day: int, lookahead: Lookahead) -> Floats:
    """[steps] weight of a moment so many steps ago, for its age and its time of day."""
    lag = np.arange(steps)
    apart_s = np.minimum(lag % day, day - lag % day) * step_s
    of_day = np.exp(-0.5 * (apart_s / lookahead.around.total_seconds()) ** 2) + _ANY_TIME
    same_minute = lookahead.same_minute * np.exp(-0.5 * (apart_s / _EXACT_S) ** 2)
    weight: Floats = np.exp(-lag * step_s / lookahead.fade.total_seconds()) * (of_day + same_minute)
    return weight


def _bins(growths: Floats) -> Ints:
    places = (np.nan_to_num(growths) + _RANGE) * (_BINS / (2 * _RANGE))
    return np.clip(places, 0, _BINS - 1).astype(np.int64)


def _quantiles(bins: Ints, weight: Floats, levels: Sequence[float]) -> Floats:
    """The middles of the bins in which the weights reach a share of each level; NaN without any."""
    reached = np.cumsum(np.bincount(bins, weights=weight, minlength=_BINS))
    if not reached[-1] > 0:
        return np.full(len(levels), np.nan)
    places = np.searchsorted(reached, np.asarray(levels) * reached[-1])
    middles: Floats = (places + 0.5) * (2 * _RANGE / _BINS) - _RANGE
    return middles
