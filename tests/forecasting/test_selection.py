"""Backtest, choice of the outlook's model, and the forecasts that come of fits."""

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from floorcast.columns import FITS, FORECASTS, QUANTILE_COLUMNS, SCORES
from forecasting import backtest, selection
from forecasting.forecast import Forecast, Request, StoredFit, forecast_all
from forecasting.lead import MIXTURE
from forecasting.models import BY_NAME, CANDIDATES
from forecasting.models.base import Parameters
from forecasting.rows import Row, fits_frame, scores_frame
from forecasting.selection import NO_MODEL, fit_series
from forecasting.series import FloatArray, Series, View
from forecasting.verdict import Target, at_level, target_ends

Make = Callable[[FloatArray], Series]
TARGET = Target(quantile=0.95, lead_steps=2, horizon_steps=48)


def fit(series: Series, *, horizon: str = "outlook") -> tuple[Row, list[Row]]:
    fits, scores = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    (row,) = [row for row in fits if row["horizon"] == horizon]
    return row, [score for score in scores if score["horizon"] == horizon]


def test_a_daily_cycle_gets_a_seasonal_model_that_beats_last_value(daily: Callable[..., Series]) -> None:
    row, scores = fit(daily(14, noise=0.03))
    by_model = {str(score["model"]): score for score in scores}
    assert "seasonal" in str(row["model"]) or "mstl" in str(row["model"]) or "arima" in str(row["model"])
    assert by_model[str(row["model"])]["pinball"] < 0.7 * by_model["last_value"]["pinball"]  # type: ignore[operator]
    assert [score["model"] for score in scores if score["chosen"]] == [row["model"]]
    assert set(by_model) == {model.name for model in CANDIDATES}, "every candidate's score is recorded"


