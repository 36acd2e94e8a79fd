"""AutoARIMA with Fourier terms of the day as regressors, on a log scale (statsforecast does the fit)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from forecasting.cleaning import fill_missing
from forecasting.models.arma import Arma, search
from forecasting.models.base import DAY, IntArray, Parameters, ahead_of, carried, lacks_history
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class FourierArima:
    """Regression on sines and cosines of each season with ARIMA errors.

    A seasonal ARIMA with a season of 288 steps is out of reach; Fourier terms carry the season instead. Events and
    holidays need no terms of their own: they are taken out of the history that any model sees, and put onto the
    forecast.
    """

    name: str
    harmonics: tuple[tuple[timedelta, int], ...]
    """Seasons, and how many harmonics of each."""
    history: timedelta
    needs: timedelta

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, self.needs)

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(self.history))
        offset = log_offset(recent.values)
        filled = to_log(fill_missing(recent.values, season=recent.steps_in(DAY)), offset)
        terms = self._terms(recent, np.arange(len(filled)))
        weights, *_ = np.linalg.lstsq(terms, filled, rcond=None)
        order, coefficients = search(filled - terms @ weights)
        return {"offset": offset, "order": order, "coefficients": coefficients, "weights": weights.tolist()}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        offset, weights = parameters["offset"], np.asarray(parameters["weights"])
        season = self._terms(view, np.arange(len(view.values) + horizon)) @ weights
        rest = to_log(view.values, offset) - season[: len(view.values)]
        path = Arma.of(parameters["order"], parameters["coefficients"]).paths(carried(rest), origins, horizon)
        highest = np.fmax.accumulate(view.values)[origins - 1, None]
        return from_log(path + season[ahead_of(origins, horizon)], offset, highest=highest)

    def _terms(self, view: View, places: IntArray) -> FloatArray:
        """A constant, sines and cosines, (steps, terms), of steps counted from the view's start."""
        columns = [np.ones(len(places))]
        for season, count in self.harmonics:
            angle = 2 * np.pi * (view.first_index + places) / view.steps_in(season)
            for order in range(1, count + 1):
                columns += [np.sin(order * angle), np.cos(order * angle)]
        return np.stack(columns, axis=1)


FOURIER_ARIMA = FourierArima("fourier_arima", ((DAY, 5),), history=7 * DAY, needs=3 * DAY)
