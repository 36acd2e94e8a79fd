"""MSTL's seasonal shape with AutoETS on what is left, on a log scale (statsforecast does both fits).

The shape is estimated at each fit and kept; between fits only the ETS state follows the newest data, which
costs milliseconds where a new decomposition costs a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
from statsforecast.models import MSTL, AutoETS

from forecasting.cleaning import fill_missing
from forecasting.models.base import DAY, HOUR, WEEK, Parameters, lacks_history
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class MstlEts:
    """Additive seasons on log(rate + offset); the longest season's length is the period of the kept shape."""

    name: str
    seasons: tuple[timedelta, ...]
    grid: timedelta | None
    """The shape's resolution; None for the step. A weekly shape at the step would take most of a minute."""
    history: timedelta

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 2 * self.seasons[-1])

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.history))
        offset = log_offset(recent.values)
        filled = to_log(fill_missing(recent.values, season=recent.steps_in(DAY)), offset)
        shape = self._shape(recent, filled)
        adjusted = filled - shape[self._places(recent, len(filled))]
        ets = AutoETS(season_length=1, model="AZN").fit(adjusted).model_
        return {
            "offset": offset,
            "shape": shape.tolist(),
            "components": ets["components"],
            "smoothing": [None if np.isnan(x) else float(x) for x in ets["par"][:4]],
            "states": len(ets["par"]) - 4,
        }

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        path: FloatArray = self.paths(parameters, view, first=len(view.values), horizon=horizon)[0]
        return path

    def paths(self, parameters: Parameters, view: View, *, first: int, horizon: int) -> FloatArray:
        """Forecasts from every origin from `first` steps after the view's start up to its cutoff, each from what came
        before it: (origins, horizon). A missing step leaves the state as it was forecast.

        The recursion is ETS(A,A,N)'s and its special cases' (Hyndman and Athanasopoulos, FPP3, 8.5).
        """
        begin = max(first - view.steps_in(2 * DAY), 0)
        shape = np.asarray(parameters["shape"])
        season = shape[self._places(view, len(view.values) + horizon)]
        adjusted = to_log(view.values, parameters["offset"]) - season[: len(view.values)]
        alpha, beta, _, phi = (x or 0.0 for x in parameters["smoothing"])
        if parameters["states"] < 2:  # a level and no trend
            beta = phi = 0.0
        elif parameters["smoothing"][3] is None:
            phi = 1.0
        # The filter starts from the first hours of the tail; two days on, its start is forgotten.
        known = adjusted[begin:first]
        start = known[np.isfinite(known)][: max(view.steps_in(HOUR), 1)]
        if not len(start):
            raise ValueError("nothing was observed in the two days before the first origin")
        level, trend = float(start.mean()), 0.0
        levels, trends = np.empty(len(adjusted) - first + 1), np.empty(len(adjusted) - first + 1)
        for place, value in enumerate(adjusted[begin:].tolist(), begin):
            if place >= first:
                levels[place - first], trends[place - first] = level, trend
            error = value - level - phi * trend if math.isfinite(value) else 0.0
            level, trend = level + phi * trend + alpha * error, phi * trend + beta * error
        levels[-1], trends[-1] = level, trend
        steps = np.arange(horizon)
        ahead = season[first + np.arange(len(levels))[:, None] + steps]
        grown = trends[:, None] * np.cumsum(phi ** (steps + 1.0))
        highest = np.fmax.accumulate(view.values)[first - 1 :, None]
        return from_log(levels[:, None] + grown + ahead, parameters["offset"], highest=highest)

    def _places(self, view: View, count: int) -> npt.NDArray[np.int64]:
        period = view.steps_in(self.seasons[-1])
        return np.asarray((view.first_index + np.arange(count)) % period, dtype=np.int64)

    def _shape(self, view: View, filled: FloatArray) -> FloatArray:
        """One period of the seasonal component at the step, counted from the epoch, mean zero."""
        per_cell = view.steps_in(self.grid) if self.grid and self.grid > view.step else 1
        lead_in = -view.first_index % per_cell
        cells = filled[lead_in:]
        cells = cells[: len(cells) // per_cell * per_cell].reshape(-1, per_cell).mean(axis=1)
        periods = [view.steps_in(season) // per_cell for season in self.seasons]
        # R's stl evaluates its loess at every tenth of a window and interpolates; at every point costs 20 times more.
        jump = -(-periods[0] // 10)
        decomposed = MSTL(
            season_length=periods,
            trend_forecaster=AutoETS(season_length=1, model="ANN"),
            stl_kwargs={"seasonal_jump": 2, "trend_jump": jump, "low_pass_jump": jump},
        ).fit(cells)
        seasonal = decomposed.model_.filter(like="seasonal").sum(axis=1).to_numpy()[-periods[-1] :]
        first_cell = (view.first_index + lead_in) // per_cell + len(cells) - periods[-1]
        shape = np.roll(seasonal, first_cell % periods[-1])
        if per_cell > 1:
            centres = (np.arange(-1, len(shape) + 1) + 0.5) * per_cell - 0.5
            wrapped = np.concatenate([shape[-1:], shape, shape[:1]])
            shape = np.interp(np.arange(len(shape) * per_cell), centres, wrapped)
        result: FloatArray = shape - shape.mean()
        return result


MSTL_ETS_DAY = MstlEts("mstl_ets_day", (DAY,), grid=None, history=14 * DAY)
MSTL_ETS_WEEK = MstlEts("mstl_ets_week", (DAY, WEEK), grid=HOUR, history=28 * DAY)
