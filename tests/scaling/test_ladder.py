"""Each rung of the ladder, reached by really taking away what stands above it."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND, FORECASTS, KNOWN_CHANGES, empty
from floorcast.config import Publication
from floorcast.errors import LeakageError
from floorcast.types import Reason
from scaling.floors import plan

STEP = timedelta(minutes=5)
WEEK, DAY = timedelta(days=7), timedelta(days=1)
NO_FORECASTS, NO_HISTORY = empty(FORECASTS), empty(DEMAND)
STEPS = 14
"""A horizon of 12 steps, and the 10 minutes of lead after it."""


def _first(made):
    row = made.floors.row(0, named=True)
    return row["rung"], row["min_replicas"], Reason.model_validate_json(row["reason"])


@pytest.fixture
def series(now):
    """The same rate at each step that the plan covers, shifted into the past by a period."""
    return lambda rate, back=timedelta(0): {now + i * STEP - back: rate for i in range(STEPS)}


def test_a_forecast_of_fifteen_minutes_is_fresh(make_config, make_forecasts, now):
    forecasts = make_forecasts({"chat": [50.0] * STEPS}, cutoff=now - timedelta(minutes=15), spread=100)
    rung, floor, reason = _first(plan(make_config(), now=now, forecasts=forecasts, history=NO_HISTORY, published=None))
    assert (rung, floor) == ("fresh", 10)  # 50 + 100 x 0.45 = 95
    assert reason.classes["chat"].model_out == "ets"


@pytest.mark.parametrize(
    ("interval_min", "age_min", "rung"),
    [(1, 15, "fresh"), (1, 16, "last_forecast"), (10, 30, "fresh"), (10, 31, "last_forecast")],
)
def test_fresh_lasts_three_publication_intervals_or_three_steps(
    *, make_config, make_forecasts, now, interval_min, age_min, rung
):
    """Publishing more often than the grid moves must not make every forecast old."""
    publication = Publication(interval=timedelta(minutes=interval_min))
    config = make_config().model_copy(update={"publication": publication})
    forecasts = make_forecasts({"chat": [50.0] * (STEPS + 1)}, cutoff=now - timedelta(minutes=age_min))
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert made.rungs == {"main": rung}


def test_an_older_forecast_is_widened_by_its_age(make_config, make_forecasts, now):
    """At 6 hours the spread of 45 over a median of 50 grows by 6 h / 12 h to 67.5: 117.5 needs 12 replicas."""
    forecasts = make_forecasts({"chat": [50.0] * STEPS}, cutoff=now - timedelta(hours=6), spread=100)
    made = plan(make_config(), now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    rung, floor, reason = _first(made)
    assert (rung, floor) == ("last_forecast", 12)
    assert reason.tokens_out_per_s == pytest.approx(117.5)
    assert reason.median_tokens_per_s == 50
    assert reason.classes["chat"].model_out == "ets, 6h old, spread x1.50"
    assert made.rungs == {"main": "last_forecast"}


def test_the_newest_forecast_that_covers_a_step_counts(make_config, make_forecasts, now):
    old = make_forecasts({"chat": [90.0] * STEPS}, cutoff=now - timedelta(hours=1))
    new = make_forecasts({"chat": [20.0] * 6}, cutoff=now)
    made = plan(make_config(), now=now, forecasts=pl.concat([new, old]), history=NO_HISTORY, published=None)
    # Windows cover three steps: from the fifth on they reach past the six steps of the new forecast.
    assert made.floors["min_replicas"].to_list() == [2] * 4 + [9] * 8
    assert made.floors["rung"].to_list() == ["fresh"] * 4 + ["last_forecast"] * 8


def test_past_weeks_give_the_maximum_at_the_same_time_of_week(make_config, make_history, series, now):
    """Four weeks count; the fifth, and yesterday, do not."""
    weeks = {30.0: WEEK, 70.0: 2 * WEEK, 40.0: 4 * WEEK, 95.0: 5 * WEEK, 99.0: DAY}
    past = {at: rate for rate, back in weeks.items() for at, _ in series(0, back).items()}
    made = plan(make_config(), now=now, forecasts=NO_FORECASTS, history=make_history({"chat": past}), published=None)
    rung, floor, reason = _first(made)
    assert (rung, floor) == ("past_weeks", 7)
    assert reason.classes["chat"].model_in == "past_weeks_max"


def test_what_is_coming_is_put_onto_past_weeks_and_said(make_config, make_history, series, now):
    """Of 60/s: the first two steps 1.5 times and 5/s more, then at least 120/s. A window covers three steps, and a
    replica 10/s."""
    step = timedelta(minutes=5)
    changes = pl.DataFrame(
        {
            "workload_class": "chat",
            "metric": [metric for metric in ("tokens_in", "tokens_out") for _ in range(5)],
            "step_start": [now + place * step for place in (0, 1, 6, 7, 900)] * 2,
            "multiply": [1.5, 1.5, 1.0, 1.0, 7.0] * 2,
            "add": [5.0, 5.0, 0.0, 0.0, 0.0] * 2,
            "at_least": [0.0, 0.0, 120.0, 120.0, 0.0] * 2,
            "label": ["x1.5 launch", "x1.5 launch", "at least 120/s keynote", "at least 120/s keynote", "x7 sale"] * 2,
        },
        schema=dict(KNOWN_CHANGES),
    )
    history = make_history({"chat": series(60.0, WEEK)})
    given = {"now": now, "history": history, "published": None, "changes": changes}
    made = plan(make_config(), forecasts=NO_FORECASTS, **given)
    assert made.floors["min_replicas"].to_list() == [10, 10, 6, 6, 12, 12, 12, 12, 6, 6, 6, 6]
    assert _first(made)[2].classes["chat"].model_in == "past_weeks_max, x1.5 launch"


def test_without_such_a_week_the_same_time_of_the_last_seven_days_counts(make_config, make_history, series, now):
    past = series(40.0, DAY) | series(60.0, 3 * DAY) | series(90.0, 8 * DAY)
    made = plan(make_config(), now=now, forecasts=NO_FORECASTS, history=make_history({"chat": past}), published=None)
    rung, floor, reason = _first(made)
    assert (rung, floor) == ("past_weeks", 6)
    assert reason.classes["chat"].model_in == "past_days_max"


def test_a_step_observed_in_part_counts_at_its_rate(make_config, make_history, series, now):
    history = make_history({"chat": series(60.0, WEEK)}, observed=0.5)
    made = plan(make_config(), now=now, forecasts=NO_FORECASTS, history=history, published=None)
    assert _first(made)[1] == 6


def test_history_from_after_now_is_not_looked_at(make_config, make_history, series, now):
    made = plan(
        make_config(fallback_replicas=9),
        now=now,
        forecasts=NO_FORECASTS,
        history=make_history({"chat": series(10.0)}),
        published=None,
    )
    assert _first(made)[:2] == ("fallback_replicas", 9)


@pytest.mark.parametrize(("fallback", "floor"), [(9, 9), (1, 1), (None, 100)])
def test_with_nothing_at_all_the_fallback_replicas_are_published(make_config, now, fallback, floor):
    """`bounds.max` unless given; a given 0 is 0."""
    config = make_config(fallback_replicas=fallback)
    made = plan(config, now=now, forecasts=NO_FORECASTS, history=NO_HISTORY, published=None)
    assert set(made.floors["min_replicas"]) == {floor}
    assert set(made.floors["rung"]) == {"fallback_replicas"}
    assert made.rungs == {"main": "fallback_replicas"}


def test_a_forecast_of_zero_is_demand_of_zero_and_not_missing(make_config, make_forecasts, now):
    config = make_config(bounds={"min": 1, "max": 40}, fallback_replicas=30)
    forecasts = make_forecasts({"chat": [0.0] * STEPS})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert _first(made)[:2] == ("fresh", 1)


def test_the_worst_rung_among_the_classes_names_the_window(make_config, make_forecasts, make_history, series, now):
    config = make_config(classes={"agent": "main", "chat": "main"})
    made = plan(
        config,
        now=now,
        forecasts=make_forecasts({"chat": [50.0] * STEPS}),
        history=make_history({"agent": series(30.0, WEEK), "chat": series(99.0, WEEK)}),
        published=None,
    )
    assert _first(made)[:2] == ("past_weeks", 8)


def test_a_class_without_any_figure_raises_to_the_fallback_and_hides_no_other_class(make_config, make_forecasts, now):
    """chat alone needs 5: the fallback of 3 must not lower it, the fallback of 7 raises it."""
    forecasts = make_forecasts({"chat": [50.0] * STEPS})
    for fallback, floor, binding in ((3, 5, "tokens_in"), (7, 7, "fallback_replicas")):
        config = make_config(classes={"agent": "main", "chat": "main"}, fallback_replicas=fallback)
        got = _first(plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None))
        assert got[:2] == ("fallback_replicas", floor)
        assert got[2].binding == binding
        assert got[2].classes["agent"].model_in == "missing"


def test_of_one_metric_missing_all_share_the_rung_but_only_pools_planned_on_it_get_the_fallback(
    make_config, make_forecasts, now
):
    """50 tokens out per second are known and need 5 replicas; the fallback is bounds.max, 100."""
    forecasts = make_forecasts({"chat": [50.0] * STEPS}, metrics=("tokens_out",))
    for role, floor in (("decode", 5), ("prefill", 100), ("unified", 100)):
        made = plan(make_config(role=role), now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
        assert _first(made)[:2] == ("fallback_replicas", floor)


def test_an_unknown_step_asks_for_the_fallback_a_lead_time_ahead(make_config, make_forecasts, now):
    """Step 6 is not known; windows 4 to 6 cover it. Past the horizon, unknown steps are left out."""
    rates = [50.0] * 12
    rates[6] = None
    config = make_config(fallback_replicas=8)
    made = plan(config, now=now, forecasts=make_forecasts({"chat": rates}), history=NO_HISTORY, published=None)
    assert made.floors["min_replicas"].to_list() == [5] * 4 + [8] * 3 + [5] * 5
    reason = Reason.model_validate_json(made.floors["reason"][4])
    assert reason.needed_by == now + 6 * STEP


@pytest.mark.parametrize("lost", ["age", "forecast", "everything"])
def test_from_the_second_rung_on_no_floor_is_below_what_was_published(
    *, make_config, make_forecasts, make_history, make_schedule, series, now, lost
):
    """12 replicas were published for the next 40 minutes; what is left of demand would give 5 or fewer."""
    cutoff = now - (timedelta(hours=1) if lost == "age" else timedelta(0))
    forecasts = make_forecasts({"chat": [50.0] * STEPS}, cutoff=cutoff)
    inputs = {
        "fresh": (make_forecasts({"chat": [50.0] * STEPS}), NO_HISTORY),
        "age": (forecasts, NO_HISTORY),
        "forecast": (NO_FORECASTS, make_history({"chat": series(20.0, WEEK)})),
        "everything": (NO_FORECASTS, NO_HISTORY),
    }
    published = make_schedule([12] * 9, start=now - STEP)
    config = make_config(fallback_replicas=3)

    def floors(case):
        return plan(config, now=now, forecasts=inputs[case][0], history=inputs[case][1], published=published).floors

    degraded = floors(lost)
    assert degraded["min_replicas"].to_list()[:8] == [12] * 8
    assert degraded["min_replicas"].to_list()[8:] == [{"age": 5, "forecast": 2, "everything": 3}[lost]] * 4
    rules = [move.rule for move in Reason.model_validate_json(degraded["reason"][0]).adjustments]
    assert rules == ["already_published"]
    assert floors("fresh")["min_replicas"].to_list() == [5] * 12


def test_what_was_published_never_lifts_a_floor_above_a_maximum_lowered_since(make_config, make_schedule, now):
    config = make_config(bounds={"min": 1, "max": 10}, fallback_replicas=3)
    published = make_schedule([40] * 13, start=now - STEP)
    made = plan(config, now=now, forecasts=NO_FORECASTS, history=NO_HISTORY, published=published)
    assert set(made.floors["min_replicas"]) == {10}


def test_a_forecast_that_saw_the_future_is_refused(make_config, make_forecasts, now):
    forecasts = make_forecasts({"chat": [50.0] * STEPS}, cutoff=now + STEP)
    with pytest.raises(LeakageError, match="seen data up to 2026-11-30T08:55:00Z, after 2026-11-30T08:50:00Z"):
        plan(make_config(), now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
