"""Ready replicas and waiting requests, by pool and step."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import POOL_LOAD
from store.connection import Store
from store.tables import Rule, Table, read_rows, replace_rows

_KEY = ("pool", "step_start")
_TABLE = Table(
    "pool_load",
    POOL_LOAD,
    key=_KEY,
    unit=_KEY,
    rules=(Rule(pl.col("ready_max") < pl.col("ready_min"), "ready_max is below ready_min", "swap them"),),
)


def upsert_pool_load(store: Store, frame: pl.DataFrame) -> None:
    """Store POOL_LOAD in place of that of the same pool and step. Raises DataError where a row does not suit."""
    replace_rows(store, _TABLE, frame, {})


def read_pool_load(store: Store, pool: str, *, start: datetime, end: datetime) -> pl.DataFrame:
    """POOL_LOAD of a pool with start <= step_start < end."""
    sql = "SELECT * FROM {table} WHERE pool = $pool AND step_start >= $start AND step_start < $end"
    return read_rows(store, _TABLE, sql, {"pool": pool, "start": start, "end": end})
