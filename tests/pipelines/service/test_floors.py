"""The floor in force, worked by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from floorcast.pool import Pool
from pipelines.service.floors import FloorGrid, FloorRules, InForce, grid_of, in_force, rules_of, unknown_floors

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
RULES = FloorRules(*np.array([[4.0], [2.0], [1.0], [600.0]]))
"""Where nothing is known 4; down by 2 every 10 minutes."""


def floors(due: float | None, before: InForce, *, trusted: bool, now_s: float) -> InForce:
    return in_force(np.array([np.nan if due is None else due]), before, RULES, trusted=trusted, now_s=now_s)


def test_of_a_valid_schedule_it_is_what_is_due() -> None:
    first = floors(9, unknown_floors(1), trusted=True, now_s=0)
    then = floors(3, first, trusted=True, now_s=15)
    assert (first.floor[0], then.floor[0], then.held[0]) == (9, 3, False)


def test_after_expiry_it_only_rises() -> None:
    """Known 9; due 7 then 12 then nothing: 9, 12, 12."""
    known = floors(9, unknown_floors(1), trusted=True, now_s=0)
    seen = []
    for now_s, due in ((15, 7), (30, 12), (45, None)):
        known = floors(due, known, trusted=False, now_s=now_s)
        seen.append(known.floor[0])
    assert seen == [9, 12, 12]
    assert known.held[0]


def test_where_nothing_was_ever_known_it_is_the_fallback_and_what_is_due_above_it() -> None:
    assert floors(None, unknown_floors(1), trusted=False, now_s=0).floor[0] == 4
    assert floors(6, unknown_floors(1), trusted=False, now_s=0).floor[0] == 6
    assert floors(None, unknown_floors(1), trusted=True, now_s=0).floor[0] == 4


def test_a_fallback_is_used_only_above_what_was_known() -> None:
    """A valid schedule said 2; at its end the fallback of 4 counts."""
    known = floors(2, unknown_floors(1), trusted=True, now_s=0)
    assert floors(2, known, trusted=False, now_s=15).floor[0] == 4


def test_once_valid_again_it_comes_down_by_the_pools_steps() -> None:
    """Held at 12 at second 0, due 7: 12 for ten minutes, 10, 8, then 7 rather than 6."""
    held = floors(12, unknown_floors(1), trusted=False, now_s=0)
    seen = {}
    for now_s in range(15, 1900, 15):
        held = floors(7, held, trusted=True, now_s=now_s)
        seen[now_s] = held.floor[0]
    assert [seen[at] for at in (15, 585, 600, 1185, 1200, 1800)] == [12, 12, 10, 10, 8, 7]
    assert not held.held[0]


def test_once_valid_again_it_rises_at_once() -> None:
    held = floors(5, unknown_floors(1), trusted=False, now_s=0)
    assert floors(8, held, trusted=True, now_s=15).floor[0] == 8


def test_the_rules_are_those_of_the_pool(pool: Pool) -> None:
    rules = rules_of([pool, pool.model_copy(update={"fallback_replicas": 6})])
    assert rules.least.tolist() == [pool.bounds.min, 6]
    assert rules.every_s.tolist() == [600, 600]


def test_a_grid_says_what_is_due_and_what_comes() -> None:
    """Windows of 5 minutes: 3, 5, 2. Within 6 minutes of 08:04 all three are touched; of 08:00 the first two."""
    grid = FloorGrid(AT.timestamp(), 300.0, np.array([[3.0], [5.0], [2.0]]))
    minutes = [0, 4.99, 5, 14.99]
    assert [grid.due(AT + timedelta(minutes=m))[0] for m in minutes] == [3, 3, 5, 2]
    assert np.isnan(grid.due(AT + timedelta(minutes=15))[0])
    assert np.isnan(grid.due(AT - timedelta(seconds=1))[0])
    within_s = np.array([360.0])
    assert grid.ahead(AT, within_s=within_s)[0] == 5
    assert grid.ahead(AT + timedelta(minutes=10), within_s=within_s)[0] == 2
    assert np.isnan(grid.ahead(AT + timedelta(minutes=15), within_s=within_s)[0])


def test_a_grid_of_a_schedule_holds_each_window_for_as_long_as_it_lasts(schedule) -> None:
    """Against a search through the windows, at every minute of the horizon."""
    pools = ("code-8b", "not-there", "chat-70b")
    grid = grid_of(schedule, pools)
    for minute in range(0, 250):
        at = schedule.issued_at + timedelta(minutes=minute, seconds=30)
        for lane, name in enumerate(pools):
            windows = schedule.pools[name].windows if name in schedule.pools else ()
            due = [one.min_replicas for one in windows if one.start <= at < one.end]
            assert grid.due(at)[lane] == due[0] if due else np.isnan(grid.due(at)[lane])
