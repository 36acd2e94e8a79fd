"""Forecast quantiles by class, metric, cutoff and step."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import FORECASTS
from store.connection import Store, query
from store.tables import Table, read_rows, replace_rows

_UNIT = ("workload_class", "metric", "cutoff")
_TABLE = Table("forecasts", FORECASTS, key=(*_UNIT, "step_start"), unit=_UNIT)


def write_forecasts(store: Store, run_id: str, frame: pl.DataFrame) -> None:
    """Store FORECASTS in place of all those of the same class, metric and cutoff, shorter horizons included."""
    replace_rows(store, _TABLE, frame, {"run_id": run_id})


def read_forecast(store: Store, *, at: datetime) -> pl.DataFrame:
    """FORECASTS of the latest cutoff at or before `at`, per class and metric."""
    return read_rows(store, _TABLE, query("latest_cutoff"), {"at": at})


def read_forecasts(store: Store, *, start: datetime, end: datetime) -> pl.DataFrame:
    """FORECASTS of every cutoff with start <= step_start < end."""
    return read_rows(store, _TABLE, query("forecasts_between"), {"start": start, "end": end})


def forecasts_on_changed_data(
    store: Store, *, at: datetime, look_back: timedelta, since: datetime | None = None
) -> pl.DataFrame:
    """The forecasts with since < cutoff <= at (None: the latest per class and metric) made before data changed that lie
    up to `look_back` before their cutoff.

    Columns: workload_class, metric, cutoff, steps (that changed), first_step, last_step.
    """
    parameters = {"at": at, "since": since, "look_back_s": look_back.total_seconds()}
    return store.read(query("forecasts_on_changed_data"), parameters)
