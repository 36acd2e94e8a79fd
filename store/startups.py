"""Observed starts of pods, by pool."""

from __future__ import annotations

import polars as pl

from floorcast.columns import STARTUPS
from store.connection import Store
from store.tables import Rule, Table, read_rows, replace_rows

_KEY = ("pool", "pod", "created_at")
_TABLE = Table(
    "startups",
    STARTUPS,
    key=_KEY,
    unit=_KEY,
    nullable=frozenset({"ready_at"}),
    rules=(Rule(pl.col("ready_at") < pl.col("created_at"), "ready_at is before created_at", "leave such pods out"),),
)


def upsert_startups(store: Store, frame: pl.DataFrame) -> None:
    """Store STARTUPS in place of those of the same pool, pod and time. Raises DataError where a row does not suit."""
    replace_rows(store, _TABLE, frame, {})


def read_startups(store: Store, pool: str | None = None) -> pl.DataFrame:
    """STARTUPS of a pool (None: of all)."""
    return read_rows(store, _TABLE, "SELECT * FROM {table} WHERE pool = coalesce($pool, pool)", {"pool": pool})
