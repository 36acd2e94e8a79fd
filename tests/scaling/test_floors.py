"""The whole plan by hand: each part of a floor, and what was published before."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND, FLOORS, FORECASTS, POOL_SHARES, empty
from floorcast.types import Reason
from scaling.floors import plan
from scaling.recompute import recompute

STEP = timedelta(minutes=5)
WINDOWS = 12
NO_HISTORY = empty(DEMAND)


def _both(*, quantile: float, median: float) -> dict[str, object]:
    """A class whose metrics are alike, as a reason gives it."""
    figures = {"tokens_in_per_s": quantile, "tokens_out_per_s": quantile}
    return figures | {
        "median_in_per_s": median,
        "median_out_per_s": median,
        "model_in": "ets",
        "model_out": "ets",
        "deadline": None,
    }


def test_classes_that_peak_apart_need_less_while_their_forecasts_are_fresh(make_config, make_forecasts, now):
    """Medians 30 and 50, each 45 more at the quantile: added up 170; with a third of the spread of 90, 110, and 132 in
    the busiest minute. Of an old forecast the share is not known and the quantiles add up, their spread doubled in
    twelve hours: 260, and 312 in the busiest minute."""
    config = make_config(classes={"agent": "main", "chat": "main"})
    rates = {"agent": [30.0] * 14, "chat": [50.0] * 14}

    def shares(peak: float, cutoff: datetime = now) -> pl.DataFrame:
        of_main = {"pool": "main", "cutoff": cutoff, "share": 1 / 3, "peak": peak}
        return pl.DataFrame(
            [of_main | {"metric": metric} for metric in ("tokens_in", "tokens_out")], schema=dict(POOL_SHARES)
        )

    def first(forecasts: pl.DataFrame, given: pl.DataFrame | None) -> tuple[int, Reason]:
        made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None, shares=given)
        row = made.floors.row(0, named=True)
        reason = Reason.model_validate_json(row["reason"])
        assert recompute(reason, config.pools["main"]) == row["min_replicas"]
        return row["min_replicas"], reason

    fresh = make_forecasts(rates, spread=100)
    assert first(fresh, None)[0] == 17
    floor, reason = first(fresh, shares(1.0))
    assert (floor, reason.share_out, reason.tokens_out_per_s) == (11, pytest.approx(1 / 3), pytest.approx(110))
    floor, reason = first(fresh, shares(1.2))
    assert (floor, reason.peak_out, reason.tokens_out_per_s) == (14, 1.2, pytest.approx(132))
    old = make_forecasts(rates, spread=100, cutoff=now - timedelta(hours=12))
    floor, reason = first(old, shares(1.2, now - timedelta(hours=12)))
    assert (floor, reason.share_out, reason.peak_out) == (32, 1.0, 1.2)
    floor, reason = first(fresh, shares(1.0, now - STEP))
    assert (floor, reason.share_out) == (17, 1.0), "a share that speaks of other forecasts"


def test_a_floor_worked_by_hand(make_config, make_forecasts, now):
    """Two classes at quantile 0.95, a 9m30s lead, and every number of the reason.

    Window 08:50 covers the steps 08:50, 08:55 and 09:00 (its end plus the lead is 09:04:30). At 09:00 chat has
    10,000 and agent 5,000 tokens out per second in the median, each 450 more at the quantile: 15,900 / 1,950 =
    8.1538; 10 % more is 8.9692, whole 9, one warm 10.
    """
    config = make_config(
        classes={"agent": "main", "chat": "main"},
        capacity={"prefill_tokens_per_s": 48000, "decode_tokens_per_s": 2600, "target_utilization": 0.75},
        startup={"p90": "4m"},
        margin={"quantile": 0.95, "minimum": 0.1, "warm": 1},
        bounds={"min": 2, "max": 9},
    )
    forecasts = make_forecasts(
        {"agent": [4e3, 4e3, 5e3] + [1e3] * 12, "chat": [9e3, 9e3, 1e4] + [1e3] * 12}, spread=1e3
    )
    made = plan(config, now=now + timedelta(minutes=2), forecasts=forecasts, history=NO_HISTORY, published=None)
    first = made.floors.row(0, named=True)
    assert (first["pool"], first["window_start"], first["window_end"]) == ("main", now, now + STEP)
    assert (first["min_replicas"], first["rung"]) == (9, "fresh")
    assert first["required_replicas"] == pytest.approx(15_900 / 1_950)
    assert Reason.model_validate_json(first["reason"]).model_dump(mode="json") == {
        "binding": "tokens_out",
        "needed_by": "2026-11-30T09:00:00Z",
        "lead_s": 570.0,
        "quantile": 0.95,
        "tokens_in_per_s": 15_900.0,
        "tokens_out_per_s": 15_900.0,
        "median_tokens_per_s": 15_000.0,
        "demand_tokens_per_s": 15_900.0,
        "required_replicas": 8.1538,
        "buffers": [
            {"name": "minimum_margin", "value": 0.1, "replicas": 8.9692},
            {"name": "round_up", "value": 1.0, "replicas": 9.0},
            {"name": "warm", "value": 1.0, "replicas": 10.0},
        ],
        "adjustments": [{"rule": "max_replicas", "before": 10, "after": 9}],
        "classes": {
            "agent": _both(quantile=5450.0, median=5000.0),
            "chat": _both(quantile=10450.0, median=10000.0),
        },
        "share_in": 1.0,
        "share_out": 1.0,
        "peak_in": 1.0,
        "peak_out": 1.0,
        "clamped": "max_replicas",
        "shortfall_replicas": 1,
        # 9 replicas serve 17,550 tokens a second, all of the 15,900.
        "admission": {
            "agent": {"share": 1.0, "tokens_in_per_s": 5450.0, "tokens_out_per_s": 5450.0},
            "chat": {"share": 1.0, "tokens_in_per_s": 10450.0, "tokens_out_per_s": 10450.0},
        },
    }
    # From the fourth window on 2,900 / 1,950 = 1.49, 1.64, 2, and one warm.
    assert made.floors["min_replicas"].to_list() == [9, 9, 9] + [3] * 9


def test_the_frame_is_sorted_covers_the_horizon_and_has_the_schema(make_config, make_forecasts, now):
    config = make_config(
        classes={"a": "zeta", "b": "alpha"},
        pools={name: make_config().pools["main"].model_dump() for name in ("zeta", "alpha")},
    )
    forecasts = make_forecasts({"a": [10.0] * 14, "b": [30.0] * 14})
    floors = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
    assert dict(floors.schema) == dict(FLOORS)
    assert floors.select("pool", "window_start").rows() == [
        (pool, now + i * STEP) for pool in ("alpha", "zeta") for i in range(WINDOWS)
    ]
    assert floors["min_replicas"].to_list() == [3] * 12 + [1] * 12


def test_a_schedule_of_another_step_is_read_by_time(make_config, make_schedule, now):
    """Ten-minute windows from 08:45: the first covers the first window, and each of the next two more."""
    published = make_schedule([7, 9, 8], start=now - STEP, step=2 * STEP)
    config = make_config(fallback_replicas=1)
    made = plan(config, now=now, forecasts=empty(FORECASTS), history=NO_HISTORY, published=published)
    assert made.floors["min_replicas"].to_list() == [7, 9, 9, 8, 8] + [1] * 7


def test_a_schedule_off_the_grid_covers_every_window_it_overlaps(make_config, make_schedule, now):
    """Seven-minute windows from 08:45, 08:52 and 08:59 to 09:06."""
    published = make_schedule([7, 9, 8], start=now - STEP, step=timedelta(minutes=7))
    made = plan(
        make_config(fallback_replicas=1), now=now, forecasts=empty(FORECASTS), history=NO_HISTORY, published=published
    )
    assert made.floors["min_replicas"].to_list() == [9, 9, 8, 8] + [1] * 8


def test_windows_whose_lead_is_not_known_to_the_end_keep_what_was_published(
    make_config, make_forecasts, make_schedule, now
):
    """The forecast ends with the horizon, so the last two windows see less than their ten minutes of lead."""
    published = make_schedule([0] + [12] * 12, start=now - STEP)
    made = plan(
        make_config(), now=now, forecasts=make_forecasts({"chat": [50.0] * 12}), history=NO_HISTORY, published=published
    )
    assert made.floors["min_replicas"].to_list() == [5] * 10 + [12] * 2
    assert set(made.floors["rung"]) == {"fresh"}


def test_rungs_speak_of_the_windows_within_the_lead_time(make_config, make_forecasts, now):
    """The forecast ends after half an hour, ten minutes of lead from now are fresh."""
    made = plan(
        make_config(), now=now, forecasts=make_forecasts({"chat": [1.0] * 6}), history=NO_HISTORY, published=None
    )
    assert made.floors["rung"].to_list()[3:5] == ["fresh", "fallback_replicas"]
    assert made.rungs == {"main": "fresh"}


def test_a_pool_carries_its_share_of_a_region_that_may_be_lost(make_config, make_forecasts, floors_of):
    """Own 50, half of the other's 80: 50 + 0.5 x 80 = 90, 9 replicas of 10. The other takes nothing over: 8. What the
    other does not know, this one does not either."""
    spec = make_config().pools["main"].model_dump()
    east = spec | {"region": "east", "margin": {"minimum": 0, "takes_over": {"west": 0.5}}}
    config = make_config(
        classes={"chat": "east", "code": "west"}, pools={"east": east, "west": spec | {"region": "west"}}
    )
    floors, reasons = floors_of(config, make_forecasts({"chat": [50.0] * 14, "code": [80.0] * 14}))
    assert floors == {"east": [9] * 12, "west": [8] * 12}
    assert reasons["east"].tokens_out_per_s == 90
    assert reasons["east"].takes_over["west"].model_dump() == {
        "share": 0.5,
        "tokens_in_per_s": 80,
        "tokens_out_per_s": 80,
    }
    floors, _ = floors_of(config, make_forecasts({"chat": [50.0] * 14}))
    assert floors["east"] == [100] * 12, "bounds.max, as fallback_replicas is not set"


def test_floors_count_in_nodes(make_config, make_forecasts, make_schedule, now, floors_of):
    """4 replicas a node: 50 tokens/s need 5, two nodes; of the 16 published before, a node goes in each window."""
    shape = {"multiple_of": 4, "step_down": 1, "every": "5m", "dwell": "0s"}
    config = make_config(shape=shape, bounds={"min": 4, "max": 40})
    published = make_schedule([16], start=now - STEP)
    floors, reasons = floors_of(config, make_forecasts({"chat": [50.0] * 14}), published)
    assert floors["main"] == [12] + [8] * 11
    assert [(move.rule, move.before, move.after) for move in reasons["main"].adjustments] == [
        ("multiple_of", 5, 8),
        ("step_down", 8, 12),
    ]


def test_a_floor_may_exceed_the_maximum_by_what_is_allowed(make_config, make_forecasts, floors_of):
    """10 are needed: with 7 and 2 more allowed 9 are published and 1 is short; with 3 more all are."""
    forecasts = make_forecasts({"chat": [100.0] * 14})
    for exceed_by, floor, short in ((0, 7, 3), (2, 9, 1), (3, 10, 0)):
        floors, reasons = floors_of(make_config(bounds={"min": 1, "max": 7, "exceed_by": exceed_by}), forecasts)
        assert floors["main"] == [floor] * 12
        assert reasons["main"].shortfall_replicas == short


def test_a_published_floor_is_kept_where_the_forecast_fell_a_little(
    make_config, make_forecasts, make_schedule, now, floors_of
):
    """40 published; 5 % of it are 2: 38 leaves it, 37 does not."""
    shape = {"step_down": 100, "every": "5m", "dwell": "0s", "hysteresis": 0.05}
    published = make_schedule([40] * 13, start=now - STEP)
    forecasts = make_forecasts({"chat": [380.0] * 6 + [370.0] * 8})
    floors, reasons = floors_of(make_config(shape=shape), forecasts, published)
    assert floors["main"] == [40] * 6 + [37] * 6
    assert [(move.rule, move.before, move.after) for move in reasons["main"].adjustments] == [("hysteresis", 38, 40)]
