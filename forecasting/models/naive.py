"""Last value and seasonal naive: what every other candidate must beat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from forecasting.models.base import DAY, WEEK, Parameters, lacks_history
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class LastValue:
    """The newest observed rate, carried forward."""

    name: str = "last_value"

    def lacks(self, view: View) -> str | None:
        return None if np.isfinite(view.values).any() else "nothing was observed"

    def fit(self, view: View) -> Parameters:
        return {}

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        observed = view.values[np.isfinite(view.values)]
        return np.full(horizon, observed[-1])


@dataclass(frozen=True)
class SeasonalNaive:
    """The newest observed rate at the same time of the season: of day or of week."""

    name: str
    season: timedelta

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 2 * self.season)

    def fit(self, view: View) -> Parameters:
        return {}

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        season = view.steps_in(self.season)
        shape = np.full(season, np.nan)
        # Older seasons show through only where the newer ones were not observed.
        for back in range(len(view.values) // season, 0, -1):
            block = view.values[len(view.values) - back * season :][:season]
            shape = np.where(np.isfinite(block), block, shape)
        shape = np.where(np.isfinite(shape), shape, np.nanmedian(view.values))
        return np.resize(shape, horizon)


LAST_VALUE = LastValue()
SEASONAL_NAIVE_DAY = SeasonalNaive("seasonal_naive_day", DAY)
SEASONAL_NAIVE_WEEK = SeasonalNaive("seasonal_naive_week", WEEK)
