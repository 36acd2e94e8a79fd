"""Exponential smoothing from many origins at once, with parameters that statsforecast estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from forecasting.models.base import IntArray
from forecasting.series import FloatArray


@dataclass(frozen=True)
class Smoothing:
    """Parameters of ETS(A,A,N), damped, and its special cases: `beta` and `phi` are 0 for a level without a trend."""

    alpha: float
    beta: float
    phi: float

    @classmethod
    def fitted(cls, values: FloatArray) -> Smoothing:
        """The additive form without a season that AutoETS finds best."""
        from statsforecast.models import AutoETS  # noqa: PLC0415 - takes a second, and only fits need it

        ets = AutoETS(season_length=1, model="AZN").fit(values).model_
        alpha, beta, _, phi = (None if np.isnan(x) else float(x) for x in ets["par"][:4])
        if len(ets["par"]) - 4 < 2:  # a level and no trend
            return cls(alpha or 0.0, 0.0, 0.0)
        return cls(alpha or 0.0, beta or 0.0, 1.0 if phi is None else phi)

    def paths(self, values: FloatArray, origins: IntArray, horizon: int, *, start: int) -> FloatArray:
        """Forecasts from every origin: (origins, horizon). A missing step leaves the state as it was forecast.

        The filter begins with the mean of the first `start` values observed before the first origin. The recursion is
        Hyndman and Athanasopoulos's, FPP3, 8.5. Raises ValueError where nothing was observed there.
        """
        known = np.isfinite(values[: origins[-1]])
        begins = values[: origins[0]][known[: origins[0]]][:start]
        if not len(begins):
            raise ValueError("nothing was observed before the first origin")
        first = float(begins.mean())
        if self.phi:
            level, trend = self._filtered(values[: origins[-1]], first)
            grown = trend[origins, None] * np.cumsum(self.phi ** (np.arange(horizon) + 1.0))
            paths: FloatArray = level[origins, None] + grown
            return paths
        # Without a trend the level moves at observed steps only, and the recursion is a filter of these.
        keep = 1.0 - self.alpha
        observed, _ = scipy.signal.lfilter([self.alpha], [1.0, -keep], values[: origins[-1]][known], zi=[keep * first])
        counts = np.concatenate([[0], np.cumsum(known)])[origins]
        return np.repeat(np.concatenate([[first], observed])[counts, None], horizon, axis=1)

    def _filtered(self, values: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
        """Level and trend before each step and after the last."""
        trend = 0.0
        levels, trends = [level], [trend]
        for value in values.tolist():
            expected = level + self.phi * trend
            error = value - expected if math.isfinite(value) else 0.0
            level, trend = expected + self.alpha * error, self.phi * trend + self.beta * error
            levels.append(level)
            trends.append(trend)
        return np.asarray(levels), np.asarray(trends)
