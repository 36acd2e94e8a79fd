"""From a series to quantiles of the greatest rate within the lead window."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from floorcast.columns import QUANTILE_LEVELS, Metric
from forecasting.lead import LEAST_EARNED, fit_lead, named
from forecasting.mixture import EXPERTS, Combined, Expert, Panel, assemble, combine, first_origin, replay
from forecasting.mixture import experts as experts_module
from forecasting.models import Parameters
from forecasting.rows import label
from forecasting.series import FloatArray, Series
from forecasting.verdict import Target

START = datetime(2026, 11, 2, tzinfo=UTC)
Daily = Callable[..., Series]
TARGET = Target(quantile=0.95, lead_steps=3, horizon_steps=12)
AT_50, AT_95 = QUANTILE_LEVELS.index(0.5), QUANTILE_LEVELS.index(0.95)


def made(series: Series, lead_steps: int = 3) -> tuple[Panel, Combined]:
    view = series.view(series.end)
    history = first_origin(view) * view.step
    fitted = {expert.name: {} for expert in EXPERTS if expert.fit is None and expert.needs <= history}
    panel = assemble(view, then=fitted, now=fitted, lead_steps=lead_steps)
    return panel, combine([panel])[0]


def test_the_steps_of_the_window_hold_together(daily: Daily) -> None:
    """The greatest of a level over the window is that level's quantile of the window's greatest rate."""
    panel, combined = made(daily(10, noise=0.2))
    assert combined.quantiles.shape == (3, len(QUANTILE_LEVELS))
    np.testing.assert_allclose(combined.quantiles.max(axis=0), combined.past[-1])
    assert len(panel.actual) == len(combined.past) == 10 * 96 - first_origin(daily(10).view(daily(10).end)) + 1
    assert np.isnan(panel.actual[-3:]).all(), "windows that are not over"


def test_the_target_is_the_greatest_rate_and_missing_where_one_of_its_steps_is(
    make_series: Callable[..., Series],
) -> None:
    values = np.arange(300.0)
    values[250] = np.nan
    panel, _ = made(make_series(values))
    first = first_origin(make_series(values).view(make_series(values).end))
    assert panel.actual[0] == first + 2
    assert np.flatnonzero(np.isnan(panel.actual[:-3])).tolist() == [248 - first, 249 - first, 250 - first]


def test_series_of_unequal_length_are_combined_as_if_alone(daily: Daily) -> None:
    series = [daily(10, noise=0.2), daily(4, noise=0.1)]
    panels, alone = zip(*(made(each) for each in series), strict=True)
    for together, single in zip(combine(list(panels)), alone, strict=True):
        np.testing.assert_allclose(together.quantiles, single.quantiles)
        assert together.past.shape == single.past.shape


def test_origins_of_short_steps_lie_ten_minutes_apart_and_the_last_is_the_cutoff() -> None:
    """At two minutes a step and a lead of 7 steps, a target is known two origins later."""
    values = 100 + np.random.default_rng(1).normal(0, 5, 3 * 720 + 3)
    series = Series("chat", Metric.TOKENS_IN, START, timedelta(minutes=2), values)
    panel, combined = made(series, lead_steps=7)
    assert (panel.spacing, panel.overlap, panel.apart) == (5, 2, timedelta(minutes=10))
    assert np.isnan(panel.actual).sum() == 2
    assert panel.actual[-3] == values[-10:-3].max()
    assert combined.quantiles.shape == (7, len(QUANTILE_LEVELS))
    known = ~np.isnan(panel.actual)
    assert np.mean(panel.actual[known] <= combined.past[known, AT_95]) == pytest.approx(0.95, abs=0.03)


def test_a_replay_knows_nothing_of_what_comes(daily: Daily) -> None:
    series = daily(6, noise=0.2)
    cut = 5 * 96 + 7
    shuffled = series.values.copy()
    np.random.default_rng(1).shuffle(shuffled[cut:])
    other = Series(series.workload_class, series.metric, series.start, series.step, shuffled)
    whole, changed, short = (
        replay(view, lead_steps=3, first_origin=4 * 96)
        for view in (series.view(series.end), other.view(other.end), series.view(series.start + cut * series.step))
    )
    assert whole.shape == (2 * 96, len(QUANTILE_LEVELS))
    np.testing.assert_array_equal(whole[: cut - 4 * 96 + 1], changed[: cut - 4 * 96 + 1])
    np.testing.assert_array_equal(whole[: cut - 4 * 96], short)


def test_the_lead_window_is_covered_as_promised_and_beats_last_value(daily: Daily) -> None:
    series = daily(16, noise=0.1)
    view = series.view(series.end)
    quantiles = replay(view, lead_steps=3, first_origin=8 * 96)
    windows = np.lib.stride_tricks.sliding_window_view(series.values[8 * 96 :], 3).max(axis=1)
    for place in (AT_50, AT_95):
        assert np.mean(windows <= quantiles[: len(windows), place]) == pytest.approx(QUANTILE_LEVELS[place], abs=0.025)
    row, scores = fit_lead(view, {}, target=TARGET, timer=itertools.count().__next__)
    by_model = {str(score["model"]): score for score in scores}
    assert set(by_model) == {*(expert.name for expert in EXPERTS), "mixture"}
    assert by_model["mixture"]["pinball"] < 0.8 * by_model["last_value"]["pinball"]  # type: ignore[operator]
    assert sum(float(str(score["weight"])) for name, score in by_model.items() if name != "mixture") == pytest.approx(1)
    assert "of last value's with the same margins" in str(row["reason"])


def test_where_nothing_beats_last_value_the_reason_says_so(make_series: Callable[..., Series]) -> None:
    walk = make_series(1000 * np.exp(np.cumsum(0.02 * np.random.default_rng(5).standard_normal(10 * 96))))
    row, _ = fit_lead(walk.view(walk.end), {}, target=TARGET, timer=itertools.count().__next__)
    assert str(row["reason"]).startswith("no forecast pays: pinball ")


def test_a_class_that_never_changes_is_forecast_exactly(make_series: Callable[..., Series]) -> None:
    for rate in (0.0, 250.0):
        _, combined = made(make_series(np.full(400, rate)))
        np.testing.assert_allclose(combined.quantiles, rate, atol=1e-3)


@pytest.mark.parametrize("asleep", [0.0, 1e-3, 0.1])
def test_a_class_that_wakes_is_forecast_within_reach_of_what_it_does(
    asleep: float, make_series: Callable[..., Series]
) -> None:
    """Ten days idle, or nearly so, then 1,000 tokens/s: a quarter of an hour, a day and four days later."""
    awake = 1000 * np.exp(0.05 * np.random.default_rng(1).standard_normal(4 * 96))
    for since in (1, 96, 4 * 96):
        _, combined = made(make_series(np.concatenate([np.full(10 * 96, asleep), awake[:since]])))
        assert combined.quantiles[:, AT_95].max() <= 3.01 * awake[:since].max()
        if since > 90:
            assert 1000 < combined.quantiles[:, AT_95].max() < 2000
            assert 800 < combined.quantiles[:, AT_50].max() < 1300


def test_an_expert_that_fails_after_the_fit_leaves_its_weight_to_the_others(
    daily: Daily, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = daily(3, noise=0.1).view(daily(3).end)
    faulty = Expert("faulty", experts_module.PEAK_OVER, _crash)
    monkeypatch.setattr("forecasting.mixture.mixture.EXPERTS", (EXPERTS[0], faulty))
    fitted: dict[str, Parameters] = {"last_value": {}, "faulty": {}}
    [combined] = combine([assemble(view, then=fitted, now=fitted, lead_steps=3)])
    np.testing.assert_allclose(combined.weights.sum(axis=0), 1.0)
    assert (combined.weights[1] == 0).all()


def _crash(past: object, parameters: object) -> FloatArray:
    raise ZeroDivisionError("of all things")


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (_crash, "ZeroDivisionError: of all things"),
        (lambda past, parameters: np.full((past.origins, past.lead_steps), -1.0), "negative or not finite"),
        (lambda past, parameters: np.full((past.origins, past.lead_steps), np.nan), "negative or not finite"),
        (lambda past, parameters: np.ones((past.origins, past.lead_steps + 1)), "returned forecasts of shape"),
    ],
)
def test_an_expert_that_fails_is_disqualified_on_record(
    paths: Callable[..., FloatArray], said: str, daily: Daily, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = Expert("faulty", experts_module.PEAK_OVER, paths)
    for module in ("forecasting.lead", "forecasting.mixture.mixture"):
        monkeypatch.setattr(f"{module}.EXPERTS", (EXPERTS[0], faulty))
    view = daily(3, noise=0.1).view(daily(3).end)
    row, scores = fit_lead(view, {}, target=TARGET, timer=itertools.count().__next__)
    recorded = next(score for score in scores if score["model"] == "faulty")
    assert said in str(recorded["error"])
    assert (recorded["weight"], recorded["chosen"], recorded["pinball"]) == (0.0, False, None)
    assert "faulty" not in str(row["parameters"])


@pytest.mark.parametrize(
    ("quantiles", "said"),
    [
        (_crash, "ZeroDivisionError: of all things"),
        (lambda past, every: np.ones((past.origins, 3)), "returned quantiles of shape"),
        (lambda past, every: np.full((past.origins, len(QUANTILE_LEVELS)), -1.0), "negative, not finite, or crossed"),
        (lambda past, every: np.tile(np.arange(8.0, 0, -1), (past.origins, 1)), "negative, not finite, or crossed"),
    ],
)
def test_an_expert_whose_own_quantiles_fail_leaves_its_weight_to_the_others(
    quantiles: Callable[..., FloatArray], said: str, daily: Daily, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = daily(3, noise=0.1).view(daily(3).end)
    faulty = Expert("faulty", experts_module.PEAK_OVER, EXPERTS[0].paths, quantiles=quantiles)
    monkeypatch.setattr("forecasting.mixture.mixture.EXPERTS", (EXPERTS[0], faulty))
    fitted: dict[str, Parameters] = {"last_value": {}, "faulty": {}}
    panel = assemble(view, then=fitted, now=fitted, lead_steps=3)
    assert said in panel.failed[0]
    [combined] = combine([panel])
    np.testing.assert_allclose(combined.weights[0], 1.0)


def test_an_expert_that_never_earned_weight_is_left_out_until_the_next_fit(daily: Daily) -> None:
    view = daily(16).view(daily(16).end)
    row, scores = fit_lead(view, {}, target=TARGET, timer=itertools.count().__next__)
    kept = set(json.loads(str(row["parameters"]))["model"])
    assert "last_value" in kept
    assert len(kept) < len(EXPERTS)
    assert {str(score["model"]) for score in scores if score["chosen"]} <= {*kept, "mixture"}
    assert LEAST_EARNED < 0.01


def test_the_label_names_three_experts_by_weight_and_what_the_others_have() -> None:
    weights = np.zeros(len(EXPERTS))
    weights[[0, 2, 3, 5]] = 0.1, 0.5, 0.3, 0.1
    assert label(named(weights)) == "recent_peak 0.50, daily_shape_added 0.30, last_value 0.10, others 0.10"
    weights[[0, 5]] = 0.2, 0.0
    assert label(named(weights)) == "recent_peak 0.50, daily_shape_added 0.30, last_value 0.20"
