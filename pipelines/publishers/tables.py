"""The schedule as one table for spreadsheets and warehouses, in CSV and in Parquet."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path

import polars as pl

from floorcast.types import FloorSchedule
from pipelines.publishers.files import replace_file
from pipelines.publishers.manifests import short_reason

CSV, PARQUET = "schedule.csv", "schedule.parquet"

_TIME = pl.Datetime("us", "UTC")

COLUMNS: dict[str, tuple[pl.DataType, str]] = {
    "version": (pl.Int64(), "of the schedule"),
    "mode": (pl.String(), "`advisory` or `apply`"),
    "issued_at": (_TIME, "UTC"),
    "valid_until": (_TIME, "UTC; from then on keep the replicas you have, or more"),
    "pool": (pl.String(), "its name"),
    "gate": (pl.String(), "`open`, `closed` or `untested`"),
    "rung": (pl.String(), "of the pool: where its demand came from, the worst of its windows"),
    "window_start": (_TIME, "UTC, included"),
    "window_end": (_TIME, "UTC, excluded"),
    "min_replicas": (pl.Int64(), "the floor, in replicas"),
    "shortfall_replicas": (pl.Int64(), "replicas that the floor is under what is wanted"),
    "clamped": (pl.String(), "what keeps it there; empty where nothing does"),
    "binding": (pl.String(), "the metric that decides, or `fallback_replicas`"),
    "demand_tokens_per_s": (pl.Float64(), "tokens per second of the binding metric, at the quantile"),
    "quantile": (pl.Float64(), "of demand, 0 to 1"),
    "required_replicas": (pl.Float64(), "replicas before any buffer and rounding"),
    "needed_by": (_TIME, "UTC; start of the deciding step"),
    "lead_s": (pl.Float64(), "seconds"),
    "reason": (pl.String(), "in one line"),
}
"""Type and meaning of each column, in order."""


def schedule_table(schedule: FloorSchedule, pools: Collection[str]) -> pl.DataFrame:
    """One row per window of these pools, sorted by pool and start; columns as in `COLUMNS`."""
    rows = [
        (
            schedule.version,
            schedule.mode,
            schedule.issued_at,
            schedule.valid_until,
            name,
            pool.gate,
            pool.rung.value,
            window.start,
            window.end,
            window.min_replicas,
            window.reason.shortfall_replicas,
            window.reason.clamped,
            window.reason.binding,
            window.reason.demand_tokens_per_s,
            window.reason.quantile,
            window.reason.required_replicas,
            window.reason.needed_by,
            window.reason.lead_s,
            short_reason(window.reason),
        )
        for name, pool in sorted(schedule.pools.items())
        if name in pools
        for window in pool.windows
    ]
    return pl.DataFrame(rows, schema={name: dtype for name, (dtype, _) in COLUMNS.items()}, orient="row")


def write_csv(schedule: FloorSchedule, pools: Collection[str], folder: Path) -> Path:
    """Write `schedule.csv`, UTF-8 with a header; times as `2026-11-30T08:55:00Z`. Raises PublishError."""
    path = folder / CSV
    replace_file(path, schedule_table(schedule, pools).write_csv(datetime_format="%Y-%m-%dT%H:%M:%SZ"))
    return path


def write_parquet(schedule: FloorSchedule, pools: Collection[str], folder: Path) -> Path:
    """Write `schedule.parquet`; times are UTC in microseconds. Raises PublishError."""
    path, buffer = folder / PARQUET, io.BytesIO()
    schedule_table(schedule, pools).write_parquet(buffer)
    replace_file(path, buffer.getvalue())
    return path
