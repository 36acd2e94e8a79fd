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
from forecasting import backtest, outlook
from forecasting.forecast import Forecast, Request, StoredFit, forecast_all
from forecasting.models import BY_NAME, CANDIDATES
from forecasting.models.base import IntArray, Parameters
from forecasting.models.schedule import SCHEDULES
from forecasting.outlook import NO_MODEL
from forecasting.rows import MIXTURE, Row, fits_frame, scores_frame
from forecasting.selection import fit_series
from forecasting.series import FloatArray, Series, View
from forecasting.verdict import Target, at_level, target_ends

Make = Callable[[FloatArray], Series]
TARGET = Target(quantile=0.95, lead_steps=2, horizon_steps=48)


def fit(series: Series, *, horizon: str = "outlook") -> tuple[Row, list[Row]]:
    fits, scores = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    (row,) = [row for row in fits if row["horizon"] == horizon]
    return row, [score for score in scores if score["horizon"] == horizon]


def shares(row: Row) -> dict[str, float]:
    weights: dict[str, float] = json.loads(str(row["parameters"]))["model"]["weights"]
    return weights


def test_a_daily_cycle_gets_seasonal_models_that_together_beat_last_value(daily: Callable[..., Series]) -> None:
    row, scores = fit(daily(14, noise=0.03))
    by_model = {str(score["model"]): score for score in scores}
    weights = shares(row)
    assert row["model"] == MIXTURE
    assert sum(weights.values()) == pytest.approx(1)
    assert not weights.keys() & {"last_value", "day_average"}, "they do not know the time of day"
    assert {str(score["model"]) for score in scores if score["chosen"]} == {*weights, MIXTURE}
    assert {name: by_model[name]["weight"] for name in weights} == weights
    assert by_model[MIXTURE]["pinball"] < 0.4 * by_model["last_value"]["pinball"]  # type: ignore[operator]
    every = {*(model.name for model in CANDIDATES), *(schedule.name for schedule in SCHEDULES), MIXTURE}
    assert set(by_model) == every, "every candidate's score is recorded"


