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


def score_row(
    at: Row,
    model: str,
    *,
    weight: float,
    chosen: bool,
    origins: int,
    pinball: float | None,
    wape: float | None,
    bias: float | None,
    seconds: float,
    error: str | None,
) -> Row:
    """One candidate. One that was disqualified has an error, no origins and no losses."""
    judged = {"origins": origins, "pinball": pinball, "wape": wape, "bias": bias}
    if error is not None:
        judged = {"origins": 0, "pinball": None, "wape": None, "bias": None}
    return {**at, "model": model, "chosen": chosen, "weight": weight, **judged, "seconds": seconds, "error": error}


def fits_frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(FITS)).sort("workload_class", "metric", "horizon")


def scores_frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(SCORES)).sort(
        "workload_class", "metric", "horizon", maintain_order=True
    )
