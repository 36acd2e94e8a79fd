"""Rows of inputs that could not be read."""

from __future__ import annotations

import polars as pl

from floorcast.columns import REJECTS
from store.connection import Store
from store.tables import Table, read_rows, replace_rows

_TABLE = Table("rejects", REJECTS, key=(), unit=("source",), nullable=frozenset({"raw"}))


def replace_rejects(store: Store, source: str, frame: pl.DataFrame) -> None:
    """Store REJECTS rows as all those of the source. Raises DataError where a row names another source."""
    replace_rows(store, _TABLE, frame, {"source": source})


def read_rejects(store: Store, source: str | None = None) -> pl.DataFrame:
    """REJECTS rows of one source, or of all."""
    sql = "SELECT * FROM {table} WHERE source = coalesce($source, source)"
    return read_rows(store, _TABLE, sql, {"source": source})
