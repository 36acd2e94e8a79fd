"""Rows of the frames that a fit leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence

import polars as pl

from floorcast.columns import FITS, SCORES
from forecasting.margins import Margins
from forecasting.models import Parameters

Row = dict[str, object]


def fit_row(at: Row, model: str, reason: str, parameters: Parameters, margins: Margins | None) -> Row:
    return {
        **at,
        "model": model,
        "reason": reason,
        "parameters": json.dumps(parameters),
        "margins": margins.model_dump_json() if margins else "{}",
    }


def fits_frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(FITS)).sort("workload_class", "metric", "horizon")


def scores_frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(SCORES)).sort(
        "workload_class", "metric", "horizon", maintain_order=True
    )
