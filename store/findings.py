"""What is suspicious about the stored demand."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import FINDINGS
from store.connection import Store, query
from store.tables import Rule, Table, read_rows, replace_rows

_KEY = ("kind", "workload_class", "metric", "start", "pool")
_TABLE = Table(
    "findings",
    FINDINGS,
    key=_KEY,
    unit=("kind",),
    rules=(
        Rule(~pl.col("severity").is_in(["info", "warning"]), "severity is neither info nor warning", "give one"),
        Rule(pl.col("end") <= pl.col("start"), "end is not after start", "leave out what has no length"),
    ),
)


def replace_findings(store: Store, frame: pl.DataFrame) -> None:
    """Store FINDINGS as all there are. Raises DataError where a row does not suit; nothing is changed then."""
    with store.transaction():
        store.execute("DELETE FROM findings")
        replace_rows(store, _TABLE, frame, {})


def read_findings(store: Store, at: datetime | None = None) -> pl.DataFrame:
    """FINDINGS that began before `at` (None: all)."""
    return read_rows(store, _TABLE, query("findings_before"), {"at": at})
