"""An open store, and frames of every schema as callers would make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from floorcast.columns import (
    ACCURACY,
    DEMAND,
    FINDINGS,
    FITS,
    FLOORS,
    FORECASTS,
    QUANTILE_COLUMNS,
    REJECTS,
    SCORES,
    Schema,
)
from store.connection import Store, open_store

T0 = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)
Rows = Callable[..., pl.DataFrame]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "floorcast.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened


@pytest.fixture
def t0() -> datetime:
    """A step start, and the cutoff of forecasts unless given."""
    return T0


def _rows(schema: Schema, defaults: dict[str, Any]) -> Rows:
    """A builder: `build({"column": value}, ...)` gives one row per argument, defaults elsewhere."""

    def build(*rows: dict[str, Any]) -> pl.DataFrame:
        return pl.DataFrame([defaults | row for row in rows], schema=dict(schema))

    return build


@pytest.fixture
def demand() -> Rows:
    return _rows(
        DEMAND,
        {
            "workload_class": "chat",
            "step_start": T0,
            "tokens_in": 1000.0,
            "tokens_out": 250.0,
            "requests": 4.0,
            "peak_tokens_in_per_s": 6.5,
            "peak_tokens_out_per_s": 2.0,
            "observed_fraction": 1.0,
            "source": "prod",
        },
    )


@pytest.fixture
def rejects() -> Rows:
    return _rows(REJECTS, {"source": "prod", "file": "a.csv", "row_number": 1, "reason": "negative", "raw": "-1"})


@pytest.fixture
def fits() -> Rows:
    return _rows(
        FITS,
        {
            "workload_class": "chat",
            "metric": "tokens_in",
            "horizon": "lead",
            "cutoff": T0,
            "model": "mstl_ets",
            "reason": "least pinball",
            "parameters": "{}",
            "margins": "{}",
        },
    )


@pytest.fixture
def scores() -> Rows:
    return _rows(
        SCORES,
        {
            "workload_class": "chat",
            "metric": "tokens_in",
            "horizon": "lead",
            "cutoff": T0,
            "model": "mstl_ets",
            "chosen": True,
            "weight": 0.6,
            "origins": 7,
            "pinball": 12.5,
            "wape": 0.2,
            "bias": -0.05,
            "seconds": 0.3,
            "error": None,
        },
    )


@pytest.fixture
def forecasts() -> Rows:
    quantiles = {name: 10.0 * (rank + 1) for rank, name in enumerate(QUANTILE_COLUMNS)}
    key = {"workload_class": "chat", "metric": "tokens_in", "cutoff": T0, "step_start": T0}
    return _rows(FORECASTS, key | {"model": "mstl_ets"} | quantiles)


@pytest.fixture
def floors() -> Rows:
    return _rows(
        FLOORS,
        {
            "pool": "chat-70b",
            "window_start": T0,
            "window_end": T0 + STEP,
            "min_replicas": 14,
            "required_replicas": 10.92,
            "rung": "fresh",
            "reason": "{}",
        },
    )


@pytest.fixture
def accuracy() -> Rows:
    return _rows(
        ACCURACY,
        {
            "workload_class": "chat",
            "metric": "tokens_in",
            "horizon": "lead",
            "model": "published",
            "first_step": T0,
            "last_step": T0 + STEP,
            "steps": 2,
            "wape": 0.2,
            "mase": 0.9,
            "pinball": 12.5,
            "calibration": 0.94,
            "bias": -0.05,
        },
    )


@pytest.fixture
def findings() -> Rows:
    return _rows(
        FINDINGS,
        {
            "kind": "outage",
            "workload_class": "",
            "metric": "",
            "start": T0,
            "end": T0 + STEP,
            "severity": "warning",
            "masked": True,
            "evidence": "{}",
            "pool": "",
        },
    )
