"""MSTL's seasonal shape with AutoETS on what is left, on a log scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecasting.models.base import IntArray, Parameters, ahead_of, lacks_history
from forecasting.models.ets import Smoothing
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.models.seasonal import DAILY, Seasons
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class MstlEts:
    """The shape is kept between fits; the ETS state follows the newest data."""

    name: str
    seasons: Seasons

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 2 * self.seasons.lengths[-1])

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.seasons.history))
        offset = log_offset(recent.values)
        shape, rest = self.seasons.fit(recent, offset)
        smoothing = Smoothing.fitted(rest)
        return {
            "offset": offset,
            "shape": shape.tolist(),
            "smoothing": [smoothing.alpha, smoothing.beta, smoothing.phi],
        }

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        shape = np.asarray(parameters["shape"])
        rest = to_log(view.values, parameters["offset"]) - self.seasons.at(shape, view, np.arange(len(view.values)))
        # Over a whole season the shape is zero on the mean: a level that hardly moves would keep what a part misses.
        start = view.steps_in(self.seasons.lengths[-1])
        smoothed = Smoothing(*parameters["smoothing"]).paths(rest, origins, horizon, start=start)
        season = self.seasons.at(shape, view, ahead_of(origins, horizon))
        highest = np.fmax.accumulate(view.values)[origins - 1, None]
        return from_log(smoothed + season, parameters["offset"], highest=highest)


MSTL_ETS_DAY = MstlEts("mstl_ets_day", DAILY)
