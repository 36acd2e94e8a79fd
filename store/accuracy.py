"""Accuracy of what was forecast, by the time it was measured."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import ACCURACY
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_TABLE = Table(
    "accuracy",
    ACCURACY,
    key=("workload_class", "metric", "horizon", "model"),
    unit=("as_of",),
    nullable=frozenset({"wape", "mase", "pinball", "calibration", "bias"}),
    signed=frozenset({"bias"}),
)


def write_accuracy(store: Store, run_id: str, as_of: datetime, frame: pl.DataFrame) -> None:
    """Store ACCURACY as all that was measured as of that time."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id, "as_of": as_of})


def read_accuracy(store: Store, *, at: datetime) -> pl.DataFrame:
    """ACCURACY of the latest as_of at or before `at`."""
    return read_rows(store, _TABLE, query("accuracy_at"), {"at": at})
