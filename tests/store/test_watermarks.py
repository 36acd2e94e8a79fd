"""Watermarks: one per source and class, as last written, for as long as the class is asked for in the same way."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from floorcast.errors import DataError
from store.connection import Store
from store.watermarks import read_watermark, read_watermarks, write_watermarks

ASKED = {"chat": "a", "agent": "b"}
HOUR = timedelta(hours=1)


def test_a_source_never_imported_has_none(store: Store) -> None:
    assert read_watermark(store, "prod") is None
    assert read_watermarks(store, "prod", ASKED) == {}


def test_each_class_of_a_source_has_its_own_as_last_written(store: Store, t0: datetime) -> None:
    """Also an earlier time than before. The zone does not matter."""
    write_watermarks(store, "prod", ASKED, {"chat": t0, "agent": t0 - HOUR})
    write_watermarks(store, "o'ther; --", ASKED, {"chat": t0 + HOUR})
    write_watermarks(store, "prod", ASKED, {"chat": (t0 - 2 * HOUR).astimezone(timezone(timedelta(hours=9)))})
    assert read_watermarks(store, "prod", ASKED) == {"chat": t0 - 2 * HOUR, "agent": t0 - HOUR}
    assert read_watermarks(store, "o'ther; --", ASKED) == {"chat": t0 + HOUR}
    assert read_watermark(store, "prod") == t0 - HOUR
    assert store.read("SELECT * FROM watermarks").height == 3


def test_a_class_that_is_asked_for_otherwise_has_none_until_it_is_written_anew(store: Store, t0: datetime) -> None:
    write_watermarks(store, "prod", ASKED, dict.fromkeys(ASKED, t0))
    changed = ASKED | {"chat": "c"}
    assert read_watermarks(store, "prod", changed) == {"agent": t0}
    assert read_watermarks(store, "prod", {"agent": "b"}) == {"agent": t0}
    write_watermarks(store, "prod", changed, {"chat": t0 - HOUR})
    assert read_watermarks(store, "prod", changed) == {"agent": t0, "chat": t0 - HOUR}
    assert read_watermarks(store, "prod", ASKED) == {"agent": t0}


def test_nothing_seen_changes_nothing(store: Store, t0: datetime) -> None:
    write_watermarks(store, "prod", ASKED, {"chat": t0})
    write_watermarks(store, "prod", ASKED, {})
    assert read_watermarks(store, "prod", ASKED) == {"chat": t0}


def test_a_time_without_zone_is_refused_and_the_old_one_stays(store: Store, t0: datetime) -> None:
    write_watermarks(store, "prod", ASKED, {"chat": t0})
    with pytest.raises(DataError, match="has no zone"):
        write_watermarks(store, "prod", ASKED, {"agent": t0, "chat": t0.replace(tzinfo=None)})
    assert read_watermarks(store, "prod", ASKED) == {"chat": t0}
