"""Floors as the few steps of a document, and how many that may be."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from pipelines.publishers.steps import Step, at_most, steps_of

START = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
STEP = timedelta(minutes=5)
ScheduleOf = Callable[..., FloorSchedule]


def steps(*counts: int) -> list[Step]:
    """Neighbours of equal height are one step."""
    found: list[Step] = []
    for place, count in enumerate(counts):
        start = START + place * STEP
        if found and found[-1].replicas == count:
            start = found.pop().start
        found.append(Step(start, START + (place + 1) * STEP, count))
    return found


def told(found: list[Step]) -> list[tuple[str, int]]:
    return [(f"{step.start:%H:%M}", step.replicas) for step in found]


def test_a_step_is_a_run_of_windows_of_one_height_and_the_first_begins_now(schedule_of: ScheduleOf) -> None:
    schedule = schedule_of({"chat": [(7, 6.1), (7, 6.0, "past_weeks"), (9, 8.0), (4, 3.0)]})
    assert told(steps_of(schedule, "chat", START + timedelta(minutes=2))) == [("08:57", 7), ("09:05", 9), ("09:10", 4)]
    assert told(steps_of(schedule, "chat", START + timedelta(minutes=12))) == [("09:07", 9), ("09:10", 4)]
    assert steps_of(schedule, "chat", START - timedelta(minutes=5))[0].start == START - timedelta(minutes=5)


def test_after_valid_until_floors_rise_and_never_fall(schedule_of: ScheduleOf) -> None:
    """In force until 10:50, which is the end of the 23rd step after 08:55: then 6 holds under 4 and 5, and 8 raises."""
    counts = [9] * 20 + [6] * 3 + [4, 5, 8, 2]
    schedule = schedule_of({"chat": [(count, count) for count in counts]})
    assert f"{schedule.valid_until:%H:%M}" == "10:50"
    assert told(steps_of(schedule, "chat", START)) == [("08:55", 9), ("10:35", 6), ("11:00", 8)]


def test_a_window_across_valid_until_is_cut_there(schedule_of: ScheduleOf) -> None:
    schedule = schedule_of({"chat": [(9, 8.0), *[(6, 5.0)] * 30, (3, 2.0)]})
    assert told(steps_of(schedule, "chat", START)) == [("08:55", 9), ("09:00", 6)]


def test_a_time_past_the_last_window_and_an_unknown_pool_are_refused(schedule_of: ScheduleOf) -> None:
    schedule = schedule_of({"chat": [(9, 8.0)]})
    with pytest.raises(NotFoundError):
        steps_of(schedule, "chat", START + STEP)
    with pytest.raises(NotFoundError):
        steps_of(schedule, "char", START)


def test_those_are_merged_first_that_cost_least() -> None:
    """3 to 4 costs 1 replica for one step, 9 to 10 the same twice over, 4 to 9 five."""
    assert told(at_most(steps(3, 4, 9, 9, 10), 3)) == [("08:55", 4), ("09:05", 9), ("09:15", 10)]
    assert told(at_most(steps(3, 4, 9, 9, 10), 2)) == [("08:55", 4), ("09:05", 10)]
    assert told(at_most(steps(3, 4, 9, 9, 10), 1)) == [("08:55", 10)]


def test_a_short_dip_is_filled_before_a_long_one() -> None:
    assert told(at_most(steps(9, 3, 9, 8, 8, 8, 8, 8, 8, 8, 9), 3)) == [("08:55", 9), ("09:10", 8), ("09:45", 9)]


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=60), most=st.integers(1, 12))
def test_merged_steps_are_few_contiguous_and_nowhere_lower(counts: list[int], most: int) -> None:
    given_steps = steps(*counts)
    merged = at_most(given_steps, most)
    assert len(merged) == min(most, len(given_steps))
    assert all(one.end == other.start for one, other in pairwise(merged))
    assert (merged[0].start, merged[-1].end) == (given_steps[0].start, given_steps[-1].end)
    for place, count in enumerate(counts):
        [over] = [step for step in merged if step.start <= START + place * STEP < step.end]
        assert count <= over.replicas <= max(counts)
