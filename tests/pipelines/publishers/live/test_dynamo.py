"""The planner of NVIDIA Dynamo, stood in for by a real HTTP server that answers as its control API does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from floorcast.config import Config
from pipelines.publishers.outcome import Outcome, Wanted
from pipelines.publishers.record import read_record
from pipelines.publishers.run import run_publishers

NOW = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)

ConfigOf = Callable[..., Config]
PlannerOf = Callable[..., Any]


def want(**replicas: int) -> dict[Any, list[Wanted]]:
    return {
        "floor": [
            Wanted(
                pool=pool.replace("_", "-"),
                replicas=count,
                floor=count,
                max_replicas=40,
                version=42,
                valid_until=NOW + timedelta(hours=2),
                reason="because",
            )
            for pool, count in replicas.items()
        ]
    }


@pytest.fixture
def run(config_of: ConfigOf, tmp_path: Path) -> Callable[..., dict[str, Outcome]]:
    """`run(planner, chat_70b=14)` publishes these floors to it and returns the outcomes by pool."""

    def once(planner: Any, *, mode: str = "apply", keys: str = "attempts: 2", **replicas: int) -> dict[str, Outcome]:
        pools = ", ".join(pool.replace("_", "-") for pool in replicas)
        entry = f'{{kind: dynamo, url: "{planner.url}", pools: [{pools}], {keys}}}'
        outcomes = run_publishers(config_of(entry, mode=mode), tmp_path, want(**replicas), now=NOW)
        return {one.pool: one for one in outcomes}

    return once


def test_a_floor_becomes_the_minimum_of_an_aggregated_planner(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    outcome = run(planner, chat_70b=14)["chat-70b"]
    assert (outcome.did, outcome.before, outcome.after) == ("applied", 2, 14)
    assert planner.minimums == {"min_endpoint": 14}
    assert planner.requests[-1] == ("PATCH", "/v1/min-endpoints", {"min_endpoint": 14})


def test_a_prefill_and_a_decode_pool_go_in_one_request(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("disagg", prefill_min_endpoint=1, decode_min_endpoint=1)
    run(planner, long_prefill=6, long_decode=8)
    patches = [body for method, _, body in planner.requests if method == "PATCH"]
    assert patches == [{"prefill_min_endpoint": 6, "decode_min_endpoint": 8}]


def test_what_is_there_already_is_not_written(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=14)
    assert run(planner, chat_70b=14)["chat-70b"].did == "unchanged"
    assert [method for method, _, _ in planner.requests] == ["GET"]


def test_advisory_says_before_and_after_and_only_ever_reads(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("disagg", prefill_min_endpoint=2, decode_min_endpoint=3)
    outcomes = run(planner, mode="advisory", long_prefill=6, long_decode=3)
    assert {pool: (one.did, one.before, one.after) for pool, one in outcomes.items()} == {
        "long-prefill": ("would_change", 2, 6),
        "long-decode": ("unchanged", 3, 3),
    }
    assert [method for method, _, _ in planner.requests] == ["GET"]
    assert planner.minimums == {"prefill_min_endpoint": 2, "decode_min_endpoint": 3}


def test_a_minimum_of_ours_is_lowered_and_one_that_was_raised_by_hand_is_left(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    run(planner, chat_70b=14)
    assert run(planner, chat_70b=9)["chat-70b"].did == "applied"
    planner.minimums["min_endpoint"] = 20
    outcome = run(planner, chat_70b=8)["chat-70b"]
    assert (outcome.did, outcome.before, planner.minimums) == ("left_above", 20, {"min_endpoint": 20})
    assert "which set 9" in outcome.note
    # Above it the floor binds again, and from there on it is ours.
    assert run(planner, chat_70b=21)["chat-70b"].did == "applied"
    assert run(planner, chat_70b=8)["chat-70b"].did == "applied"


def test_a_minimum_found_equal_by_chance_does_not_become_ours(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=10)
    run(planner, chat_70b=10)
    assert run(planner, chat_70b=4)["chat-70b"].did == "left_above"


def test_without_a_record_nothing_is_lowered(planner_of: PlannerOf, run: Any, tmp_path: Path) -> None:
    planner = planner_of("agg", min_endpoint=2)
    run(planner, chat_70b=14)
    (tmp_path / "publishers.json").write_text("{broken")
    assert run(planner, chat_70b=9)["chat-70b"].did == "left_above"
    assert planner.minimums == {"min_endpoint": 14}


def test_a_restarted_planner_is_raised_again(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    run(planner, chat_70b=14)
    planner.minimums = {"min_endpoint": 2}
    assert run(planner, chat_70b=14)["chat-70b"].did == "applied"
    assert planner.minimums == {"min_endpoint": 14}


def test_a_planner_in_another_mode_is_named_and_left_alone(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("disagg", prefill_min_endpoint=1, decode_min_endpoint=1)
    outcome = run(planner, chat_70b=14)["chat-70b"]
    assert outcome.did == "failed"
    assert "mode disagg and has no min_endpoint" in outcome.note
    assert [method for method, _, _ in planner.requests] == ["GET"]


def test_a_worker_pool_is_never_asked_for_less_than_one(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("disagg", prefill_min_endpoint=1, decode_min_endpoint=1)
    outcome = run(planner, long_prefill=0)["long-prefill"]
    assert (outcome.did, outcome.after, outcome.note) == ("unchanged", 1, "the planner keeps at least 1")


def test_where_both_do_not_fit_the_budget_the_one_that_fits_is_set(planner_of: PlannerOf, run: Any) -> None:
    """1 + 1 are there; 6 + 8 = 14 exceed a budget of 10, 6 + 1 = 7 fit, and then 6 + 8 do not."""
    planner = planner_of("disagg", prefill_min_endpoint=1, decode_min_endpoint=1)
    planner.budget = 10
    outcomes = run(planner, long_prefill=6, long_decode=8)
    assert {pool: one.did for pool, one in outcomes.items()} == {"long-prefill": "applied", "long-decode": "failed"}
    assert "requires 14 GPUs, exceeding max_gpu_budget=10" in outcomes["long-decode"].note
    assert planner.minimums == {"prefill_min_endpoint": 6, "decode_min_endpoint": 1}


@pytest.mark.parametrize(
    "fault",
    [
        (429, {"error": "slow down"}, {"Retry-After": "0"}),
        (500, {"error": "oops"}, {}),
        (503, {"error": "busy"}, {}),
        (200, b"[]", {}),
        "drop",
        1.3,
        "trickle",
    ],
    ids=str,
)
def test_a_passing_fault_is_tried_again(planner_of: PlannerOf, run: Any, fault: Any) -> None:
    """Silent or trickling for longer than the timeout of a second, dropped, overloaded."""
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [fault]
    outcome = run(planner, keys="attempts: 3, timeout: 1s", chat_70b=14)["chat-70b"]
    if fault == (200, b"[]", {}):
        assert (outcome.did, len(planner.requests)) == ("failed", 1)
        assert "not a JSON object" in outcome.note
    else:
        assert (outcome.did, planner.minimums) == ("applied", {"min_endpoint": 14})


def test_a_change_whose_answer_is_lost_is_asked_for_again(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [None, "lost"]
    assert run(planner, chat_70b=14)["chat-70b"].did == "applied"
    assert [method for method, _, _ in planner.requests] == ["GET", "PATCH", "PATCH"]


@pytest.mark.parametrize("status", [409, 422])
def test_a_refusal_is_told_in_the_planners_words_and_not_repeated(planner_of: PlannerOf, run: Any, status: int) -> None:
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [None, (status, {"error": "not now"}, {})]
    outcome = run(planner, chat_70b=14)["chat-70b"]
    assert (outcome.did, outcome.before, outcome.after) == ("failed", 2, None)
    assert outcome.note == "the planner refused it: not now"
    assert len(planner.requests) == 2


def test_one_that_asks_for_a_long_wait_is_left_to_the_next_run(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [(429, {"error": "busy"}, {"Retry-After": "3600"})]
    outcome = run(planner, keys="attempts: 4", chat_70b=14)["chat-70b"]
    assert "asks to wait 1h" in outcome.note
    assert len(planner.requests) == 1


def test_a_planner_that_is_not_there_says_what_to_check(run: Any) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    class Gone:
        url = f"http://127.0.0.1:{port}"

    outcome = run(Gone, chat_70b=14)["chat-70b"]
    assert outcome.did == "failed"
    assert "2 times in a row" in outcome.note
    assert "control_api_port" in outcome.note


def test_a_server_that_is_no_planner_says_what_to_check(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [(404, b"<html>", {})]
    assert "set `url` to the planner's control API" in run(planner, chat_70b=14)["chat-70b"].note


def test_a_planner_that_keeps_another_number_has_not_been_set(planner_of: PlannerOf, run: Any) -> None:
    planner = planner_of("agg", min_endpoint=2)
    planner.answers = [None, (200, {"mode": "agg", "min_endpoint": 3}, {})]
    outcome = run(planner, chat_70b=14)["chat-70b"]
    assert (outcome.did, outcome.note) == ("failed", "the planner answered with 3 in its place")


def test_an_expired_floor_is_not_published(planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path) -> None:
    planner = planner_of("agg", min_endpoint=20)
    config = config_of(f'{{kind: dynamo, url: "{planner.url}", pools: [chat-70b]}}')
    [outcome] = run_publishers(config, tmp_path, want(chat_70b=14), now=NOW + timedelta(hours=2))
    assert outcome.did == "expired"
    assert planner.requests == []
    assert read_record(tmp_path).outcomes == (outcome,)


def test_after_the_schedule_expired_a_minimum_of_ours_is_raised_and_none_is_lowered(
    planner_of: PlannerOf, config_of: ConfigOf, tmp_path: Path
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    config = config_of(f'{{kind: dynamo, url: "{planner.url}", pools: [chat-70b]}}')

    def run_with(replicas: int, **later: float) -> str:
        [outcome] = run_publishers(config, tmp_path, want(chat_70b=replicas), now=NOW + timedelta(**later))
        return outcome.did

    assert run_with(14) == "applied"
    assert run_with(17, hours=2) == "applied"
    assert planner.minimums == {"min_endpoint": 17}
    assert run_with(17, hours=2) == "expired"
    assert run_with(16, hours=2) == "expired"
    planner.minimums = {"min_endpoint": 30}
    assert run_with(20, hours=2) == "left_above"
    assert planner.minimums == {"min_endpoint": 30}
