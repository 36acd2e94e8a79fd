import warnings

import numpy as np
import pytest
from statsforecast.models import AutoARIMA

from benchmarks.forecast import arima
from benchmarks.forecast.alternatives import ALTERNATIVES, DAY, filled, holt_winters, last_value, seasonal_naive
from forecasting.series import FloatArray

FIRST = 2 * DAY


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_shuffling_the_future_changes_no_forecast(name: str, traffic: FloatArray) -> None:
    """Origins up to the day's end; the path from an origin uses what came before it only."""
    origin = FIRST + 130
    other = traffic.copy()
    np.random.default_rng(2).shuffle(other[origin:])
    assert not np.array_equal(traffic, other, equal_nan=True)
    paths = [ALTERNATIVES[name](values, first=FIRST, horizon=DAY) for values in (traffic, other)]
    known = origin - FIRST + 1
    np.testing.assert_array_equal(paths[0][:known], paths[1][:known])
    assert np.isfinite(paths[0]).all()
    assert (paths[0] >= 0).all()
    assert paths[0].shape == (len(traffic) - FIRST, DAY)


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_what_is_newest_is_looked_at(name: str, traffic: FloatArray) -> None:
    """The step before an origin may change the path from it: nothing is a step late."""
    other = traffic.copy()
    other[FIRST - 1] *= 3
    paths = [ALTERNATIVES[name](values, first=FIRST, horizon=DAY)[0] for values in (traffic, other)]
    assert not np.allclose(paths[0], paths[1])


def test_last_value_skips_a_gap(traffic: FloatArray) -> None:
    paths = last_value(traffic, first=FIRST, horizon=2)
    assert paths[501 - FIRST].tolist() == [traffic[499]] * 2
    assert paths[500 - FIRST].tolist() == [traffic[499]] * 2
    assert paths[502 - FIRST].tolist() == [traffic[501]] * 2


def test_seasonal_naive_is_the_day_before(traffic: FloatArray) -> None:
    paths = seasonal_naive(traffic, first=FIRST, horizon=DAY)
    assert paths[300 - FIRST, 5] == traffic[300 + 5 - DAY]
    assert paths[200 + DAY - FIRST, 0] == traffic[200 - DAY], "a gap a day before takes the day before that"


def test_holt_winters_is_the_textbook_recursion(traffic: FloatArray) -> None:
    alpha, beta, gamma = 0.4, 0.1, 0.3
    values = filled(traffic)
    level, trend = values[:DAY].mean(), 0.0
    season = list(values[:DAY] - level)
    for t in range(DAY, FIRST + 7):
        before, at = level, season[t % DAY]
        level = alpha * (values[t] - at) + (1 - alpha) * (level + trend)
        trend = beta * (level - before) + (1 - beta) * trend
        season[t % DAY] = gamma * (values[t] - level) + (1 - gamma) * at
    expected = [max(level + (h + 1) * trend + season[(FIRST + 7 + h) % DAY], 0.0) for h in range(DAY)]
    got = holt_winters(values, first=FIRST, horizon=DAY, parameters=(alpha, beta, gamma))[7]
    np.testing.assert_allclose(got, expected)


def test_a_pure_cycle_is_continued_exactly_by_all_that_know_a_season() -> None:
    cycle = 10 + np.tile(np.sin(2 * np.pi * np.arange(DAY) / DAY), 6)
    for name in ("seasonal_naive", "holt_winters_phpa", "holt_winters_tuned", "fft_crane", "fft_top"):
        paths = ALTERNATIVES[name](cycle, first=FIRST, horizon=DAY)
        np.testing.assert_allclose(paths[37], np.roll(cycle[:DAY], -(FIRST + 37)), atol=1e-6, err_msg=name)


def test_an_ma_that_is_not_invertible_is_replaced_by_its_equal_that_is() -> None:
    """1 - 1.25 B has the autocorrelations of 1 - 0.8 B: -1.25 / (1 + 1.25^2) = -0.8 / (1 + 0.8^2)."""
    np.testing.assert_allclose(arima.invertible(np.array([-1.25])), [-0.8])
    np.testing.assert_allclose(arima.invertible(np.array([0.5, -0.3])), [0.5, -0.3])
    assert arima.invertible(np.array([-1.0])) == pytest.approx(-arima.LARGEST_ROOT)
    assert len(arima.invertible(np.array([]))) == 0


def test_arima_stays_with_statsforecast_where_the_series_wants_a_unit_root() -> None:
    """Over-differenced noise around a level: the search finds an MA root at or beyond 1."""
    rng = np.random.default_rng(8)
    values = 500 + np.cumsum(np.diff(rng.normal(0, 20, 901))) + np.repeat([0, 60, -40], 300)
    known, origin = values[:600], 880
    got = arima.forecast(arima.fit(known), values, first=origin, horizon=3)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoARIMA(season_length=1, seasonal=False, approximation=True).fit(known)
        expected = model.forward(values[:origin], h=3)["mean"]
    np.testing.assert_allclose(got, expected, rtol=0.01)


@pytest.mark.parametrize("drifting", [0.0, 3.0])
def test_arima_filters_as_statsforecast_does(drifting: float) -> None:
    rng = np.random.default_rng(4)
    shocks = rng.normal(0, 20, 600)
    values = 2000 + drifting * np.arange(600) + np.convolve(shocks, 0.8 ** np.arange(30))[:600]
    known, origin = values[:400], 550
    got = arima.forecast(arima.fit(known), values, first=origin, horizon=10)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoARIMA(season_length=1, seasonal=False, approximation=True).fit(known)
        expected = model.forward(values[:origin], h=10)["mean"]
    np.testing.assert_allclose(got, expected, rtol=2e-3)
