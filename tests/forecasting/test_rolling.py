"""Forecasts of a series' past, made again: nothing after an origin is seen, and naive ones by hand."""

from datetime import timedelta

import numpy as np
import pytest

from floorcast.errors import ForecastError
from forecasting.conformal import MARGINS
from forecasting.forecast import Request, StoredFit, forecast_all
from forecasting.mixture import replay
from forecasting.rolling import roll_day_ahead, roll_lead
from forecasting.selection import fit_series
from forecasting.verdict import Target

DAY_STEPS = 96
TARGET = Target(quantile=0.93, lead_steps=2, horizon_steps=100)
FIRST = 5 * DAY_STEPS


def everything(rolled) -> np.ndarray:
    """(origins, numbers) all that was forecast at each origin, of floorcast and of the naive."""
    parts = [rolled.quantiles, *(one.point for one in rolled.naive.values())]
    parts += [values for one in rolled.naive.values() for values in one.quantiles.values()]
    return np.concatenate([part.reshape(len(rolled.origins), -1) for part in parts], axis=1)


@pytest.fixture(scope="module")
def day_ahead():
    return lambda series: roll_day_ahead(series, target=TARGET, first=FIRST, refit_steps=DAY_STEPS)


def test_shuffling_the_future_changes_no_forecast_of_the_lead_window(daily, make_series):
    series, cut = daily(7, noise=0.2), 6 * DAY_STEPS
    shuffled = series.values.copy()
    np.random.default_rng(0).shuffle(shuffled[cut:])
    rolled, other = (roll_lead(one, target=TARGET, first=FIRST) for one in (series, make_series(shuffled)))
    before = rolled.origins <= cut
    np.testing.assert_array_equal(everything(rolled)[before], everything(other)[before])
    assert (everything(rolled)[~before] != everything(other)[~before]).any()


def test_shuffling_the_future_changes_no_forecast_a_day_ahead(daily, make_series, day_ahead):
    series, cut = daily(7, noise=0.2), 6 * DAY_STEPS + 8
    shuffled = series.values.copy()
    np.random.default_rng(0).shuffle(shuffled[cut:])
    rolled, other = day_ahead(series), day_ahead(make_series(shuffled))
    before = rolled.origins <= cut
    np.testing.assert_array_equal(everything(rolled)[before], everything(other)[before])
    assert (everything(rolled)[~before] != everything(other)[~before]).any()


def test_the_lead_window_is_the_mixtures_replay(daily):
    series = daily(6, noise=0.1)
    rolled = roll_lead(series, target=TARGET, first=FIRST)
    made = replay(series.view(series.end), lead_steps=2, first_origin=FIRST)
    assert rolled.levels == (0.1, 0.25, 0.5, 0.75, 0.9, 0.93, 0.95, 0.975, 0.99)
    np.testing.assert_allclose(np.delete(rolled.quantiles[:, 0], 5, axis=1), made)
    # 0.93 lies three fifths of the way from 0.9 to 0.95.
    np.testing.assert_allclose(rolled.quantiles[:, 0, 5], 0.4 * made[:, 4] + 0.6 * made[:, 5])
    assert rolled.origins.tolist() == list(range(FIRST, 6 * DAY_STEPS))


def test_the_day_ahead_is_what_the_product_forecasts(daily, day_ahead):
    series = daily(6, noise=0.1)
    rolled, place = day_ahead(series), 3
    at = {row["horizon"]: row for row in _fits(series)}
    stored = {name: StoredFit(row["model"], row["parameters"], row["margins"]) for name, row in at.items()}
    cutoff = series.start + int(rolled.origins[place]) * series.step
    [made] = forecast_all([Request(series, cutoff, TARGET, lead=stored["lead"], outlook=stored["outlook"])])
    # Steps 2 to 96 after the origin, every hour of four steps.
    assert rolled.origins.tolist() == list(range(FIRST, 6 * DAY_STEPS, 4))
    np.testing.assert_allclose(rolled.quantiles[place, :, 2], made.frame["q50"].to_numpy()[2:DAY_STEPS])


def _fits(series):
    rows, _ = fit_series(series, cutoff=series.start + FIRST * series.step, target=TARGET, timer=lambda: 0.0)
    return rows


def test_naive_forecasts_by_hand(make_series):
    # Step k of day d has the rate 1000 d + k; step 50 of day 5 was not observed.
    values = np.arange(6 * DAY_STEPS) // DAY_STEPS * 1000.0 + np.arange(6 * DAY_STEPS) % DAY_STEPS
    values[5 * DAY_STEPS + 50] = np.nan
    rolled = roll_lead(make_series(values), target=TARGET, first=FIRST)
    last, seasonal = (rolled.naive[name].point[:, 0] for name in ("last_value", "seasonal_naive"))
    # At step 51 the newest observed is step 49; the greatest of steps 51 and 52 of the day before is 4052.
    assert (last[51], seasonal[51]) == (5049, 4052)
    assert rolled.actual[51, 0] == 5052
    # Windows with step 50, and the one that ends after the series, cannot be judged.
    assert np.flatnonzero(np.isnan(rolled.actual[:, 0])).tolist() == [49, 50, 95]
    # Every residual of seasonal naive since the second day is 1000, whatever the level.
    assert set(rolled.naive["seasonal_naive"].quantiles) == set(MARGINS)
    bound = rolled.naive["seasonal_naive"].quantiles["add"][:, 0]
    np.testing.assert_array_equal(bound, np.repeat((seasonal + 1000)[:, None], bound.shape[1], axis=1))


def test_a_rate_missing_from_the_start_is_not_taken_from_later(make_series):
    values = np.full(6 * DAY_STEPS, 7.0)
    values[np.arange(3) * DAY_STEPS + 10] = np.nan
    rolled = roll_lead(make_series(values), target=Target(0.9, 1, 100), first=2 * DAY_STEPS)
    assert np.isnan(rolled.naive["seasonal_naive"].point[[10, 10 + DAY_STEPS], 0]).all()
    assert rolled.naive["seasonal_naive"].point[10 + 2 * DAY_STEPS, 0] == 7.0


def test_a_horizon_within_the_lead_window_has_no_day_ahead(daily):
    with pytest.raises(ForecastError, match="ends with the lead window"):
        roll_day_ahead(daily(6), target=Target(0.9, 2, 2), first=FIRST, refit_steps=DAY_STEPS)


def test_steps_of_an_hour_are_an_origin_each(make_series):
    values = 100 + 50 * np.sin(2 * np.pi * np.arange(7 * 24) / 24)
    series = make_series(values)
    hourly = type(series)(series.workload_class, series.metric, series.start, timedelta(hours=1), values)
    rolled = roll_day_ahead(hourly, target=Target(0.9, 2, 40), first=5 * 24, refit_steps=24)
    assert rolled.quantiles.shape == (48, 22, 8)
    assert np.isfinite(rolled.quantiles).all()
