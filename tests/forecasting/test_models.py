"""Each candidate on shapes whose continuation is known."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from statsforecast.models import ARIMA

from forecasting.models import BY_NAME, CANDIDATES, Model
from forecasting.models.arma import Arma
from forecasting.models.ets import Smoothing
from forecasting.series import FloatArray, Series

Make = Callable[[FloatArray], Series]
DAY_STEPS = 96
SEASONAL = [
    "seasonal_naive_day",
    "seasonal_average_day",
    "seasonal_naive_week",
    "mstl_ets_day",
    "mstl_arima_day",
    "mstl_arima_week",
    "fourier_arima",
    "calendar_arima",
]


def predicted(model: Model, series: Series, horizon: int) -> FloatArray:
    view = series.view(series.end)
    parameters = json.loads(json.dumps(model.fit(view)))
    return model.paths(parameters, view, np.array([len(view.values)]), horizon)[0]


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
    for name in ("seasonal_naive_week", "mstl_arima_week", "calendar_arima"):
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


IN_PHASE = [model for model in CANDIDATES if model.name != "day_average"]


@pytest.mark.parametrize("model", IN_PHASE, ids=lambda model: model.name)
def test_parameters_fitted_yesterday_still_forecast_in_phase_today(model: Model, daily: Callable[..., Series]) -> None:
    """The fast cadence: fitted at day 14, used 5 hours later with newer data; the shape must not slip."""
    series = daily(16)
    fitted = model.fit(series.view(series.start + 14 * timedelta(days=1)))
    cutoff = series.start + timedelta(days=14, hours=5)
    view = series.view(cutoff)
    path = model.paths(fitted, view, np.array([len(view.values)]), 4)[0]
    truth = series.values[14 * DAY_STEPS + 20 :][:4]
    np.testing.assert_allclose(path, truth, rtol=0.15)


@pytest.mark.parametrize("model", CANDIDATES, ids=lambda model: model.name)
def test_many_origins_at_once_are_what_each_alone_gives_and_none_sees_what_comes_after_it(
    model: Model, daily: Callable[..., Series]
) -> None:
    """At each origin the view is cut there, so that nothing later exists; gaps lie before, at and after origins."""
    values = daily(24, noise=0.2).values.copy()
    values[2100:2110] = np.nan
    values[2150] = np.nan
    series = replace(daily(24), values=values)
    parameters = model.fit(series.view(series.start + 21 * timedelta(days=1)))
    view = series.view(series.end)
    origins = np.array([2050, 2105, 2150, 2151, len(values)])
    together = model.paths(parameters, view, origins, 2 * DAY_STEPS + 5)
    for row, origin in zip(together, origins.tolist(), strict=True):
        [alone] = model.paths(parameters, view.first(origin), np.array([origin]), 2 * DAY_STEPS + 5)
        np.testing.assert_allclose(row, alone, rtol=1e-6)


def test_a_window_average_is_the_mean_of_the_last_day(make_series: Make) -> None:
    """Yesterday 10, today 20, the last quarter of today missing: 96 steps of 20, the missing ones carried."""
    values = np.concatenate([np.full(DAY_STEPS, 10.0), np.full(72, 20.0), np.full(24, np.nan)])
    assert predicted(BY_NAME["day_average"], make_series(values), 2).tolist() == [20, 20]


def test_a_seasonal_average_is_the_mean_of_the_days_in_which_the_time_was_observed(make_series: Make) -> None:
    """Four days at 1, 2, 3 and 4: (2 + 3 + 4) / 3 = 3; where the last was not observed (2 + 3) / 2; where none of the
    last three was, what the first had."""
    values = np.repeat([1.0, 2.0, 3.0, 4.0], DAY_STEPS)
    values[3 * DAY_STEPS + 5] = np.nan
    values[[DAY_STEPS + 7, 2 * DAY_STEPS + 7, 3 * DAY_STEPS + 7]] = np.nan
    path = predicted(BY_NAME["seasonal_average_day"], make_series(values), DAY_STEPS + 6)
    assert (path[0], path[5], path[7], path[DAY_STEPS + 5]) == (3, 2.5, 1, 2.5)


@pytest.mark.parametrize("order", [(1, 0, 0), (0, 1, 1), (2, 1, 1), (1, 0, 2), (0, 0, 0)])
def test_arima_forecasts_are_those_of_statsforecast(order: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    values = 5 + 0.1 * np.cumsum(rng.standard_normal(400)) + 0.3 * rng.standard_normal(400)
    theirs = ARIMA(order=order, include_mean=True, method="CSS-ML").fit(values)
    ours = Arma.of(order, {name: float(value) for name, value in theirs.model_["coef"].items()})
    np.testing.assert_allclose(ours.paths(values, np.array([400]), 20)[0], theirs.predict(20)["mean"], rtol=1e-6)


def test_a_moving_average_that_cannot_be_inverted_is_replaced_by_its_stable_twin() -> None:
    """1 + 2 B has its root outside: 1 + 0.5 B has the same autocorrelation, 2 / (1 + 4) = 0.5 / (1 + 0.25) = 0.4."""
    np.testing.assert_allclose(Arma.of((0, 0, 1), {"ma1": 2.0}).ma, [1.0, 0.5])
    np.testing.assert_allclose(Arma.of((0, 0, 1), {"ma1": -1.0}).ma, [1.0, -0.995])


def test_smoothing_without_a_trend_is_the_recursion_step_by_step() -> None:
    """Level 10, the mean of the first two; with alpha 0.5 then 9, 10.5, 12.25, the same where missing, 16.125."""
    values = np.array([8.0, 12.0, 14.0, np.nan, 20.0])
    paths = Smoothing(0.5, 0.0, 0.0).paths(values, np.array([2, 3, 4, 5]), 2, start=2)
    assert paths[:, 0].tolist() == [10.5, 12.25, 12.25, 16.125]
    assert (paths[:, 1] == paths[:, 0]).all()


def test_smoothing_never_begins_with_what_the_first_origin_has_not_seen() -> None:
    """At the first origin there is 8 alone, so 8 is the forecast, though two values are asked for to begin with."""
    paths = Smoothing(0.5, 0.0, 0.0).paths(np.array([8.0, 12.0]), np.array([1, 2]), 1, start=2)
    assert paths[:, 0].tolist() == [8.0, 10.0]


def test_a_damped_trend_is_carried_on_in_ever_smaller_steps() -> None:
    """Level and trend 0, then 1 with alpha 0.5, beta 0.25, phi 0.5: level 0.5, trend 0.25; ahead 0.5 + 0.25 x 0.5 =
    0.625, then + 0.25 x 0.25 = 0.6875."""
    paths = Smoothing(0.5, 0.25, 0.5).paths(np.array([0.0, 1.0]), np.array([2]), 2, start=1)
    np.testing.assert_allclose(paths, [[0.625, 0.6875]])
