"""Floors by run, pool and window."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import FLOORS
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_TABLE = Table(
    "floors", FLOORS, key=("pool", "window_start"), unit=("run_id",), nullable=frozenset({"required_replicas"})
)


def write_floors(store: Store, run_id: str, frame: pl.DataFrame) -> None:
    """Store FLOORS as all floors of the run. required_replicas may be null on a fallback rung."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id})


def read_floors(store: Store, run_id: str) -> pl.DataFrame:
    """FLOORS of a run; empty where there is none."""
    return read_rows(store, _TABLE, "SELECT * FROM {table} WHERE run_id = $run_id", {"run_id": run_id})


def floors_in_force(store: Store, *, start: datetime, end: datetime) -> pl.DataFrame:
    """What was published for each step from `start` to before `end`, as it was when the step began: pool,
    window_start, min_replicas. A step for which no publication was valid has no row."""
    return store.read(query("floors_in_force"), {"start": start, "end": end})
