"""Ticks, by hand and under every sequence of faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.pool import Pool
from pipelines.service.board import Validity
from pipelines.service.clock import advance
from pipelines.service.decisions import Decisions
from pipelines.service.floors import FloorGrid
from pipelines.service.memory import Memory, fresh, read_memory, write_memory
from pipelines.service.tick import Calendars, Ticked, fleet_of, tick
from scaling.overlay.signals import Signals, snapshot

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
POOL = Pool.model_validate(
    {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100, "target_utilization": 0.8},
        "startup": {"p90": "4m"},
        "bounds": {"min": 2, "max": 20, "exceed_by": 4},
        "fallback_replicas": 6,
    }
)
NONE = Calendars(np.array([np.nan]), np.array([np.nan]))
FLEET = fleet_of({"chat": POOL})


def grid(*floors: float) -> FloorGrid:
    """Windows of 5 minutes from 08:00 on."""
    return FloorGrid(AT.timestamp(), 300.0, np.array(floors, dtype=np.float64)[:, None])


def serving(tokens_out_per_s: float, *, ready: float = 6, requested: float = np.nan) -> Signals:
    return snapshot(
        1, tokens_in_per_s=0, tokens_out_per_s=tokens_out_per_s, waiting_requests=0, ready=ready, requested=requested
    )


def decided(
    schedule: FloorGrid | None,
    live: Signals,
    *,
    memory: Memory | None = None,
    validity: Validity = "valid",
    seconds: float = 0,
    calendars: Calendars = NONE,
) -> Ticked:
    """At so many seconds after 08:00 by both clocks."""
    before = fresh(("chat",), wall_s=AT.timestamp()) if memory is None else memory
    clock = advance(before.clock, wall_s=AT.timestamp() + seconds, mono_s=seconds, tick_s=15)
    now = AT + timedelta(seconds=seconds)
    return tick(FLEET, schedule, validity, live, calendars, replace(before, clock=clock), now)


def test_load_asks_for_more_than_the_floor() -> None:
    """960 tokens a second out / (100 x 0.8) = 12 replicas; from 6 by at most 6 a minute, the share of what there is."""
    found = Decisions(decided(grid(5), serving(960)), None)["chat"]
    assert (found.desired, found.floor, found.floor_source, found.current) == (12, 5, "schedule", 6)
    assert "12 replicas, 6 until now" in found.words


def test_the_floor_is_reached_at_once_without_any_signal() -> None:
    found = Decisions(decided(grid(15), snapshot(1)), None)["chat"]
    assert (found.desired, found.floor, found.ready) == (15, 15, None)


def test_a_floor_above_bounds_max_is_reached_and_load_alone_does_not_exceed_it() -> None:
    """22 are published, of at most 20 + 4. Load for 50 replicas gets 20 where the floor is lower."""
    assert decided(grid(22), serving(80)).decision.desired[0] == 22
    memory = None
    for minute in range(6):
        ticked = decided(grid(5, 5), serving(4000, ready=20), memory=memory, seconds=60 * minute)
        memory = ticked.memory
    assert ticked.decision.desired[0] == 20


def test_a_calendars_ceiling_holds_back_load_but_not_the_floor() -> None:
    low = Calendars(np.array([np.nan]), np.array([4.0]))
    assert decided(grid(2), serving(960, ready=3), calendars=low).decision.desired[0] == 4
    assert decided(grid(9), serving(960, ready=3), calendars=low).decision.desired[0] == 9


def test_expired_the_last_floor_holds_and_the_schedule_says_so() -> None:
    before = decided(grid(9), serving(80))
    after = Decisions(decided(grid(9), serving(80), memory=before.memory, validity="expired", seconds=7200), None)
    assert (after["chat"].floor, after["chat"].floor_source) == (9, "expired")


def test_a_pool_that_the_schedule_lacks_has_its_fallback() -> None:
    found = Decisions(decided(grid(np.nan), serving(80)), None)["chat"]
    assert (found.floor, found.floor_source, found.window) == (6, "held", None)


def test_while_the_clock_is_doubted_nothing_is_let_go() -> None:
    """The floor falls from 9 to 2 at 08:05, and the clock jumps there: 9 holds, by the old time it is still due. An
    idle pool of 12 keeps its replicas."""
    first = decided(grid(9, 2), serving(1, ready=12))
    clock = advance(first.memory.clock, wall_s=AT.timestamp() + 400, mono_s=15, tick_s=15)
    memory = replace(first.memory, clock=clock)
    second = tick(FLEET, grid(9, 2), "valid", serving(1, ready=12), NONE, memory, AT + timedelta(seconds=400))
    assert clock.doubted
    assert (second.floors.floor[0], second.decision.desired[0]) == (9, 12)


FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["valid", "valid", "expired", "missing"]),
        st.sampled_from([0.0, 80.0, 900.0, 5000.0, np.nan]),
        st.sampled_from([np.nan, 0.0, 6.0, 30.0]),
        st.sampled_from([15.0, 15.0, 15.0, 290.0, 7200.0]),
        st.sampled_from([0.0, 0.0, 0.0, 900.0, -900.0, 86_400.0, -86_400.0]),
        st.booleans(),
    ),
    min_size=2,
    max_size=25,
)
"""Of each tick: what the publication is, the load, replicas ready, seconds since the last, a jump of the clock, and
whether the process was killed before it."""


@settings(max_examples=60)
@given(FAULTS, st.lists(st.integers(0, 24), min_size=1, max_size=12))
def test_no_sequence_of_faults_lowers_a_floor(tmp_path_factory, ticks, published) -> None:
    """No decision is under the floor in force. That never falls but by a valid schedule read by a clock that is not
    doubted, then not under what is due, and after a fault not faster than the pool's steps."""
    folder: Path = tmp_path_factory.mktemp("state")
    schedule = grid(*published)
    memory = fresh(("chat",), wall_s=AT.timestamp())
    wall_s, mono_s, last, faulty = AT.timestamp(), 0.0, -np.inf, False
    for validity, load, ready, passed_s, jump_s, killed in ticks:
        wall_s, mono_s = wall_s + passed_s + jump_s, mono_s + passed_s
        if killed:
            write_memory(memory, folder)
            found = read_memory(folder)
            assert found is not None
            memory, mono_s = found, 0.0
        now = datetime.fromtimestamp(wall_s, UTC)
        clock = advance(memory.clock, wall_s=wall_s, mono_s=mono_s, tick_s=15)
        there = None if validity == "missing" else schedule
        live = serving(load, ready=ready)
        ticked = tick(FLEET, there, validity, live, NONE, replace(memory, clock=clock), now)
        memory, floor = ticked.memory, ticked.floors.floor[0]
        due = np.nan if there is None else there.due(now)[0]
        assert ticked.decision.desired[0] >= floor
        assert not due > floor
        trusted = validity == "valid" and not clock.doubted and not np.isnan(due)
        if not trusted:
            assert floor >= last
            assert floor >= POOL.fallback_replicas or last == -np.inf
        if faulty and floor < last:
            assert last - floor <= max(int(0.1 * last), 1)
        faulty = not trusted or (faulty and floor > due)
        last = floor
