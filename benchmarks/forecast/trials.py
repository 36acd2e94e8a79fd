"""Candidates that are no part of the product: tried beside its own by `python -m benchmarks.forecast --tried`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from time import process_time

import numpy as np
from statsforecast.models import DynamicOptimizedTheta

from forecasting.cleaning import fill_missing
from forecasting.models import Model, Parameters
from forecasting.models.base import DAY, HOUR, WEEK, IntArray, ahead_of, carried, lacks_history
from forecasting.models.calendar_arima import CALENDAR_ARIMA
from forecasting.models.ets import Smoothing
from forecasting.models.fourier_arima import FOURIER_ARIMA, FourierArima
from forecasting.models.logscale import from_log, log_offset, to_log
from forecasting.models.mstl_arima import MSTL_ARIMA_DAY
from forecasting.models.mstl_ets import MstlEts
from forecasting.models.naive import WindowAverage
from forecasting.models.seasonal import DAILY, WEEKLY, Seasons
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class PlainEts:
    """AutoETS without a season, on a log scale: statsforecast's has none for seasons of 144 steps."""

    name: str = "ets"

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, DAY)

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(DAILY.history))
        offset = log_offset(recent.values)
        smoothing = Smoothing.fitted(to_log(fill_missing(recent.values, season=view.steps_in(DAY)), offset))
        return {"offset": offset, "smoothing": [smoothing.alpha, smoothing.beta, smoothing.phi]}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        values, start = to_log(view.values, parameters["offset"]), view.steps_in(HOUR)
        paths = Smoothing(*parameters["smoothing"]).paths(values, origins, horizon, start=start)
        return from_log(paths, parameters["offset"], highest=np.fmax.accumulate(view.values)[origins - 1, None])


@dataclass(frozen=True)
class Theta:
    """The dynamic optimised theta model (Fiorucci et al., 2016) on a log scale, with MSTL's shape taken off first where
    it has `seasons`. Its own test for a season and classical decomposition would need the whole history each step."""

    name: str
    seasons: Seasons | None

    def lacks(self, view: View) -> str | None:
        return lacks_history(view, 2 * DAY)

    def fit(self, view: View) -> Parameters:
        recent = view.tail(view.steps_in(DAILY.history))
        offset = log_offset(recent.values)
        shape: FloatArray = np.zeros(1)
        if self.seasons:
            shape, rest = self.seasons.fit(recent, offset)
        else:
            rest = to_log(fill_missing(recent.values, season=view.steps_in(DAY)), offset)
        found = DynamicOptimizedTheta(season_length=1).fit(rest).model_["par"]
        theta = [float(found[name]) for name in ("initial_smoothed", "alpha", "theta")]
        return {"offset": offset, "shape": shape.tolist(), "theta": theta, "steps": len(rest)}

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        shape, offset = np.asarray(parameters["shape"]), parameters["offset"]
        rest = to_log(view.values, offset) - self._season(shape, view, np.arange(len(view.values)))
        # What was fitted on the newest part is filtered from as far before the first origin.
        begin = max(int(origins[0]) - parameters["steps"], 0)
        path = theta_paths(carried(rest)[begin:], origins - begin, horizon, *parameters["theta"])
        season = self._season(shape, view, ahead_of(origins, horizon))
        return from_log(path + season, offset, highest=np.fmax.accumulate(view.values)[origins - 1, None])

    def _season(self, shape: FloatArray, view: View, places: IntArray) -> FloatArray:
        return self.seasons.at(shape, view, places) if self.seasons else np.zeros(places.shape)


def theta_paths(
    values: FloatArray, origins: IntArray, horizon: int, level: float, alpha: float, theta: float
) -> FloatArray:
    """Forecasts of the dynamic theta model from every origin, (origins, horizon), with the recursion of statsforecast,
    which takes its own forecasts for what came. `level` is the one before the first value; values must be finite."""
    count = np.arange(1, len(values) + 1, dtype=float)
    mean = np.cumsum(values) / count
    levels, slopes = np.empty(len(values)), np.zeros(len(values))
    slope = 0.0
    for i, value in enumerate(values.tolist()):
        level = alpha * value + (1 - alpha) * level
        if i:
            slope = ((i - 1) * slope + 6 * (value - mean[i - 1]) / (i + 1)) / (i + 2)
        levels[i], slopes[i] = level, slope
    at = origins - 1
    lev, slo, avg = levels[at], slopes[at], mean[at]
    cut = avg - slo * (origins + 1) / 2 if len(values) > 1 else avg
    paths = np.empty((len(origins), horizon))
    for ahead in range(horizon):
        seen = origins + ahead
        drift = cut * (1 - alpha) ** seen + slo * (1 - (1 - alpha) ** (seen + 1)) / alpha
        made = lev + (1 - 1 / theta) * drift
        paths[:, ahead] = made
        lev = alpha * made + (1 - alpha) * lev
        slo = ((seen - 1) * slo + 6 * (made - avg) / (seen + 1)) / (seen + 2)
        avg = (seen * avg + made) / (seen + 1)
        cut = avg - slo * (seen + 2) / 2
    return paths


FOURIER_ARIMA_WEEK = FourierArima("fourier_arima_week", ((DAY, 5), (WEEK, 3)), history=28 * DAY, needs=2 * WEEK)

MSTL_ETS_WEEK = MstlEts("mstl_ets_week", WEEKLY)

TRIED: tuple[Model, ...] = (
    WindowAverage("half_hour_average", timedelta(minutes=30)),
    WindowAverage("hour_average", HOUR),
    PlainEts(),
    Theta("theta", None),
    Theta("theta_day", DAILY),
    FOURIER_ARIMA_WEEK,
    MSTL_ETS_WEEK,
)

LEAD_TOO: tuple[Model, ...] = (MSTL_ARIMA_DAY, FOURIER_ARIMA, CALENDAR_ARIMA)
"""Candidates of the outlook that are tried for the lead window."""


@dataclass(frozen=True)
class Once:
    """A model that fits each length of one series once, and forecasts each origins once with each fit. `seconds` are
    those of the processor that its fits took."""

    model: Model
    fits: dict[int, Parameters] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    made: dict[tuple[int, ...], FloatArray] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.model.name

    def lacks(self, view: View) -> str | None:
        return self.model.lacks(view)

    def fit(self, view: View) -> Parameters:
        length = len(view.values)
        if length not in self.fits:
            began = process_time()
            self.fits[length] = self.model.fit(view)
            self.seconds[length] = process_time() - began
        return self.fits[length]

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        # Fits are kept, so that no other one gets the identity of one of them.
        key = (id(parameters), len(view.values), int(origins[0]), len(origins), horizon)
        if key not in self.made:
            self.made[key] = self.model.paths(parameters, view, origins, horizon)
        return self.made[key]
