"""Rows of the frames that a fit leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import polars as pl

from floorcast.columns import FITS, SCORES
from forecasting.margins import Margins
from forecasting.models import Parameters

Row = dict[str, object]

MIXTURE = "mixture"
"""The name under which a combination stands among the models."""

NAMED = 3
"""Experts named in a label, by weight."""


def label(weights: Mapping[str, float]) -> str:
    """The experts of most weight, as in `mstl_ets_day 0.48, last_value 0.31, blend 0.11, others 0.10`."""
    ranked = sorted(weights.items(), key=lambda one: -one[1])
    named = dict(ranked[:NAMED])
    named["others"] = sum(weight for _, weight in ranked[NAMED:])
    return ", ".join(f"{name} {weight:.2f}" for name, weight in named.items() if weight >= 0.005)


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
