"""Quantiles of the greatest rate within the lead window, from moments of the past that were like this one.

Many clients start by the clock, so that what a class did at this very minute of past days, at a load like the one now,
tells more of how far it may rise than its recent errors do.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import numpy.typing as npt

from floorcast.columns import QUANTILE_LEVELS
from forecasting.mixture.past import Past, greatest
from forecasting.models.base import DAY
from forecasting.models.logscale import CEILING
from forecasting.series import FloatArray

IntArray = npt.NDArray[np.int64]

NEAR = 0.15
"""Width of the Gaussian by which moments count for their load, on a log scale."""

AROUND, FARTHEST = timedelta(minutes=90), timedelta(hours=1)
"""Width of that for the time of day, and from where on a moment does not count."""

SAME_MINUTE = 3.0
"""How much more a moment counts that is whole days ago."""

FADE, OLDEST = timedelta(days=6), 10
"""A moment so long ago counts 1/e as much as one now; those more than so many days ago do not count."""

OFFSET = 0.1
"""Share of the mean rate added before taking logarithms: next to nothing, growth is a sum and not a factor."""

ANY_LOAD = 1e-6
"""What a moment counts whose load is nothing like this one, so that there is something to go by."""

_LEVELS = np.asarray(QUANTILE_LEVELS)
_LEAST_OFFSET = 1e-6


def like_moments(past: Past, every: int) -> FloatArray:
    """Quantiles in tokens/s at every `every`-th origin, the last one included: (those origins, levels).

    The growth of a moment is (greatest rate within its lead window + c) / (rate before it + c), with c a share of the
    mean. Its quantiles over past moments, each weighted by its age, its time of day and its load, times the newest
    rate, at most `CEILING` times the greatest seen. Where no moment within an hour of the time of day was observed
    whole, the newest rate at all levels; NaN before the first.
    """
    values = past.view.values
    origins = np.arange(past.first + (past.origins - 1) % every, len(values) + 1, every)
    lags, weights = _lags(past, every)
    filled = np.concatenate([[np.nan], past.filled])
    ahead = greatest(values, past.lead_steps)
    quantiles = np.empty((len(origins), len(_LEVELS)))
    days = (past.view.first_index + origins) // max(past.view.steps_in(DAY), 1)
    for day in np.unique(days):
        of_day = days == day
        rows = origins[of_day]
        # The offset is that of the day, by UTC, so that an origin's forecast does not depend on which others are made.
        before = values[: max(int(day) * past.view.steps_in(DAY) - past.view.first_index, 0)]
        offset = max(OFFSET * float(np.nanmean(before)) if np.isfinite(before).any() else 0.0, _LEAST_OFFSET)
        first = int(rows[-1] % every)
        logs = np.log(filled[first : rows[-1] + 1 : every] + offset)
        grown = np.log(ahead[first : rows[-1] + 1 : every] + offset) - logs
        places = (rows - first) // every
        grown_by = _weighted_quantiles(grown, logs, places, lags, weights)
        quantiles[of_day] = np.exp(logs[places][:, None] + np.nan_to_num(grown_by)) - offset
    return np.clip(quantiles, 0.0, CEILING * past.highest()[origins - past.first, None])


def _lags(past: Past, every: int) -> tuple[IntArray, FloatArray]:
    """How long ago moments are, in multiples of `every` steps, and what they count for their age and time of day."""
    step = past.view.step * every
    day, wide = max(round(DAY / step), 1), FARTHEST // step
    days = min(len(past.view.values) // past.view.steps_in(DAY) + 1, OLDEST)
    apart = np.arange(-wide, wide + 1)
    lags = (day * np.arange(days + 1)[:, None] + apart).ravel()
    apart = np.broadcast_to(apart, (days + 1, len(apart))).ravel()
    whole = lags * every >= past.lead_steps
    lags, apart = lags[whole], apart[whole]
    weights = np.exp(-lags * (step / FADE)) * (
        np.exp(-0.5 * (apart * (step / AROUND)) ** 2) + SAME_MINUTE * (apart == 0)
    )
    return lags, weights


def _weighted_quantiles(
    grown: FloatArray, logs: FloatArray, places: IntArray, lags: IntArray, weights: FloatArray
) -> FloatArray:
    """[places, levels]: the least growth whose moments and those of less hold a share of each level."""
    known = np.isfinite(grown) & np.isfinite(logs)
    count = int(known.sum())
    order = np.argsort(np.where(known, grown, np.inf))[:count]
    rank = np.full(1 + len(grown), count)
    rank[1 + order] = np.arange(count)
    # Place 0 is of moments before the first; they and those not known come last, and count nothing.
    moments = np.maximum(1 + places[:, None] - lags, 0)
    apart = (np.concatenate([[0.0], logs])[moments] - logs[places][:, None]) / NEAR
    ranks = rank[moments]
    weight = np.where(ranks < count, weights * (np.exp(-0.5 * apart**2) + ANY_LOAD), 0.0)
    rising = np.argsort(ranks, axis=1)
    reached = np.cumsum(np.take_along_axis(weight, rising, axis=1), axis=1)
    result = np.full((len(places), len(_LEVELS)), np.nan)
    some = np.flatnonzero(reached[:, -1] > 0)
    for level, share in enumerate(_LEVELS):
        wanted = (reached[some] < share * reached[some, -1:]).sum(axis=1)
        found = np.take_along_axis(ranks[some], np.take_along_axis(rising[some], wanted[:, None], axis=1), axis=1)
        result[some, level] = grown[order[found[:, 0]]]
    return result