def test_weights_fall_with_the_loss_over_the_least_and_the_lightest_are_left_out(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last value, the same with a drift, and one that jumps; weights are exp(-8 (loss / least - 1)), of above 2 %."""
    rivals = (
        Faulty("last", lambda horizon, view: np.full(horizon, view.values[-1])),
        Faulty("drift", lambda horizon, view: view.values[-1] + np.arange(horizon)),
        Faulty("jumps", lambda horizon, view: np.full(horizon, view.values[-1] * (5 if len(view.values) % 2 else 0.2))),
    )
    monkeypatch.setattr(outlook, "CANDIDATES", rivals)
    row, scores = fit(daily(9, noise=0.1))
    losses = {str(score["model"]): float(str(score["pinball"])) for score in scores if score["origins"]}
    least = min(losses["last"], losses["drift"])
    raw = {rival.name: np.exp(-8 * (losses[rival.name] / least - 1)) for rival in rivals}
    assert raw["jumps"] < 0.02
    total = raw["last"] + raw["drift"]
    assert shares(row) == pytest.approx({"last": raw["last"] / total, "drift": raw["drift"] / total})


def test_too_little_history_gets_no_model_and_the_reason(make_series: Make) -> None:
    row, scores = fit(make_series(np.array([*np.ones(20), *np.full(200, np.nan)])))
    assert (row["model"], scores) == (NO_MODEL, [])
    assert "only 20 steps were observed" in str(row["reason"])


def test_half_a_day_of_history_is_forecast_by_the_only_candidate_that_suits(make_series: Make) -> None:
    row, _ = fit(make_series(np.linspace(10, 20, 48)))
    assert shares(row) == {"last_value": 1}
    assert str(row["reason"]).startswith("last_value alone suits; day_average: history of 8h is under 1d; ")


@pytest.mark.parametrize("early", [0.0, np.nan])
def test_a_class_that_was_idle_or_unseen_until_lately_is_forecast_from_what_came_since(
    early: float, make_series: Make
) -> None:
    values = np.concatenate([np.full(70, early), np.linspace(100, 140, 30)])
    row, scores = fit(make_series(values))
    assert row["model"] == (MIXTURE if early == 0 else NO_MODEL)
    assert row["reason"]
    assert len(scores) == len(CANDIDATES) + (early == 0) * (len(SCHEDULES) + 1)
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

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        return np.stack([self.path(horizon, view.first(origin)) for origin in origins])


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
    monkeypatch.setattr(outlook, "CANDIDATES", (Faulty("faulty", path), BY_NAME["last_value"]))
    row, scores = fit(daily(3))
    faulty = next(score for score in scores if score["model"] == "faulty")
    assert shares(row) == {"last_value": 1}
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

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        return BY_NAME["last_value"].paths(parameters, view, origins, horizon)


def test_the_backtest_is_fitted_on_what_came_before_its_first_origin_only(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    series = daily(9)
    watched = Watched([])
    monkeypatch.setattr(outlook, "CANDIDATES", (watched,))
    fit(series)
    assert backtest.origin_steps(series.view(series.end))[0] == 4 * 96
    assert watched.given == [4 * 96, len(series.values)]


def test_a_candidate_that_fails_on_all_data_is_disqualified_and_the_others_weighed_anew(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched([], refuse_above=4 * 96)
    wild = Faulty("wild", lambda horizon, view: np.full(horizon, 3 * view.values[-1]))
    monkeypatch.setattr(outlook, "CANDIDATES", (watched, wild))
    row, scores = fit(daily(9, noise=0.4))
    assert shares(row) == {"wild": 1}
    failed = next(score for score in scores if score["model"] == "watched")
    assert (failed["error"], failed["chosen"]) == ("on all data: RuntimeError: too much", False)


def test_where_every_candidate_fails_there_is_no_model(
    daily: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "CANDIDATES", (Faulty("faulty", _crash),))
    row, _ = fit(daily(3))
    assert (row["model"], row["reason"]) == (NO_MODEL, "every candidate failed its backtest")


@pytest.mark.parametrize(("days", "before"), [(20, 14), (10, 4), (8, 4), (6, 4), (3, 2)])
def test_origins_fall_on_many_times_of_day_and_leave_four_days_or_two_thirds_to_learn_from(
    days: int, before: int, daily: Callable[..., Series]
) -> None:
    series = daily(days)
    origins = backtest.origin_steps(series.view(series.end))
    assert origins[0] == before * 96
    assert len(origins) <= backtest.MAX_ORIGINS
    assert len({origin % 96 for origin in origins.tolist()}) >= min(len(origins), 96) * 0.9


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


def outcome(series: Series, *fits: Row, cutoff: datetime | None = None, target: Target = TARGET) -> Forecast | str:
    stored = [StoredFit(str(row["model"]), str(row["parameters"]), str(row["margins"])) for row in fits]
    request = Request(
        series=series,
        cutoff=cutoff or series.end,
        target=target,
        lead=stored[0],
        outlook=stored[1] if len(stored) > 1 else None,
    )
    [made] = forecast_all([request])
    return made


def forecast(series: Series, *fits: Row, cutoff: datetime | None = None, target: Target = TARGET) -> pl.DataFrame:
    made = outcome(series, *fits, cutoff=cutoff, target=target)
    assert isinstance(made, Forecast), made
    return made.frame


def test_the_lead_window_comes_from_its_experts_and_the_outlook_from_its_own(daily: Callable[..., Series]) -> None:
    series = daily(8, noise=0.05)
    (lead, _), (later, _) = fit(series, horizon="lead"), fit(series)
    assert lead["model"] == MIXTURE
    models = forecast(series, lead, later)["model"].to_list()
    assert len(set(models[:2])) == len(set(models[2:])) == 1
    for label in (models[0], models[2]):
        named = [float(part.split()[1]) for part in label.split(", ")]
        assert sum(named) == pytest.approx(1, abs=0.03), "the label names the experts of most weight"
    assert max(shares(later), key=shares(later).__getitem__) == models[2].split()[0]
    assert len(forecast(series, lead)) == 2, "without a model for the outlook only the lead window is forecast"


def test_late_data_leave_the_whole_window_of_a_floor_due_now_to_the_experts(daily: Callable[..., Series]) -> None:
    """Data three steps behind: the lead window of two steps ends five steps after the cutoff."""
    series = daily(8, noise=0.05)
    fits, _ = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    late = forecast(series, *fits, target=replace(TARGET, late_steps=3))
    models = late["model"].to_list()
    assert [label == models[0] for label in models] == [True] * 5 + [False] * (TARGET.horizon_steps - 5)


def test_an_expert_that_fails_when_forecasting_leaves_its_weight_to_the_others_on_record(
    daily: Callable[..., Series],
) -> None:
    series = daily(9, noise=0.1)
    broken = []
    for row in (fit(series, horizon="lead")[0], fit(series)[0]):
        parameters = json.loads(str(row["parameters"]))
        experts = parameters["model"].get("experts", parameters["model"])
        kept = experts["mstl_ets_day"]
        for generation in (kept["then"], kept["now"]) if "then" in kept else (kept,):
            del generation["smoothing"]
        broken.append({**row, "parameters": json.dumps(parameters)})
    made = outcome(series, *broken)
    assert isinstance(made, Forecast)
    assert made.failed == ("mstl_ets_day: KeyError: 'smoothing'",) * 2
    assert made.lacks_outlook is None
    assert "mstl_ets_day" not in "".join(made.frame["model"].unique())


def test_an_outlook_without_any_expert_left_is_none_and_says_why(daily: Callable[..., Series]) -> None:
    series = daily(5, noise=0.1)
    lead, later = fit(series, horizon="lead")[0], fit(series)[0]
    parameters = json.loads(str(later["parameters"]))
    parameters["model"]["experts"] = {"crystal_ball": {}}
    made = outcome(series, lead, {**later, "parameters": json.dumps(parameters)})
    assert isinstance(made, Forecast)
    assert "crystal_ball: KeyError" in str(made.lacks_outlook)


def test_what_came_since_the_fit_corrects_the_margins(daily: Callable[..., Series]) -> None:
    """Fitted at day 10; since then 1.3 times as much, of which a mean of three days knows too little. The upper
    quantile is raised, beside the same fit without anything known since."""
    series = daily(12, noise=0.05)
    cutoff = series.start + timedelta(days=10)
    (lead, later), _ = fit_series(series, cutoff=cutoff, target=TARGET, timer=itertools.count().__next__)
    values = series.values.copy()
    values[10 * 96 :] *= 1.3
    parameters = json.loads(str(later["parameters"]))
    parameters["model"] |= {"weights": {"seasonal_average_day": 1.0}, "experts": {"seasonal_average_day": {}}}
    bounds = []
    for since in (0, 36 * 4):
        parameters["model"]["fitted"] += since
        row = {**later, "parameters": json.dumps(parameters)}
        frame = forecast(replace(series, values=values), lead, row, cutoff=cutoff + timedelta(hours=36))
        bounds.append(frame["q95"].to_numpy()[TARGET.lead_steps :])
    assert (bounds[0] > 1.03 * bounds[1]).all()


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
