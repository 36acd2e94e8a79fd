"""What forecasts a series: experts combined for the lead window, and others for the outlook after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import numpy as np

from floorcast.errors import LeakageError
from forecasting.lead import fit_lead
from forecasting.outlook import NO_MODEL, fit_outlook
from forecasting.rows import Row, fit_row
from forecasting.series import Series
from forecasting.verdict import HORIZONS, Target

MIN_STEPS = 24
"""Fewer observed steps than this carry no backtest and so no margin."""


def fit_series(
    series: Series, *, cutoff: datetime, target: Target, timer: Callable[[], float]
) -> tuple[list[Row], list[Row]]:
    """Fit one series: experts for the lead window, and others for the outlook after it.

    Returns rows of `floorcast.columns.FITS`, one a horizon, and the candidates' rows of `SCORES`. Candidates that
    crash or return something that is no forecast are disqualified with the error recorded; where none is left, or
    too little was observed, the model is `none` and the reason says why. `timer` returns seconds and only measures
    how long each candidate took.
    """
    view = series.view(cutoff)
    key: Row = {"workload_class": series.workload_class, "metric": str(series.metric), "cutoff": cutoff}
    horizons = HORIZONS if target.horizon_steps > target.lead_steps else HORIZONS[:1]
    observed = int(np.isfinite(view.values).sum())
    if observed < MIN_STEPS:
        reason = f"only {observed} steps were observed; a forecast needs {MIN_STEPS}"
        return [fit_row({**key, "horizon": horizon}, NO_MODEL, reason, {}, None) for horizon in horizons], []
    fits: list[Row] = []
    scores: list[Row] = []
    for horizon, make in zip(horizons, (fit_lead, fit_outlook), strict=False):
        at = {**key, "horizon": horizon}
        try:
            fit, judged = make(view, at, target=target, timer=timer)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - what a series raises costs that series its fit, no other
            fit, judged = fit_row(at, NO_MODEL, f"{type(error).__name__}: {error}", {}, None), []
        fits.append(fit)
        scores += judged
    return fits, scores
