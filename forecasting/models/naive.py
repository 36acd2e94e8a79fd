"""Last value, averages and their seasonal forms: what every other candidate must beat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from forecasting.models.base import (
    DAY,
    WEEK,
    IntArray,
    Parameters,
    ahead_of,
    carried,
    lacks_everything,
    lacks_history,
)
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class LastValue:
    """The newest observed rate, carried forward."""

    name: str = "last_value"

    def lacks(self, view: View) -> str | None:
        return lacks_everything(view)

    def fit(self, view: View) -> Parameters:
        return {}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        return np.repeat(carried(view.values)[origins - 1, None], horizon, axis=1)


@dataclass(frozen=True)
class WindowAverage:
    """The mean rate of the newest `window`, carried forward."""

    name: str
    window: timedelta

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, self.window)

    def fit(self, view: View) -> Parameters:
        return {}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        total = np.concatenate([[0.0], np.cumsum(carried(view.values))])
        begins = np.maximum(origins - view.steps_in(self.window), 0)
        return np.repeat(((total[origins] - total[begins]) / (origins - begins))[:, None], horizon, axis=1)


@dataclass(frozen=True)
class SeasonalAverage:
    """The mean rate at the same time of the last `seasons` seasons, of day or of week; with one, seasonal naive.

    A step observed in none of them takes the newest rate at that time before.
    """

    name: str
    season: timedelta
    seasons: int = 1

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, (1 + self.seasons) * self.season)

    def fit(self, view: View) -> Parameters:
        return {}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        season = view.steps_in(self.season)
        by_time = np.full(-(-len(view.values) // season) * season, np.nan)
        by_time[: len(view.values)] = view.values
        known = carried(by_time.reshape(-1, season)).reshape(-1)
        seen = np.isfinite(by_time)
        value, count = np.where(seen, by_time, 0.0), seen.astype(float)
        # The newest season that was over at the origin: a long horizon looks at it again.
        places = ahead_of(origins, min(season, horizon)) - season
        total = sum(value[places - back * season] for back in range(self.seasons))
        counts = sum(count[places - back * season] for back in range(self.seasons))
        shape = np.where(counts > 0, total / np.maximum(counts, 1), known[places])
        return shape[:, np.arange(horizon) % season]


LAST_VALUE = LastValue()
DAY_AVERAGE = WindowAverage("day_average", DAY)
SEASONAL_NAIVE_DAY = SeasonalAverage("seasonal_naive_day", DAY)
SEASONAL_NAIVE_WEEK = SeasonalAverage("seasonal_naive_week", WEEK)
SEASONAL_AVERAGE_DAY = SeasonalAverage("seasonal_average_day", DAY, 3)
SEASONAL_AVERAGE_WEEK = SeasonalAverage("seasonal_average_week", WEEK, 2)
