"""AutoARIMA with Fourier terms of the day as regressors, on a log scale (statsforecast does the fit)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from statsforecast.models import ARIMA, AutoARIMA

from forecasting.cleaning import fill_missing
from forecasting.models.base import DAY, Parameters, lacks_history
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class FourierArima:
    """Regression on sines and cosines of the time of day with ARIMA errors.

    A seasonal ARIMA with a season of 288 steps is out of reach; Fourier terms carry the season instead.
    """

    name: str = "fourier_arima"
    harmonics: int = 5
    history_days: int = 7

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 3 * DAY)

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.history_days * DAY))
        offset = log_offset(recent.values)
        filled = to_log(fill_missing(recent.values, season=recent.steps_in(DAY)), offset)
        model = AutoARIMA(
            season_length=1, seasonal=False, max_d=1, max_p=3, max_q=2, approximation=True, allowdrift=False
        )
        with warnings.catch_warnings():
            # The search warns of each order whose optimisation stopped early; the orders that won are judged
            # by the backtest, not by the optimiser.
            warnings.simplefilter("ignore")
            fitted = model.fit(filled, X=self._terms(recent, 0, len(filled))).model_
        p, q, _, _, _, d, _ = fitted["arma"]
        return {
            "offset": offset,
            "order": [int(p), int(d), int(q)],
            "coefficients": {name: float(value) for name, value in fitted["coef"].items()},
        }

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        recent = view.tail(view.steps_in(2 * DAY))
        filled = to_log(fill_missing(recent.values, season=recent.steps_in(DAY)), parameters["offset"])
        coefficients = dict(parameters["coefficients"])
        model = ARIMA(
            order=tuple(parameters["order"]),
            include_mean="intercept" in coefficients,
            fixed=coefficients,
            method="CSS-ML",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(filled, X=self._terms(recent, 0, len(filled)))
            path = model.predict(h=horizon, X=self._terms(recent, len(filled), horizon))["mean"]
        return from_log(path, parameters["offset"], highest=np.nanmax(view.values, keepdims=True))

    def _terms(self, view: View, skip: int, count: int) -> FloatArray:
        """Sines and cosines, shape (count, 2 x harmonics), of the steps from `skip` after the view's start on."""
        angle = 2 * np.pi * (view.first_index + skip + np.arange(count)) / view.steps_in(DAY)
        orders = np.arange(1, self.harmonics + 1)
        phases = angle[:, None] * orders
        return np.hstack([np.sin(phases), np.cos(phases)])


FOURIER_ARIMA = FourierArima()
