"""What has changed since the fits, by the time of the forecasts that showed it."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import DRIFT
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_TABLE = Table("drift", DRIFT, key=("workload_class", "metric", "as_of", "kind"), unit=("as_of",))


def write_drift(store: Store, run_id: str, as_of: datetime, frame: pl.DataFrame) -> None:
    """Store DRIFT as all that was found at `as_of`."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id, "as_of": as_of})


def read_drift(store: Store, *, at: datetime) -> pl.DataFrame:
    """The newest DRIFT at or before `at`, per class and metric."""
    return read_rows(store, _TABLE, query("drift_at"), {"at": at})
