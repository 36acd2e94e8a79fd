"""Point forecasts of the lead window at many origins."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from statsforecast.models import AutoETS

from forecasting.mixture.experts import EXPERTS, Expert
from forecasting.mixture.past import Past
from forecasting.models.mstl_ets import MSTL_ETS_DAY
from forecasting.series import FloatArray, View

STEP = timedelta(minutes=15)
DAY_STEPS = 96
BY_NAME = {expert.name: expert for expert in EXPERTS}


def view(values: FloatArray, step: timedelta = STEP) -> View:
    return View(datetime(2026, 11, 2, tzinfo=UTC), step, np.asarray(values, dtype=float))


def last(name: str, values: FloatArray, lead_steps: int = 2) -> list[float]:
    seen = view(values)
    return list(BY_NAME[name].paths(Past(seen, len(seen.values), lead_steps), {})[-1])


def test_each_expert_by_hand() -> None:
    """Two days of 100 with 400 at the third step of each, then 100, 130, and the third step ahead."""
    day = np.full(DAY_STEPS, 100.0)
    day[2] = 400.0
    values = np.concatenate([day, day, [100.0, 130.0]])
    assert last("last_value", values) == [130, 130]
    assert last("recent_peak", np.append(values, [90.0])) == [130, 130], "of the last half hour"
    assert last("upward_trend", values) == pytest.approx([130 + 0.6 * 30, 130 + 0.6 * 30 * 1.9])
    assert last("upward_trend", np.append(values, 50.0)) == [50, 50], "a fall does not go on"
    assert last("daily_shape_added", values) == pytest.approx([130 + 300, 130])
    base = 0.02 * values.mean()
    ratio = (130 + base) / (100 + base)
    assert last("daily_shape_scaled", values) == pytest.approx(
        [(400 + base) * ratio - base, (100 + base) * ratio - base]
    )
    scaled = last("daily_shape_scaled", values)
    assert last("blend", values) == pytest.approx([(130 + 400 + scaled[0]) / 3, (130 + 100 + scaled[1]) / 3])


def test_a_missing_step_is_bridged_and_a_missing_day_falls_back_on_the_others() -> None:
    day = np.full(DAY_STEPS, 100.0)
    day[1] = 500.0
    yesterday = day.copy()
    yesterday[1] = np.nan
    assert last("daily_shape_added", np.concatenate([day, yesterday, [100.0]]), 1) == [500]
    assert last("last_value", np.array([5.0, 7.0, np.nan])) == [7, 7]


def test_no_expert_goes_above_three_times_the_greatest_rate_or_below_zero() -> None:
    values = np.concatenate([np.full(DAY_STEPS, 0.01), [0.01, 50.0, 1.0], np.full(DAY_STEPS - 3, 0.01), [90.0, 100.0]])
    for expert in EXPERTS:
        if expert.fit is None and expert.name != "weekly_shape_added":
            past = Past(view(values), DAY_STEPS + 1, 3)
            paths = expert.paths(past, {})
            assert np.nanmax(paths / past.highest()[:, None]) <= 3
            assert np.nanmin(paths) >= 0


@pytest.mark.parametrize("expert", EXPERTS, ids=lambda expert: expert.name)
def test_what_comes_after_an_origin_changes_none_of_its_forecasts(expert: Expert, daily: Callable[..., object]) -> None:
    series = daily(10, noise=0.3)
    values = series.values.copy()  # type: ignore[attr-defined]
    first, origin = 8 * DAY_STEPS, 9 * DAY_STEPS
    values[6 * DAY_STEPS + 5 : 8 * DAY_STEPS - 3] = np.nan  # an outage before the first origin
    parameters = expert.fit(view(values[:first])) if expert.fit else {}
    before = expert.paths(Past(view(values), first, 3), parameters)
    for future in (100 * values[origin:], np.full(len(values) - origin, np.nan), np.zeros(len(values) - origin)):
        after = expert.paths(Past(view(np.concatenate([values[:origin], future])), first, 3), parameters)
        np.testing.assert_array_equal(before[: origin - first + 1], after[: origin - first + 1])
        assert not np.array_equal(before[origin - first + 1 :], after[origin - first + 1 :])


@given(values=arrays(float, 60, elements=st.one_of(st.floats(0, 1e6), st.just(np.nan))), first=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_every_row_is_what_that_origin_alone_would_forecast(values: FloatArray, first: int) -> None:
    """The arrays that serve all origins at once, beside one origin at a time; hourly, so that days fit in."""
    seen = view(values, timedelta(hours=1))
    for expert in EXPERTS:
        if expert.fit is None:
            together = expert.paths(Past(seen, first, 2), {})
            for row, origin in enumerate(range(first, len(values) + 1)):
                alone = expert.paths(Past(seen.first(origin), origin, 2), {})[-1]
                np.testing.assert_allclose(together[row], alone, rtol=1e-9, atol=1e-9, err_msg=expert.name)


def test_a_step_at_the_origin_is_refused() -> None:
    past = Past(view(np.arange(10.0)), 5, 2)
    for reach in (past.back, past.exactly):
        with pytest.raises(ValueError, match="at or after the origin"):
            reach(0)


def test_the_states_of_mstl_follow_statsforecasts_ets(daily: Callable[..., object]) -> None:
    """One step ahead from each of some origins, beside its own `forward` over the same adjusted values, both from the
    level of the first day."""
    series = daily(8, noise=0.1)
    values = series.values  # type: ignore[attr-defined]
    seen = view(values)
    parameters = MSTL_ETS_DAY.fit(seen)
    first = 6 * DAY_STEPS
    paths = MSTL_ETS_DAY.paths(parameters, seen, np.arange(first, len(values) + 1), 1)
    shape = np.resize(np.asarray(parameters["shape"]), len(values) + 1)
    adjusted = np.log(values + parameters["offset"]) - shape[:-1]
    alpha, beta, phi = parameters["smoothing"]
    assert (beta, phi) == (0, 0), "a level without a trend suits a sine with noise"
    for origin in (first, first + 17, len(values)):
        ets = AutoETS(season_length=1, model="ANN")
        ets.model_ = {
            "m": 1,
            "components": "ANNN",
            "par": np.array([alpha, np.nan, np.nan, np.nan, float(adjusted[:DAY_STEPS].mean())]),
            "n_params": 2,
            "fit": None,
        }
        level = ets.forward(adjusted[:origin], h=1)["mean"][0]
        assert paths[origin - first, 0] == pytest.approx(np.exp(level + shape[origin]) - parameters["offset"])
