"""Floors by run, pool and window."""

from __future__ import annotations

import polars as pl

from floorcast.columns import FLOORS
from store.connection import Store
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
