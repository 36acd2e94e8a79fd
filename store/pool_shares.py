"""What pools need of their classes together, by the cutoff of the forecasts."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import POOL_SHARES
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_UNIT = ("pool", "metric", "cutoff")
_TABLE = Table("pool_shares", POOL_SHARES, key=_UNIT, unit=_UNIT)


def write_pool_shares(store: Store, run_id: str, frame: pl.DataFrame) -> None:
    """Store POOL_SHARES in place of those of the same pool, metric and cutoff."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id})


def read_pool_shares(store: Store, *, at: datetime) -> pl.DataFrame:
    """POOL_SHARES of the latest cutoff at or before `at`, per pool and metric."""
    return read_rows(store, _TABLE, query("latest_pool_shares"), {"at": at})
