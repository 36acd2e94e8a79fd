"""MSTL's seasonal shape with AutoARIMA on what is left, on a log scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecasting.models.arma import Arma, search
from forecasting.models.base import IntArray, Parameters, ahead_of, carried, lacks_history
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.models.seasonal import DAILY, WEEKLY, Seasons
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class MstlArima:
    """Where the rest returns to its mean, so does the forecast: ETS would carry the newest level to the horizon.

    A missing step carries the newest deviation from the shape.
    """

    name: str
    seasons: Seasons

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 2 * self.seasons.lengths[-1])

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.seasons.history))
        offset = log_offset(recent.values)
        shape, rest = self.seasons.fit(recent, offset)
        order, coefficients = search(rest)
        return {"offset": offset, "shape": shape.tolist(), "order": order, "coefficients": coefficients}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        shape, offset = np.asarray(parameters["shape"]), parameters["offset"]
        rest = to_log(view.values, offset) - self.seasons.at(shape, view, np.arange(len(view.values)))
        model = Arma.of(parameters["order"], parameters["coefficients"])
        path = model.paths(carried(rest), origins, horizon)
        season = self.seasons.at(shape, view, ahead_of(origins, horizon))
        highest = np.fmax.accumulate(view.values)[origins - 1, None]
        return from_log(path + season, offset, highest=highest)


MSTL_ARIMA_DAY = MstlArima("mstl_arima_day", DAILY)
MSTL_ARIMA_WEEK = MstlArima("mstl_arima_week", WEEKLY)
