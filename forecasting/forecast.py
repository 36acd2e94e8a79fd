"""Forecasts from stored fits and the newest data: the fast cadence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from floorcast.columns import FORECASTS, QUANTILE_COLUMNS, conform
from floorcast.errors import ForecastError
from floorcast.units import format_time
from forecasting.margins import Margins
from forecasting.models import BY_NAME
from forecasting.series import FloatArray, Series, View
from forecasting.verdict import Target


def fitted_for(parameters: str) -> str:
    """The settings that stored parameters were fitted for; nothing where there is no model."""
    settings: str = json.loads(parameters).get("settings", "")
    return settings


@dataclass(frozen=True)
class StoredFit:
    """A model as a fit left it. `parameters` and `margins` are JSON."""

    model: str
    parameters: str
    margins: str


def forecast_series(
    series: Series,
    *,
    lead: StoredFit,
    outlook: StoredFit | None,
    cutoff: datetime,
    target: Target,
) -> pl.DataFrame:
    """Quantiles for the target's horizon from `cutoff` on, as a frame of `floorcast.columns.FORECASTS`.

    The steps of the lead window come from `lead`, the rest from `outlook` (or `lead` where there is none). Raises
    ForecastError where a stored model is unknown, was fitted for other settings, or its forecast is unusable, so
    that the caller falls back instead of publishing it.
    """
    lead_steps, horizon_steps = target.lead_steps, target.horizon_steps
    view = series.view(cutoff)
    where = f"{series.workload_class} {series.metric}"
    fits = [lead] * min(lead_steps, horizon_steps) + [outlook or lead] * max(horizon_steps - lead_steps, 0)
    quantiles = {fit: _quantiles(fit, view, target, where) for fit in set(fits)}
    values = np.stack([quantiles[fit][step] for step, fit in enumerate(fits)])
    frame = pl.DataFrame(values, schema=list(QUANTILE_COLUMNS)).with_columns(
        workload_class=pl.lit(series.workload_class),
        metric=pl.lit(str(series.metric)),
        cutoff=pl.lit(cutoff),
        step_start=pl.datetime_range(
            cutoff, cutoff + horizon_steps * series.step, series.step, closed="left", eager=True
        ),
        model=pl.Series([fit.model for fit in fits]),
    )
    return conform(frame, FORECASTS)


def _quantiles(fit: StoredFit, view: View, target: Target, where: str) -> FloatArray:
    if fit.model not in BY_NAME:
        raise ForecastError(f"the stored model {fit.model!r} is not known", where=where, remedy="run `floorcast fit`")
    stored = json.loads(fit.parameters)
    if stored["settings"] != target.settings(view.step):
        raise ForecastError(
            f"{fit.model} was fitted for {stored['settings']}, now it is {target.settings(view.step)}",
            where=where,
            remedy="run `floorcast fit`",
        )
    path = BY_NAME[fit.model].predict(stored["model"], view, target.horizon_steps)
    quantiles = Margins.model_validate_json(fit.margins).apply(path)
    if not np.isfinite(quantiles).all():
        raise ForecastError(
            f"{fit.model} returned values that are not finite at cutoff {format_time(view.cutoff)}",
            where=where,
            remedy="run `floorcast fit` to choose another model",
        )
    return quantiles
