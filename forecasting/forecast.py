"""Forecasts from stored fits and the newest data: the fast cadence."""

from __future__ import annotations

import json
from datetime import datetime

import polars as pl

from floorcast.columns import FORECASTS, QUANTILE_COLUMNS, conform
from floorcast.errors import ForecastError
from floorcast.units import format_time
from forecasting.margins import Margins
from forecasting.models import BY_NAME
from forecasting.series import Series


def forecast_series(
    series: Series, *, model: str, parameters: str, margins: str, cutoff: datetime, horizon_steps: int
) -> pl.DataFrame:
    """Quantiles for the `horizon_steps` steps from `cutoff` on, as a frame of `floorcast.columns.FORECASTS`.

    `parameters` and `margins` are the JSON that `fit_series` left. Raises ForecastError where the stored model
    is unknown or its forecast unusable, so that the caller falls back instead of publishing it.
    """
    if model not in BY_NAME:
        raise ForecastError(
            f"the stored model {model!r} is not known",
            where=f"{series.workload_class} {series.metric}",
            remedy="run `floorcast fit`",
        )
    view = series.view(cutoff)
    path = BY_NAME[model].predict(json.loads(parameters), view, horizon_steps)
    quantiles = Margins.model_validate_json(margins).apply(path)
    frame = pl.DataFrame(quantiles, schema=list(QUANTILE_COLUMNS)).with_columns(
        workload_class=pl.lit(series.workload_class),
        metric=pl.lit(str(series.metric)),
        cutoff=pl.lit(cutoff),
        step_start=pl.datetime_range(
            cutoff, cutoff + horizon_steps * series.step, series.step, closed="left", eager=True
        ),
        model=pl.lit(model),
    )
    if frame.select(pl.any_horizontal(~pl.col(*QUANTILE_COLUMNS).is_finite())).to_series().any():
        raise ForecastError(
            f"{model} returned values that are not finite at cutoff {format_time(cutoff)}",
            where=f"{series.workload_class} {series.metric}",
            remedy="run `floorcast fit` to choose another model",
        )
    return conform(frame, FORECASTS)
