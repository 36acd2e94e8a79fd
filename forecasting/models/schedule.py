"""Classes that are on and off by the clock: what each time of the day, or of the week, has been like."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.units import format_duration
from forecasting.models.base import DAY, WEEK, IntArray, Parameters, lacks_history
from forecasting.series import FloatArray, View

SILENT_SHARE = 0.1
"""A class that was silent in fewer of its steps is no schedule."""

ON_SHARE = 0.02
"""Nor is one that was on in fewer: it is idle, and when it wakes no clock tells."""

AROUND = timedelta(minutes=30)
"""Rates so far from a time of the day or week count for it, by a Gaussian of half that width: runs do not start on the
minute."""

FADE = timedelta(days=14)
"""A rate so long ago counts 1/e as much as one now."""

DIGITS = 4
"""Significant digits that are kept: a week has two thousand steps."""

_LEVELS = np.asarray(QUANTILE_LEVELS)


@dataclass(frozen=True)
class Schedule:
    """Weighted quantiles of the rates at the same time of past seasons, of day or of week.

    A mixture of silence, with the share of seasons that were off then, and of the levels at which it was on: a point
    forecast with a margin would promise a fifth of a job to every hour of the day, and never all of it or nothing.
    """

    name: str
    season: timedelta

    def lacks(self, view: View) -> str | None:
        """Why it does not suit that history, or None where it does."""
        lacks = lacks_history(view, 3 * self.season)
        if lacks is not None:
            return lacks
        known = view.values[np.isfinite(view.values)]
        silent = float((known == 0).mean())
        if SILENT_SHARE <= silent <= 1 - ON_SHARE:
            return None
        return f"silent in {silent:.1%} of the steps; a schedule is in {SILENT_SHARE:.0%} to {1 - ON_SHARE:.0%}"

    def fit(self, view: View) -> Parameters:
        """The quantiles of each step of the season, counted from the epoch: (steps, levels); those of all rates where a
        step was never observed."""
        season, width = view.steps_in(self.season), max(AROUND // view.step, 1)
        values, first = view.values, view.first_index % season
        seasons = -(-(first + len(values)) // season)
        by_time = np.full(seasons * season + 2 * width, np.nan)
        by_time[width + first : width + first + len(values)] = values
        # [season, step, offset from it]
        near = np.lib.stride_tricks.sliding_window_view(by_time, 2 * width + 1).reshape(seasons, season, -1)
        age = (first + len(values) - np.arange(seasons * season).reshape(seasons, season)) * (view.step / FADE)
        weight = np.exp(-age)[..., None] * np.exp(-0.5 * (np.arange(-width, width + 1) / (width / 2)) ** 2)
        rates = near.transpose(1, 0, 2).reshape(season, -1)
        weights = np.where(np.isfinite(near), weight, 0.0).transpose(1, 0, 2).reshape(season, -1)
        table = _weighted_quantiles(rates, weights)
        unseen = ~weights.any(axis=1)
        if unseen.any():  # missing is not silent: what no season shows may be like any other time
            table[unseen] = _weighted_quantiles(rates.reshape(1, -1), weights.reshape(1, -1))
        return {"quantiles": [[float(f"{rate:.{DIGITS}g}") for rate in row] for row in table.tolist()]}

    def quantiles(self, parameters: Parameters, view: View, places: IntArray) -> FloatArray:
        """Quantiles in tokens/s of steps counted from the view's start, of any shape: (..., levels)."""
        table = np.asarray(parameters["quantiles"])
        if table.shape != (view.steps_in(self.season), len(_LEVELS)):
            raise ValueError(f"a table of shape {table.shape} for {format_duration(self.season)}")
        found: FloatArray = table[(view.first_index + places) % len(table)]
        return found


SCHEDULE_DAY = Schedule("schedule_day", DAY)
SCHEDULE_WEEK = Schedule("schedule_week", WEEK)
SCHEDULES = (SCHEDULE_DAY, SCHEDULE_WEEK)


def _weighted_quantiles(rates: FloatArray, weights: FloatArray) -> FloatArray:
    """[rows, levels]: the least rate that, with those under it, holds the share of the weight; means nothing where
    there is none."""
    order = np.argsort(rates, axis=1)  # NaN sorts last, with no weight
    rates = np.nan_to_num(np.take_along_axis(rates, order, axis=1))
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    total = reached[:, -1:]
    found = [(reached < level * total).sum(axis=1) for level in _LEVELS]
    places = np.minimum(np.stack(found, axis=1), rates.shape[1] - 1)
    result: FloatArray = np.take_along_axis(rates, places, axis=1)
    return result
