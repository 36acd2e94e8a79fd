"""Floors by run."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from floorcast.columns import FLOORS, empty
from floorcast.errors import DataError
from store.connection import Store
from store.floors import read_floors, write_floors

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
