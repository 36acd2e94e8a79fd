"""What pools keep of their classes' spread, by the time of the forecasts."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import POOL_SHARES
from store.connection import Store
from store.tables import Table, read_rows, replace_rows

_TABLE = Table("pool_shares", POOL_SHARES, key=("pool", "metric", "as_of"), unit=("as_of",))


def write_pool_shares(store: Store, run_id: str, as_of: datetime, frame: pl.DataFrame) -> None:
    """Store POOL_SHARES as all those of `as_of`."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id, "as_of": as_of})


def read_pool_shares(store: Store, *, as_of: datetime) -> pl.DataFrame:
    """POOL_SHARES of the forecasts made at exactly `as_of`; empty where there were none."""
    return read_rows(store, _TABLE, "SELECT * FROM {table} WHERE as_of = $as_of", {"as_of": as_of})
