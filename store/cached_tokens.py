"""Prompt tokens that came from a prefix cache, by class and step."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import CACHED_TOKENS
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_KEY = ("workload_class", "step_start")
_TABLE = Table("cached_tokens", CACHED_TOKENS, key=_KEY, unit=_KEY)


def upsert_cached_tokens(store: Store, frame: pl.DataFrame) -> None:
    """Store CACHED_TOKENS in place of those of the same class and step. Raises DataError where a row does not suit."""
    replace_rows(store, _TABLE, frame, {})


def read_cached_tokens(store: Store, *, start: datetime, end: datetime) -> pl.DataFrame:
    """CACHED_TOKENS with start <= step_start < end."""
    return read_rows(store, _TABLE, query("cached_tokens_between"), {"start": start, "end": end})
