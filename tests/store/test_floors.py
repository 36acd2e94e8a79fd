"""Floors by run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from floorcast.columns import FLOORS, empty
from floorcast.errors import DataError
from store.connection import Store
from store.floors import floors_in_force, read_floors, write_floors
from store.publications import PublicationRecord, record_publication

STEP = timedelta(minutes=5)


def test_floors_of_a_run_are_replaced_whole_and_runs_are_apart(store: Store, floors, t0: datetime) -> None:
    second = {"window_start": t0 + STEP, "window_end": t0 + 2 * STEP}
    write_floors(store, "r1", floors(second, {}))
    write_floors(store, "r2", floors({"min_replicas": 3}))
    assert read_floors(store, "r1").equals(floors({}, second))
    for _ in "12":
        write_floors(store, "r1", floors({"min_replicas": 15}))
    assert read_floors(store, "r1").equals(floors({"min_replicas": 15}))
    assert read_floors(store, "r2").equals(floors({"min_replicas": 3}))
    assert read_floors(store, "r3").equals(empty(FLOORS))


def test_fallback_rung_has_no_required_replicas(store: Store, floors) -> None:
    row = {"required_replicas": None, "rung": "fallback_replicas"}
    write_floors(store, "r", floors(row))
    assert read_floors(store, "r").equals(floors(row))


def test_negative_floor_is_refused(store: Store, floors) -> None:
    with pytest.raises(DataError, match="floors: min_replicas is negative in 1 of 1 rows, first at pool=chat-70b"):
        write_floors(store, "r", floors({"min_replicas": -1}))


def test_the_floor_in_force_is_that_of_the_last_publication_valid_when_its_step_began(
    store: Store, floors, t0: datetime
) -> None:
    """Three steps published at t0 as 1, 2, 3 and valid for two; at t0 + 1 step again as 5, 6; planned but never
    published, 9."""

    def steps(first: int, values: list[int]) -> list[dict[str, object]]:
        return [
            {"window_start": t0 + (first + i) * STEP, "window_end": t0 + (first + i + 1) * STEP, "min_replicas": value}
            for i, value in enumerate(values)
        ]

    write_floors(store, "r1", floors(*steps(0, [1, 2, 3])))
    write_floors(store, "r2", floors(*steps(1, [5, 6, 7])))
    write_floors(store, "r3", floors(*steps(0, [9, 9, 9])))
    for version, (run, issued_at) in enumerate({"r1": t0, "r2": t0 + STEP}.items(), start=1):
        record_publication(
            store, PublicationRecord(version, run, issued_at, issued_at + 2 * STEP, "advisory", "sha256:00", "{}")
        )
    told = floors_in_force(store, start=t0 - STEP, end=t0 + 4 * STEP)
    assert told.select("window_start", "min_replicas").rows() == [(t0, 1), (t0 + STEP, 5), (t0 + 2 * STEP, 6)]
    assert floors_in_force(store, start=t0 + STEP, end=t0 + 2 * STEP)["min_replicas"].to_list() == [5]
