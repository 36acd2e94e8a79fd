"""Capacity from production: pools whose replicas have a known capacity, and what their queues show of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import CACHED_TOKENS, DEMAND, POOL_LOAD, conform, empty
from floorcast.config import Config
from floorcast.errors import DataError
from scaling.calibration.contradiction import contradictions
from scaling.calibration.history import calibrate_history
from scaling.calibration.loaded import loaded_steps

T0 = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)
C_IN, C_OUT = 4000.0, 1000.0


def config_of(*, c_in=C_IN, c_out=C_OUT, combine="sum", role="unified", utilization=0.75, share=None):
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {
            "prefill_tokens_per_s": c_in,
            "decode_tokens_per_s": c_out,
            "combine": combine,
            "target_utilization": utilization,
        },
        "startup": {"p90": "4m"},
        "bounds": {"min": 1, "max": 40},
    }
    pools, serving = {"p": pool | {"role": role}}, ["p"]
    if role != "unified":
        other = "decode" if role == "prefill" else "prefill"
        pools["q"], serving = pool | {"role": other}, ["p", "q"]
    classes = {"chat": {"pools": serving, "prefix_cache": {"share": share} if share is not None else {}}}
    return Config.model_validate({"pools": pools, "classes": classes})


def served(load, mix):
    """Tokens in and out per second of one replica at a load of C_in and C_out together, with so many out per in."""
    tokens_in = load / (1 / C_IN + mix / C_OUT)
    return tokens_in, mix * tokens_in


def history(offered, *, mix=0.1, replicas=4, first=T0):
    """POOL_LOAD and DEMAND of steps with these loads offered to each replica, which serves up to a load of 1. What it
    does not serve waits, 100 requests for each load of a step."""
    backlog, load, demand = 0.0, [], []
    for place, (one, out_per_in) in enumerate(zip(offered, np.broadcast_to(mix, len(offered)), strict=True)):
        done = min(one + backlog, 1.0)
        before, backlog = backlog, backlog + one - done
        at = first + place * STEP
        tokens_in, tokens_out = served(done, out_per_in)
        load.append(("p", at, replicas, replicas, 100 * replicas * (before + backlog) / 2))
        demand.append(("chat", at, 300 * replicas * tokens_in, 300 * replicas * tokens_out, None, None, None, 1.0, "s"))
    return (
        pl.DataFrame(load, schema=dict(POOL_LOAD), orient="row"),
        pl.DataFrame(demand, schema=dict(DEMAND), orient="row"),
    )


def steps_of(config, offered, **more):
    load, demand = history(offered, **more)
    return loaded_steps(config, "p", load, demand, empty(CACHED_TOKENS))


SURGE = [0.5, 0.8, 1.2, 1.3, 0.4, 0.2, 0.1, 0.1]
"""The queue begins in the third step and is gone by the seventh."""


def test_the_edge_is_what_a_replica_served_when_a_queue_began():
    # One mix: at 0.1 out per in, a load of 1 is R_in = 1 / (1/4000 + 0.1/1000) = 2857.1 in and 285.7 out per s.
    config = config_of()
    done = calibrate_history(steps_of(config, SURGE * 3), config.pools["p"], step=STEP)
    assert done.fitted.prefill_tokens_per_s == pytest.approx(2857.1, abs=0.1)
    assert done.fitted.decode_tokens_per_s == pytest.approx(285.7, abs=0.1)
    assert (done.fitted.combine, done.fitted.separated, done.at_least) == ("max", False, False)
    (edge,) = done.edges
    assert (edge.onsets, edge.low, edge.high) == (3, 1, 1)
    assert any("lower bound of each" in note for note in done.notes)


def test_a_queue_that_begins_late_in_a_step_shows_what_was_served_in_the_next():
    # The mean of the onset's step is 0.7 of the capacity, most of it from before the surge.
    config = config_of()
    load, demand = history([0.5, 0.7, 1.0, 1.0, 0.2, 0.2] * 3)
    waiting = pl.Series([0.0, 8.0, 40.0, 40.0, 0.0, 0.0] * 3)
    steps = loaded_steps(config, "p", load.with_columns(waiting_requests=waiting), demand, empty(CACHED_TOKENS))
    done = calibrate_history(steps, config.pools["p"], step=STEP)
    assert done.fitted.prefill_tokens_per_s == pytest.approx(2857.1, abs=0.1)


def test_two_mixes_tell_both_capacities_apart():
    config = config_of(c_in=9999, c_out=9999)
    mixes = [0.1] * (3 * len(SURGE)) + [0.5] * (3 * len(SURGE))
    done = calibrate_history(steps_of(config, SURGE * 6, mix=mixes), config.pools["p"], step=STEP)
    assert [edge.onsets for edge in done.edges] == [3, 3]
    assert (done.fitted.combine, done.fitted.separated) == ("sum", True)
    assert done.fitted.prefill_tokens_per_s == pytest.approx(C_IN)
    assert done.fitted.decode_tokens_per_s == pytest.approx(C_OUT)


def test_a_decode_pool_has_one_edge_whatever_the_mix():
    config = config_of(role="decode")
    load, demand = history(SURGE * 3, mix=[0.1] * 8 + [0.5] * 8 + [2.0] * 8)
    done = calibrate_history(
        loaded_steps(config, "p", load, demand, empty(CACHED_TOKENS)), config.pools["p"], step=STEP
    )
    assert (done.fitted.prefill_tokens_per_s, len(done.edges)) == (None, 1)
    # 0.5 out per in is the middle one: at a load of 1 it is 0.5 / (1/4000 + 0.5/1000) = 666.7 out per s.
    assert done.fitted.decode_tokens_per_s == pytest.approx(666.7, abs=0.1)


def test_without_a_queue_it_is_at_least_what_was_reached_for_an_hour():
    # Eleven steps at 0.9 are less than an hour: with one of 0.8 there are twelve that reached 0.8.
    config = config_of()
    done = calibrate_history(steps_of(config, [0.5] * 30 + [0.9] * 11 + [0.8]), config.pools["p"], step=STEP)
    assert done.at_least
    assert done.fitted.prefill_tokens_per_s == pytest.approx(0.8 * 2857.1, abs=0.1)
    assert "never began" in done.notes[0]


def test_two_queues_alone_may_be_accidents():
    config = config_of()
    done = calibrate_history(steps_of(config, SURGE * 2 + [0.6] * 20), config.pools["p"], step=STEP)
    assert done.at_least
    assert "began only 2 times" in done.notes[0]


def test_less_than_an_hour_shows_nothing():
    config = config_of()
    with pytest.raises(DataError, match="only 55m without a queue"):
        calibrate_history(steps_of(config, [0.5] * 11), config.pools["p"], step=STEP)


def test_a_step_counts_only_where_replicas_and_all_of_the_demand_are_known():
    config = config_of()
    load, demand = history([0.5] * 6)
    at = pl.col("step_start")
    load = load.filter(at != T0).with_columns(ready_min=pl.when(at == T0 + STEP).then(3).otherwise("ready_min"))
    late = T0 + 2 * STEP
    demand = demand.filter(at != T0 + 3 * STEP).with_columns(
        observed_fraction=pl.when(at == late).then(0.5).otherwise(1.0)
    )
    known = loaded_steps(config, "p", load, demand, empty(CACHED_TOKENS))
    # Of the first the replicas are not known, in the second one of four came, the third is half observed, the fourth
    # has no demand.
    assert known["step_start"].to_list() == [T0 + 4 * STEP, T0 + 5 * STEP]


def test_cached_prompt_tokens_cost_nothing():
    load, demand = history([0.5] * 3)
    counts = pl.DataFrame({"workload_class": "chat", "step_start": demand["step_start"][:2], "cached_tokens_in": 300e3})
    counted = loaded_steps(config_of(), "p", load, demand, conform(counts, CACHED_TOKENS))
    # 4 replicas x 2857.1 x 0.5 = 5714.3 in per s, of which 300,000 in 300 s, 1,000 per s, were cached.
    assert counted["tokens_in_per_s"].to_list() == pytest.approx([4714.3, 4714.3], abs=0.1), "the third is not known"
    own = loaded_steps(config_of(share=0.25), "p", load, demand, conform(counts, CACHED_TOKENS))
    assert own["tokens_in_per_s"].to_list() == pytest.approx([0.75 * 5714.3] * 3, abs=0.1)


def test_replicas_that_serve_more_than_their_capacity_without_a_queue_contradict_it():
    # Configured is 0.6 of the truth: 0.9 of it is 1.5 times what is configured, for 14 steps of 5 minutes.
    config = config_of(c_in=0.6 * C_IN, c_out=0.6 * C_OUT)
    (found,) = contradictions(steps_of(config, [0.4] * 12 + [0.9] * 14), config.pools["p"], step=STEP)
    assert (found.capacity_is, found.binding, found.steps) == ("low", "sum", 14)
    assert found.load == pytest.approx(1.5)
    assert (found.tokens_in_per_s, found.tokens_out_per_s) == pytest.approx(served(0.9, 0.1))
    assert (found.start, found.end) == (T0 + 12 * STEP, T0 + 26 * STEP)


def test_requests_that_wait_well_below_what_floors_count_on_contradict_it():
    # Configured is twice the truth: replicas are full at 0.5 of it, and floors count on 0.75.
    config = config_of(c_in=2 * C_IN, c_out=2 * C_OUT)
    (found,) = contradictions(
        steps_of(config, [0.5] * 6 + [1.5] + [1.0] * 14 + [0.2] * 6), config.pools["p"], step=STEP
    )
    # The surge's step, the fourteen after it, and the one that still serves what is left.
    assert (found.capacity_is, found.steps) == ("high", 16)
    assert found.load == pytest.approx(0.5)
    assert found.waiting_per_replica == pytest.approx(50)


@pytest.mark.parametrize(
    ("what", "offered", "factor"),
    [
        ("a peak of under an hour", [0.4] * 12 + [0.9] * 11, 0.6),
        ("peaks of ten minutes", [0.4, 0.9, 0.9] * 10, 0.6),
        ("a capacity out by a twentieth", [0.4] * 12 + [1.0] * 20, 0.95),
        ("half of the loads above it ended in queues", ([0.9] * 4 + [1.3] * 2 + [0.5] * 2) * 6, 0.6),
        ("a queue at a load that floors do not count on", [0.5] * 6 + [1.5] + [1.0] * 20, 1.2),
    ],
)
def test_what_may_be_chance_contradicts_nothing(what, offered, factor):
    config = config_of(c_in=factor * C_IN, c_out=factor * C_OUT)
    assert contradictions(steps_of(config, offered), config.pools["p"], step=STEP) == [], what


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1.6), min_size=1, max_size=80), st.sampled_from(["sum", "max"]))
def test_a_true_capacity_is_never_contradicted(offered, combine):
    # Under `max` the same replicas have the capacities of their one mix.
    tokens_in, tokens_out = served(1.0, 0.1)
    config = config_of(combine=combine, **({} if combine == "sum" else {"c_in": tokens_in, "c_out": tokens_out}))
    assert contradictions(steps_of(config, offered), config.pools["p"], step=STEP) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1.6), min_size=12, max_size=80), st.floats(0.1, 10))
def test_a_calibration_never_promises_more_than_replicas_served(offered, scale):
    config = config_of()
    steps = steps_of(config, offered)
    try:
        done = calibrate_history(steps, config.pools["p"], step=STEP)
    except DataError:
        return
    most = (steps["tokens_in_per_s"] / steps["ready_max"]).max()
    assert done.fitted.prefill_tokens_per_s <= most * (1 + 1e-9)
    twice = steps.with_columns(pl.col("tokens_in_per_s", "tokens_out_per_s") * scale)
    scaled = calibrate_history(twice, config.pools["p"], step=STEP)
    assert scaled.fitted.prefill_tokens_per_s == pytest.approx(scale * done.fitted.prefill_tokens_per_s)
