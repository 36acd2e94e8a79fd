"""Exponential smoothing (statsforecast does the fit), and AutoETS without a season as a candidate of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from statsforecast.models import AutoETS

from forecasting.cleaning import fill_missing
from forecasting.models.base import DAY, HOUR, IntArray, Parameters, lacks_history
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.series import FloatArray, View

FORGOTTEN = 2 * DAY
"""A filter that starts so long before its first origin has forgotten how it started."""


@dataclass(frozen=True)
class Smoothing:
    """Parameters of ETS(A,A,N), damped, and its special cases: `beta` and `phi` are 0 for a level without a trend."""

    alpha: float
    beta: float
    phi: float

    @classmethod
    def fitted(cls, values: FloatArray) -> Smoothing:
        """The additive form without a season that AutoETS finds best."""
        ets = AutoETS(season_length=1, model="AZN").fit(values).model_
        alpha, beta, _, phi = (None if np.isnan(x) else float(x) for x in ets["par"][:4])
        if len(ets["par"]) - 4 < 2:  # a level and no trend
            return cls(alpha or 0.0, 0.0, 0.0)
        return cls(alpha or 0.0, beta or 0.0, 1.0 if phi is None else phi)

    def paths(self, values: FloatArray, origins: IntArray, horizon: int, *, settling: int, start: int) -> FloatArray:
        """Forecasts from every origin: (origins, horizon). A missing step leaves the state as it was forecast.

        The filter starts `settling` steps before the first origin, with the mean of the first `start` observed values
        there. The recursion is Hyndman and Athanasopoulos's, FPP3, 8.5. Raises ValueError where nothing was observed.
        """
        begin = max(int(origins[0]) - settling, 0)
        known = values[begin : origins[0]]
        first = known[np.isfinite(known)][:start]
        if not len(first):
            raise ValueError("nothing was observed in the two days before the first origin")
        level, trend = float(first.mean()), 0.0
        alpha, beta, phi = self.alpha, self.beta, self.phi
        levels, trends = [level], [trend]
        for value in values[begin : origins[-1]].tolist():
            error = value - level - phi * trend if math.isfinite(value) else 0.0
            level, trend = level + phi * trend + alpha * error, phi * trend + beta * error
            levels.append(level)
            trends.append(trend)
        at = origins - begin
        grown = np.asarray(trends)[at, None] * np.cumsum(phi ** (np.arange(horizon) + 1.0))
        paths: FloatArray = np.asarray(levels)[at, None] + grown
        return paths


@dataclass(frozen=True)
class Ets:
    """Level and trend of log(rate + offset), without a season."""

    name: str = "auto_ets"
    history: timedelta = 14 * DAY

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, DAY)

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.history))
        offset = log_offset(recent.values)
        smoothing = Smoothing.fitted(to_log(fill_missing(recent.values, season=recent.steps_in(DAY)), offset))
        return {"offset": offset, "smoothing": [smoothing.alpha, smoothing.beta, smoothing.phi]}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        smoothed = Smoothing(*parameters["smoothing"]).paths(
            to_log(view.values, parameters["offset"]),
            origins,
            horizon,
            settling=view.steps_in(FORGOTTEN),
            start=max(view.steps_in(HOUR), 1),
        )
        highest = np.fmax.accumulate(view.values)[origins - 1, None]
        return from_log(smoothed, parameters["offset"], highest=highest)


AUTO_ETS = Ets()
