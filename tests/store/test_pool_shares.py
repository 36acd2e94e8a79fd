"""What pools need of their classes together."""

from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import POOL_SHARES
from store.connection import Store
from store.pool_shares import read_pool_shares, write_pool_shares


def shares(cutoff: datetime, share: float, *pools: str) -> pl.DataFrame:
    rows = [{"pool": pool, "metric": "tokens_in", "cutoff": cutoff, "share": share, "peak": 1.1} for pool in pools]
    return pl.DataFrame(rows, schema=dict(POOL_SHARES))


def test_the_latest_cutoff_of_each_pool_is_read_and_a_rewrite_replaces_its_own(store: Store, t0: datetime) -> None:
    later = t0 + timedelta(minutes=5)
    write_pool_shares(store, "forecast-1", shares(t0, 0.9, "a", "b"))
    write_pool_shares(store, "forecast-2", shares(later, 0.8, "a"))
    write_pool_shares(store, "forecast-3", shares(later, 0.7, "a"))
    assert read_pool_shares(store, at=later).select("pool", "share").rows() == [("a", 0.7), ("b", 0.9)]
    assert read_pool_shares(store, at=t0).select("pool", "share").rows() == [("a", 0.9), ("b", 0.9)]
    assert read_pool_shares(store, at=t0 - timedelta(minutes=5)).is_empty()