def test_a_candidate_that_is_better_only_by_noise_loses_to_a_simpler_one(
    make_series: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival forecasts the same walk a thousandth lower, which is a little better by luck of the sample."""
    walk = make_series(1000 + np.cumsum(np.random.default_rng(5).standard_normal(10 * 96)))
    rival = Faulty("rival", lambda horizon, view: np.full(horizon, view.values[-1] * 1.0001))
    monkeypatch.setattr(selection, "CANDIDATES", (BY_NAME["last_value"], rival))
    row, scores = fit(walk)
    pinball = {str(score["model"]): float(str(score["pinball"])) for score in scores}
    assert pinball["rival"] != pinball["last_value"]
    assert row["model"] == "last_value"


def test_too_little_history_gets_no_model_and_the_reason(make_series: Make) -> None:
    row, scores = fit(make_series(np.array([*np.ones(20), *np.full(200, np.nan)])))
    assert (row["model"], scores) == (NO_MODEL, [])
    assert "only 20 steps were observed" in str(row["reason"])


def test_half_a_day_of_history_is_forecast_by_the_only_candidate_that_suits(make_series: Make) -> None:
    row, _ = fit(make_series(np.linspace(10, 20, 48)))
    assert row["model"] == "last_value"
    assert "seasonal_naive_day: history of 8h is under 2d" in str(row["reason"])


@pytest.mark.parametrize("early", [0.0, np.nan])
def test_a_class_that_was_idle_or_unseen_until_lately_is_forecast_from_what_came_since(
    early: float, make_series: Make
) -> None:
    values = np.concatenate([np.full(70, early), np.linspace(100, 140, 30)])
    row, scores = fit(make_series(values))
    assert row["model"] == ("last_value" if early == 0 else NO_MODEL)
    assert row["reason"]
    assert len(scores) == len(CANDIDATES)
    assert fit(make_series(values), horizon="lead")[0]["model"] == MIXTURE


@dataclass(frozen=True)
class Faulty:
    """A candidate that fails in a chosen way."""

    name: str
    path: Callable[[int, View], FloatArray]

    def lacks(self, view: View) -> str | None:
        return None

    def fit(self, view: View) -> Parameters:
        return {}

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        return self.path(horizon, view)


def _crash(horizon: int, view: View) -> FloatArray:
    raise ZeroDivisionError("of all things")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (_crash, "ZeroDivisionError: of all things"),
        (lambda horizon, view: np.full(horizon, np.nan), "unusable"),
        (lambda horizon, view: np.full(horizon, -1.0), "unusable"),
        (lambda horizon, view: np.ones(horizon - 1), "a forecast of shape"),
    ],
)
def test_a_candidate_that_fails_is_disqualified_on_record(
    path: Callable[[int, View], FloatArray], said: str, daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "CANDIDATES", (Faulty("faulty", path), BY_NAME["last_value"]))
    row, scores = fit(daily(3))
    faulty = next(score for score in scores if score["model"] == "faulty")
    assert row["model"] == "last_value"
    assert said in str(faulty["error"])
    assert faulty["pinball"] is None


@dataclass(frozen=True)
class Watched:
    """Last value under another name, that notes how much each fit was given and may refuse one."""

    given: list[int]
    refuse_above: int = 10**9
    name: str = "watched"

    def lacks(self, view: View) -> str | None:
        return None

    def fit(self, view: View) -> Parameters:
        self.given.append(len(view.values))
        if len(view.values) > self.refuse_above:
            raise RuntimeError("too much")
        return {}

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        return BY_NAME["last_value"].predict(parameters, view, horizon)


def test_the_backtest_is_fitted_on_what_came_before_its_first_origin_only(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    series = daily(9)
    watched = Watched([])
    monkeypatch.setattr(selection, "CANDIDATES", (watched,))
    fit(series)
    assert watched.given[0] == backtest.origin_steps(series.view(series.end))[0] == 6 * 96
    assert set(watched.given[1:]) == {len(series.values)}


def test_a_candidate_that_fails_on_all_data_is_disqualified_and_the_next_best_taken(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched([], refuse_above=6 * 96)
    wild = Faulty("wild", lambda horizon, view: np.full(horizon, 3 * view.values[-1]))
    monkeypatch.setattr(selection, "CANDIDATES", (watched, wild))
    row, scores = fit(daily(9, noise=0.4))
    assert row["model"] == "wild"
    failed = next(score for score in scores if score["model"] == "watched")
    assert (failed["error"], failed["chosen"]) == ("on all data: RuntimeError: too much", False)


def test_where_every_candidate_fails_there_is_no_model(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "CANDIDATES", (Faulty("faulty", _crash),))
    row, _ = fit(daily(3))
    assert (row["model"], row["reason"]) == (NO_MODEL, "every candidate failed its backtest")


def test_origins_fall_on_many_times_of_day_and_leave_two_thirds_to_learn_from(daily: Callable[..., Series]) -> None:
    series = daily(20)
    origins = backtest.origin_steps(series.view(series.end))
    assert len({origin % 96 for origin in origins}) > 0.9 * len(origins)
    assert origins[0] >= len(series.values) * 2 / 3
    assert origins[0] == len(series.values) - 4 * 96


def test_shuffling_the_future_changes_no_fit_and_no_forecast(daily: Callable[..., Series]) -> None:
    series = daily(10, noise=0.1)
    cutoff = series.start + timedelta(days=7)
    shuffled = series.values.copy()
    np.random.default_rng(1).shuffle(shuffled[7 * 96 :])
    other = Series(series.workload_class, series.metric, series.start, series.step, shuffled)
    results = []
    for each in (series, other):
        fits, scores = fit_series(each, cutoff=cutoff, target=TARGET, timer=itertools.count().__next__)
        results.append((fits, scores, forecast(each, fits[0], fits[1], cutoff=cutoff)))
    assert results[0][:2] == results[1][:2]
    assert results[0][2].equals(results[1][2])


def outcome(series: Series, *fits: Row, cutoff: datetime | None = None) -> Forecast | str:
    stored = [StoredFit(str(row["model"]), str(row["parameters"]), str(row["margins"])) for row in fits]
    request = Request(
        series=series,
        cutoff=cutoff or series.end,
        target=TARGET,
        lead=stored[0],
        outlook=stored[1] if len(stored) > 1 else None,
    )
    [made] = forecast_all([request])
    return made


def forecast(series: Series, *fits: Row, cutoff: datetime | None = None) -> pl.DataFrame:
    made = outcome(series, *fits, cutoff=cutoff)
    assert isinstance(made, Forecast), made
    return made.frame


def test_the_lead_window_comes_from_the_experts_and_the_outlook_from_its_model(daily: Callable[..., Series]) -> None:
    series = daily(8, noise=0.05)
    (lead, _), (outlook, _) = fit(series, horizon="lead"), fit(series)
    assert lead["model"] == MIXTURE
    models = forecast(series, lead, outlook)["model"].to_list()
    assert models[2:] == [outlook["model"]] * (TARGET.horizon_steps - 2)
    shares = [float(part.split()[1]) for part in models[0].split(", ")]
    assert 0.5 < sum(shares) <= 1.01, "the label names the experts of most weight"
    assert len(forecast(series, lead)) == 2, "without a model for the outlook only the lead window is forecast"


def test_without_an_outlook_no_second_choice_is_made(make_series: Make) -> None:
    series = make_series(np.linspace(10, 20, 200))
    short = Target(quantile=0.95, lead_steps=4, horizon_steps=4)
    fits, _ = fit_series(series, cutoff=series.end, target=short, timer=itertools.count().__next__)
    assert [row["horizon"] for row in fits] == ["lead"]


@pytest.mark.parametrize(
    ("lead", "horizon", "ends"),
    [(2, 20, (1, 2, 4, 8, 16, 20)), (3, 3, (1, 3)), (5, 4, (1, 4)), (4, 64, (1, 4, 8, 16, 32, 64))],
)
def test_margins_are_kept_for_the_first_step_the_lead_window_and_doubling_horizons(
    lead: int, horizon: int, ends: tuple[int, ...]
) -> None:
    assert target_ends(Target(quantile=0.95, lead_steps=lead, horizon_steps=horizon)) == ends


def test_without_a_whole_lead_window_there_is_no_forecast_rather_than_one_without_margins(
    make_series: Make,
) -> None:
    """Every other step is missing: no greatest rate of two steps was ever seen."""
    values = np.where(np.arange(600) % 2, np.nan, 1000 + 300 * np.random.default_rng(1).standard_normal(600))
    series = make_series(values[:-1])
    fits, _ = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    assert "only 0 lead windows were observed whole; margins need 12" in str(outcome(series, *fits))


def test_a_fit_that_raises_costs_its_series_the_model_and_says_why(daily: Callable[..., Series]) -> None:
    """A lead window of a day or more is none of the experts' business."""
    series = daily(4)
    long = Target(quantile=0.95, lead_steps=96, horizon_steps=200)
    fits, _ = fit_series(series, cutoff=series.end, target=long, timer=itertools.count().__next__)
    lead = next(row for row in fits if row["horizon"] == "lead")
    assert (lead["model"], "shorter than a day" in str(lead["reason"])) == (NO_MODEL, True)


def test_rows_become_the_frames_that_the_store_takes(daily: Callable[..., Series]) -> None:
    series = daily(4, noise=0.05)
    fits, scores = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    assert dict(fits_frame(fits).schema) == dict(FITS)
    assert dict(scores_frame(scores).schema) == dict(SCORES)
    frame = forecast(series, *fits)
    assert dict(frame.schema) == dict(FORECASTS)
    assert frame.height == TARGET.horizon_steps
    assert frame["step_start"][0] == frame["cutoff"][0]
    values = frame.select(QUANTILE_COLUMNS).to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (values >= 0).all()


def test_a_fit_made_for_another_step_is_not_used(daily: Callable[..., Series]) -> None:
    series = daily(4)
    lead, outlook = fit(series, horizon="lead")[0], fit(series)[0]
    hourly = replace(series, step=timedelta(hours=1))
    said = outcome(hourly, lead, outlook)
    assert isinstance(said, str)
    assert "mixture was fitted for step 15m, " in said
    assert "now it is step 1h" in said
    other = json.dumps({**json.loads(str(outlook["parameters"])), "settings": "step 1h"})
    made = outcome(series, lead, {**outlook, "parameters": other})
    assert isinstance(made, Forecast)
    assert "was fitted for step 1h" in str(made.lacks_outlook)


def test_a_stored_model_that_is_gone_is_an_error_not_another_model(daily: Callable[..., Series]) -> None:
    series = daily(4)
    lead, outlook = fit(series, horizon="lead")[0], fit(series)[0]
    gone = {**outlook, "model": "crystal_ball"}
    assert "the stored model 'crystal_ball' is not known" in str(outcome(series, gone, outlook))
    made = outcome(series, lead, gone)
    assert isinstance(made, Forecast)
    assert "the stored model 'crystal_ball' is not known" in str(made.lacks_outlook)
    assert made.frame.height == TARGET.lead_steps, "a failing outlook does not cost the lead window"


@pytest.mark.parametrize(("level", "value"), [(0.5, 3.0), (0.95, 6.0), (0.925, 5.5), (0.99, 8.0), (0.1, 1.0)])
def test_a_level_between_two_is_interpolated(level: float, value: float) -> None:
    assert at_level(np.arange(1.0, 9.0), level) == pytest.approx(value)


def test_the_published_quantile_covers_about_its_share(daily: Callable[..., Series]) -> None:
    """Fit on ten noisy days, forecast hourly through the next four: within four points of 95 % at 5-step horizons."""
    series = daily(14, noise=0.15)
    first = series.start + timedelta(days=10)
    fits, _ = fit_series(series, cutoff=first, target=TARGET, timer=itertools.count().__next__)
    hits = []
    for hour in range(4 * 24 - 2):
        cutoff = first + timedelta(hours=hour)
        bound = forecast(series, *fits, cutoff=cutoff)["q95"].to_numpy()[:5]
        place = (cutoff - series.start) // series.step
        came = series.values[place : place + 5]
        hits += [came[:2].max() <= bound[:2].max(), *(came[2:] <= bound[2:])]
    assert abs(np.mean(hits) - 0.95) < 0.04
