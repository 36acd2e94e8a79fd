"""Accuracy by the time it was measured."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from floorcast.columns import ACCURACY, empty
from floorcast.errors import DataError
from store.accuracy import read_accuracy, write_accuracy
from store.connection import Store

HOUR = timedelta(hours=1)


def test_latest_measurement_at_or_before(store: Store, accuracy, t0: datetime) -> None:
    early = accuracy({"model": "last_value", "pinball": None, "calibration": None}, {})
    late = accuracy({"wape": None, "bias": -0.5})
    write_accuracy(store, "r2", t0 + 2 * HOUR, late)
    write_accuracy(store, "r1", t0, early)
    assert read_accuracy(store, at=t0 - HOUR).equals(empty(ACCURACY))
    assert read_accuracy(store, at=t0 + HOUR).equals(early)
    assert read_accuracy(store, at=t0 + 2 * HOUR).equals(late)


def test_measuring_again_replaces_all_of_that_time(store: Store, accuracy, t0: datetime) -> None:
    """Given in another zone it is the same time; a class that is gone does not linger."""
    write_accuracy(store, "r1", t0, accuracy({}, {"workload_class": "gone"}))
    for _ in "12":
        write_accuracy(store, "r2", t0.astimezone(timezone(HOUR)), accuracy({"wape": 0.1}))
    assert read_accuracy(store, at=t0).equals(accuracy({"wape": 0.1}))
    write_accuracy(store, "r3", t0, empty(ACCURACY))
    assert read_accuracy(store, at=t0).is_empty()


def test_naive_as_of_and_infinite_wape_are_refused(store: Store, accuracy, t0: datetime) -> None:
    with pytest.raises(DataError, match=r"as_of: .* has no zone"):
        write_accuracy(store, "r", t0.replace(tzinfo=None), accuracy({}))
    with pytest.raises(DataError, match=r"accuracy: wape is NaN or infinite .* first at workload_class=chat"):
        write_accuracy(store, "r", t0, accuracy({"wape": float("inf")}))
