"""Each candidate on shapes whose continuation is known."""

import json
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest

from forecasting.models import BY_NAME, CANDIDATES, Model
from forecasting.series import FloatArray, Series

Make = Callable[[FloatArray], Series]
DAY_STEPS = 96
SEASONAL = ["seasonal_naive_day", "seasonal_naive_week", "mstl_ets_day", "mstl_ets_week", "fourier_arima"]


def predicted(model: Model, series: Series, horizon: int) -> FloatArray:
    view = series.view(series.end)
    parameters = json.loads(json.dumps(model.fit(view)))
    return model.predict(parameters, view, horizon)


@pytest.mark.parametrize("name", SEASONAL)
def test_a_daily_sine_is_continued(name: str, daily: Callable[..., Series]) -> None:
    """Fourteen days of a sine with little noise; the fifteenth is the same sine."""
    truth = daily(15).values[-DAY_STEPS:]
    series = daily(14, noise=0.02)
    error = np.abs(predicted(BY_NAME[name], series, DAY_STEPS) - truth) / truth
    assert error.mean() < 0.06


def test_the_weekly_candidates_see_the_weekend_coming(make_series: Make) -> None:
    """Four weeks, weekends at a third; the forecast for the next five days, from a Thursday on, holds two of them."""
    place = np.arange(35 * DAY_STEPS)
    weekend = (place // DAY_STEPS) % 7 >= 5
    values = np.where(weekend, 300.0, 900.0) * (1 + 0.1 * np.sin(2 * np.pi * place / DAY_STEPS))
    known = 31 * DAY_STEPS
    ahead = values[known : known + 4 * DAY_STEPS]
    series = make_series(values[:known])
    for name in ("seasonal_naive_week", "mstl_ets_week"):
        error = np.abs(predicted(BY_NAME[name], series, len(ahead)) - ahead) / ahead
        assert np.median(error) < 0.1, name
        assert np.median(error[2 * DAY_STEPS : 3 * DAY_STEPS]) < 0.2, name


def test_seasonal_naive_looks_further_back_where_yesterday_was_not_observed(make_series: Make) -> None:
    values = np.tile(np.arange(float(DAY_STEPS)), 3)
    values[2 * DAY_STEPS + 10] = np.nan
    assert predicted(BY_NAME["seasonal_naive_day"], make_series(values), DAY_STEPS)[10] == 10


def test_last_value_is_the_last_observed_one(make_series: Make) -> None:
    assert predicted(BY_NAME["last_value"], make_series(np.array([1.0, 7.0, np.nan])), 3).tolist() == [7, 7, 7]


@pytest.mark.parametrize("model", CANDIDATES, ids=lambda model: model.name)
def test_forecasts_are_finite_and_never_negative_through_gaps_and_idle_nights(model: Model, make_series: Make) -> None:
    values = np.tile(np.maximum(np.sin(2 * np.pi * np.arange(DAY_STEPS) / DAY_STEPS), 0) * 800, 15)
    values[100:160] = np.nan
    values[-4:] = np.nan
    path = predicted(model, make_series(values), 3 * DAY_STEPS)
    assert path.shape == (3 * DAY_STEPS,)
    assert np.isfinite(path).all()
    assert (path >= 0).all()
    assert path.max() <= 3 * 800 + 1


@pytest.mark.parametrize("model", CANDIDATES, ids=lambda model: model.name)
def test_a_constant_series_is_forecast_as_that_constant(model: Model, make_series: Make) -> None:
    path = predicted(model, make_series(np.full(15 * DAY_STEPS, 250.0)), 10)
    np.testing.assert_allclose(path, 250.0, rtol=1e-6)


@pytest.mark.parametrize("name", SEASONAL)
def test_a_short_history_is_declined_with_its_length(name: str, daily: Callable[..., Series]) -> None:
    series = daily(1)
    assert "history of 1d is under" in str(BY_NAME[name].lacks(series.view(series.end)))


@pytest.mark.parametrize("model", CANDIDATES, ids=lambda model: model.name)
def test_parameters_fitted_yesterday_still_forecast_in_phase_today(model: Model, daily: Callable[..., Series]) -> None:
    """The fast cadence: fitted at day 14, used 5 hours later with newer data; the shape must not slip."""
    series = daily(16)
    fitted = model.fit(series.view(series.start + 14 * timedelta(days=1)))
    cutoff = series.start + timedelta(days=14, hours=5)
    path = model.predict(fitted, series.view(cutoff), 4)
    truth = series.values[14 * DAY_STEPS + 20 :][:4]
    np.testing.assert_allclose(path, truth, rtol=0.15)
