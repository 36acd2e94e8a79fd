"""Classes that may wait, by hand: valleys filled, what the reason says of it, and the edges of what is known."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import polars as pl

from floorcast.columns import DEMAND, empty
from floorcast.types import Reason
from scaling.deadlines import replayed
from scaling.explain import explain
from scaling.floors import plan
from scaling.recompute import recompute

STEP = timedelta(minutes=5)
NO_HISTORY = empty(DEMAND)
CLASSES = {"chat": "main", "batch": "main"}
SHORT = {"p90": "0s", "apply_delay": "0s"}


def _windows(made) -> list[tuple[int, Reason]]:
    return [
        (floor, Reason.model_validate_json(reason))
        for floor, reason in made.floors.select("min_replicas", "reason").iter_rows()
    ]


def test_work_that_may_wait_fills_the_valley_that_interactive_classes_leave(
    make_config, make_forecasts, now, idle_before
):
    """Replicas of 10 tokens/s. chat takes 80, 20, 20, 80, ...; batch brings 60 in the first step and may take 15
    minutes, its own step and two more: 0 in the first, 30 and 30 in the valley. Floors 8, 5, 5, 8 where 14, 2, 2, 8
    were; the windows cover their own step and the publication interval's."""
    rates = {"chat": [80.0, 20.0, 20.0, 80.0] + [20.0] * 10, "batch": [60.0] + [0.0] * 13}
    given = {"forecasts": make_forecasts(rates), "history": idle_before(rates), "published": None}
    at_once = plan(make_config(classes=CLASSES, startup=SHORT), now=now, **given)
    config = make_config(classes=CLASSES, startup=SHORT, waits={"batch": "15m"})
    made = plan(config, now=now, **given)
    assert at_once.floors["min_replicas"].to_list()[:4] == [14, 2, 8, 8]
    assert made.floors["min_replicas"].to_list()[:4] == [8, 5, 8, 8]
    assert made.floors["required_replicas"].to_list()[:2] == [8, 5]
    for floor, reason in _windows(made):
        assert recompute(reason, config.pools["main"]) == floor
    floor, reason = _windows(made)[1]
    assert (reason.classes["chat"].deadline, reason.classes["batch"].tokens_out_per_s) == (None, 30)


def test_the_reason_says_what_arrives_and_when_it_is_done(make_config, make_forecasts, now, idle_before):
    """batch alone: 90 in the first step, 30 in each of three while 15 minutes pass."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"})
    made = plan(
        config,
        now=now,
        forecasts=make_forecasts({"batch": [90.0] + [0.0] * 13}),
        history=idle_before(["batch"]),
        published=None,
    )
    assert made.floors["min_replicas"].to_list()[:4] == [3, 3, 3, 1]
    floor, reason = _windows(made)[0]
    wait = reason.classes["batch"].deadline
    assert (reason.tokens_out_per_s, wait.arriving_out_per_s, wait.wait_s) == (30, 90, 900)
    assert wait.done_by == now + 3 * STEP
    row = made.floors.row(0, named=True)
    window = SimpleNamespace(start=row["window_start"], end=row["window_end"], min_replicas=floor, reason=reason)
    told = explain(window, pool_name="main", pool=config.pools["main"])
    assert "batch by deadline 15m: 30/s of 90/s arriving now, all of it by 09:05 UTC" in told
    second = SimpleNamespace(start=now + STEP, end=now + 2 * STEP, min_replicas=3, reason=_windows(made)[1][1])
    assert "30/s: 0/s arriving now and what waited before" in explain(
        second, pool_name="main", pool=config.pools["main"]
    )


def test_a_wait_under_two_steps_changes_nothing(make_config, make_forecasts, now):
    """In 9 minutes one whole step fits, the one that the work arrives in."""
    given = {"forecasts": make_forecasts({"chat": [50.0, 5.0] * 7}), "history": NO_HISTORY, "published": None}
    config = make_config(waits={"chat": "9m"})
    assert replayed(config) == timedelta(0)
    assert plan(config, now=now, **given).floors.equals(plan(make_config(), now=now, **given).floors)


def test_a_pools_wait_is_that_of_its_classes_without_one(make_config):
    config = make_config(classes=CLASSES, slo={"max_wait": "1h"}, waits={"chat": "10s"})
    assert {name: config.wait_steps(name) for name in CLASSES} == {"chat": 0, "batch": 11}


def test_a_step_not_known_asks_for_fallback_replicas_and_nothing_waits_across_it(
    make_config, make_forecasts, now, idle_before
):
    """batch brings 60 in the second step; the fourth is not known, so its 60 are done in the second and third although
    15 minutes reach further."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"}, fallback_replicas=9)
    rates = {"batch": [0.0, 60.0, 0.0, None] + [0.0] * 10}
    made = plan(
        config,
        now=now,
        forecasts=make_forecasts(rates),
        history=idle_before(["batch"]),
        published=None,
    )
    assert made.floors["min_replicas"].to_list()[:6] == [3, 3, 9, 9, 1, 1]
    assert made.floors["rung"].to_list()[:5] == ["fresh", "fresh", "fallback_replicas", "fallback_replicas", "fresh"]


def test_the_last_windows_know_what_may_wait_past_them(make_config, make_forecasts, make_history, now):
    """60 a step that may wait an hour, eleven steps more, are 6 replicas throughout, in the last windows too; in the
    last step of the horizon and its lead come 600 more, 50 in each of the twelve steps they may be done in: oldest
    first, 110 a step finish that step's 660 in six. With a forecast that ends there all of them are due in it."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "1h"})
    # More than enough were there up to now, so that nothing waits.
    in_force = pl.DataFrame({"pool": "main", "window_start": [now - (1 + i) * STEP for i in range(60)]}).with_columns(
        pl.col("window_start").cast(DEMAND["step_start"]), min_replicas=pl.lit(100)
    )
    history = make_history({"batch": {now - (1 + i) * STEP: 60.0 for i in range(60)}})
    rates = [60.0] * 12 + [660.0] + [60.0] * 11
    for steps, last, finished in ((24, 11, 18), (13, 66, 13)):
        made = plan(
            config,
            now=now,
            forecasts=make_forecasts({"batch": rates[:steps]}),
            history=history,
            published=None,
            in_force=in_force,
        )
        assert made.floors["min_replicas"].to_list() == [6] * 11 + [last]
        assert _windows(made)[-1][1].classes["batch"].deadline.done_by == now + finished * STEP


def test_work_keeps_the_rung_of_the_step_it_came_in(make_config, make_forecasts, make_history, now):
    """The first step is from past weeks, and its work may be done in the next two as well."""
    config = make_config(classes={"batch": "main"}, startup=SHORT, waits={"batch": "15m"})
    past = make_history({"batch": {now - timedelta(days=7): 60.0} | {now - (1 + i) * STEP: 0.0 for i in range(12)}})
    made = plan(config, now=now, forecasts=make_forecasts({"batch": [None] + [0.0] * 13}), history=past, published=None)
    assert made.floors["rung"].to_list()[:4] == ["past_weeks", "past_weeks", "past_weeks", "fresh"]
    assert made.floors["min_replicas"].to_list()[:4] == [2, 2, 2, 1]
