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
_EXACT_S = 240.0
"""How far from the same time of day a job that starts every day at that minute may be."""
_ANY_TIME = 0.02
_ANY_LOAD = 1e-6
_ANY_DAY = 0.05
"""Weight of any other time of day, load and day: they decide where nothing like this moment was seen."""
_BY_CLOCK, _WIDER = 7.0, 2.5
"""The second look: so much more for the very minute, and that much further around the time of day."""
_DAYS_APART, _SMOOTHED_S = 0.3, 600.0
"""How far apart on a log scale two days' hours may be, once smoothed over minutes, and count as alike."""
_RANGE, _BINS = 6.0, 2400
"""Growth is counted in bins of 0.5 %, from a factor of 1/400 to 400."""


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
    beginning, the load of the step before unless given; NaN where not known. [views, steps] are of rates over several
    times: the longer is steadier, the shorter sooner. The growth of a moment is (load + c) /
    (live + c), from what was live then to the greater of the two steps that begin `ahead_s` later, when a replica
    asked for then serves; c is a tenth of the mean load, so that growth out of next to nothing is a sum and not a
    factor. Of past moments, weighted by how like this one they were, quantiles are taken and applied to what is live:
    by their load (Gaussian on a log scale, of width `near`), by their time of day (Gaussian of width `around`; the
    very minute counts `same_minute` times more, for what starts by the clock), and by their age (`fade`).

    The result is the mean of three such looks at the past with each view: as `lookahead` says; more by the clock's
    minute, and the time of day at large; and with days counting by how alike to this one their last hours were
    (`alike`), which sees that today goes as some of them went. Means of forecasts that err apart err less than each.

    Where nothing of the past is like it, all of it counts. NaN in the first day and where no live load is known.
    Nothing after the beginning of a step is looked at. Days are 24 hours, so that for some days after a clock change
    the time of day is an hour off.
    """
    loads, views = _seen(load, live)
    positions: Ints = np.asarray(at, dtype=np.int64)
    steps, ahead, day = len(loads), int(np.ceil(ahead_s / step_s)), round(_DAY_S / step_s)
    looks = [_by_lag(steps, step_s, day, one) for one in (lookahead, _by_the_clock(lookahead))]
    smoothed = trailing_mean(loads, max(round(_SMOOTHED_S / step_s), 1))[:-1]
    days_ago = (np.arange(steps) + day // 2) // day
    later = np.full(steps, np.nan)
    if steps > ahead + 1:
        later[: steps - ahead - 1] = np.maximum(loads[ahead:-1], loads[ahead + 1 :])
    found = np.full((len(levels), len(positions)), np.nan)
    for begin in np.unique(positions // day).tolist():
        # The offset follows the load from day to day.
        base = _offset(loads, begin * day)
        if not base > 0:
            continue
        places = np.flatnonzero(positions // day == begin)
        alike = _alike(np.log(smoothed + base), positions[places], day, lookahead, step_s)
        logs = np.log(views + base)
        grown = np.log(later + base) - logs
        bins, known = _bins(grown), ~np.isnan(grown)
        for place, by_day in zip(places.tolist(), alike, strict=True):
            position = int(positions[place])
            past, lags = slice(0, position - ahead - 1), slice(position, ahead + 1, -1)
            by_lag = np.stack([looks[0][lags], looks[1][lags], looks[0][lags] * by_day[days_ago[lags]]])
            expected = []
            for view in np.flatnonzero(~np.isnan(logs[:, position])).tolist():
                like = np.exp(-0.5 * ((logs[view, past] - logs[view, position]) / lookahead.near) ** 2) + _ANY_LOAD
                like[~known[view, past]] = 0.0
                grown_by = [_quantiles(bins[view, past], one * like, levels) for one in by_lag]
                expected.append((views[view, position] + base) * np.exp(grown_by) - base)
            if expected:
                found[:, place] = np.maximum(expected, 0.0).mean(axis=(0, 1))
    return found


def trailing_mean(values: Floats, width: int) -> Floats:
    """[steps + 1] the mean of what is known of so many steps before the beginning of each, and before the end of the
    last; NaN where none is."""
    known = ~np.isnan(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(one)]) for one in (np.where(known, values, 0.0), known))
    edges = np.arange(len(sums))
    since = np.maximum(edges - width, 0)
    count = counts[edges] - counts[since]
    mean: Floats = np.where(count > 0, (sums[edges] - sums[since]) / np.maximum(count, 1), np.nan)
    return mean


def _seen(load: npt.ArrayLike, live: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """The loads [steps], and the views [views, steps]."""
    loads = np.asarray(load, dtype=np.float64)
    before = np.concatenate([[np.nan], loads[:-1]]) if live is None else live
    return loads, np.atleast_2d(np.asarray(before, dtype=np.float64))


def _offset(loads: Floats, begin: int) -> float:
    """A share of the mean load before a day's beginning; NaN where none is known."""
    known = loads[:begin][~np.isnan(loads[:begin])]
    return float(_OFFSET * known.mean()) if known.size else float("nan")


def _by_the_clock(lookahead: Lookahead) -> Lookahead:
    return lookahead.model_copy(
        update={"same_minute": _BY_CLOCK * lookahead.same_minute, "around": _WIDER * lookahead.around}
    )


def _by_lag(steps: int, step_s: float, day: int, lookahead: Lookahead) -> Floats:
    """[steps] weight of a moment so many steps ago, for its age and its time of day."""
    lag = np.arange(steps)
    apart_s = np.minimum(lag % day, day - lag % day) * step_s
    of_day = np.exp(-0.5 * (apart_s / lookahead.around.total_seconds()) ** 2) + _ANY_TIME
    same_minute = lookahead.same_minute * np.exp(-0.5 * (apart_s / _EXACT_S) ** 2)
    weight: Floats = np.exp(-lag * step_s / lookahead.fade.total_seconds()) * (of_day + same_minute)
    return weight


def _alike(logs: Floats, positions: Ints, day: int, lookahead: Lookahead, step_s: float) -> Floats:
    """[positions, days ago] weight of the moments around so many days ago, by the mean distance of the hours before
    from these. `logs` [steps] are known at each step's beginning."""
    width = max(round(lookahead.alike.total_seconds() / step_s), 1)
    first, end = max(int(positions.min()) - width, 0), int(positions.max()) + 1
    days = end // day + 2
    padded = np.concatenate([np.full(days * day, np.nan), logs])
    weights = np.full((len(positions), days), 1.0 + _ANY_DAY)
    for ago in range(1, days):
        begin = (days - ago) * day
        apart = np.abs(logs[first:end] - padded[begin + first : begin + end])
        far = np.nan_to_num(trailing_mean(apart, width)[positions + 1 - first], nan=np.inf)
        weights[:, ago] = np.exp(-0.5 * (far / _DAYS_APART) ** 2) + _ANY_DAY
    return weights


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
