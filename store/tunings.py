"""What tuning found, by pool and time."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import TUNINGS
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_KEY = ("pool", "as_of")
_TABLE = Table("tunings", TUNINGS, key=_KEY, unit=_KEY)


def write_tunings(store: Store, run_id: str, frame: pl.DataFrame) -> None:
    """Store TUNINGS in place of those of the same pool and time."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id})


def read_tunings(store: Store, *, at: datetime) -> pl.DataFrame:
    """The newest TUNINGS of each pool at or before `at`."""
    return read_rows(store, _TABLE, query("latest_tunings"), {"at": at})
