"""Watermarks: one per source, as last written."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from floorcast.errors import DataError
from store.connection import Store
from store.watermarks import read_watermark, write_watermark


def test_a_source_never_imported_has_none(store: Store) -> None:
    assert read_watermark(store, "prod") is None


def test_each_source_has_its_own_as_last_written(store: Store, t0: datetime) -> None:
    """Also an earlier time than before: a backfill may go back. The zone does not matter."""
    write_watermark(store, "prod", t0)
    write_watermark(store, "o'ther; --", t0 + timedelta(hours=1))
    write_watermark(store, "prod", (t0 - timedelta(hours=2)).astimezone(timezone(timedelta(hours=9))))
    assert read_watermark(store, "prod") == t0 - timedelta(hours=2)
    assert read_watermark(store, "o'ther; --") == t0 + timedelta(hours=1)
    assert store.read("SELECT * FROM watermarks").height == 2


def test_a_time_without_zone_is_refused_and_the_old_one_stays(store: Store, t0: datetime) -> None:
    write_watermark(store, "prod", t0)
    with pytest.raises(DataError, match="has no zone"):
        write_watermark(store, "prod", t0.replace(tzinfo=None))
    assert read_watermark(store, "prod") == t0
