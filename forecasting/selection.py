"""Which model forecasts a series, judged on the loss that a floor feels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
import polars as pl

from floorcast.columns import FITS, QUANTILE_LEVELS, SCORES
from floorcast.errors import LeakageError
from forecasting import accuracy, backtest
from forecasting.margins import Margins, bucket_ends
from forecasting.models import CANDIDATES, Model
from forecasting.models.base import HOUR
from forecasting.series import FloatArray, Series, View

NO_MODEL = "none"
"""Stands where a series cannot be forecast; the reason says why, and floors fall back."""

NOISE = 0.02
"""A simpler candidate within this share of the best score, or within one standard error of the difference of
their losses (Breiman's rule), is preferred."""

MIN_STEPS = 24
"""Fewer observed steps than this carry no backtest and so no margin."""

KINDS: tuple[Literal["add", "scale"], ...] = ("add", "scale")


@dataclass(frozen=True)
class Target:
    """What the forecasts are for: the floor's quantile, the lead window and the horizon, both in steps."""

    quantile: float
    lead_steps: int
    horizon_steps: int


@dataclass(frozen=True)
class _Trial:
    model: Model
    losses: FloatArray
    margins: Margins
    row: dict[str, object]

    @property
    def score(self) -> float:
        return float(np.nanmean(self.losses))


def _as_good(trial: _Trial, best: _Trial) -> bool:
    worse_by = trial.losses - best.losses
    seen = worse_by[np.isfinite(worse_by)]
    standard_error = float(seen.std()) / len(seen) ** 0.5
    return bool(float(seen.mean()) <= max(NOISE * best.score, standard_error))


def fit_series(
    series: Series, *, cutoff: datetime, target: Target, timer: Callable[[], float]
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Choose, fit and calibrate a model for one series.

    Returns a row of `floorcast.columns.FITS` and the candidates' rows of `SCORES`. Candidates that crash or
    return something that is no forecast are disqualified with the error recorded; where none is left, or too
    little was observed, the model is `none` and the reason says why. `timer` returns seconds and only
    measures how long each candidate took.
    """
    view = series.view(cutoff)
    key: dict[str, object] = {
        "workload_class": series.workload_class,
        "metric": str(series.metric),
        "cutoff": cutoff,
    }
    observed = int(np.isfinite(view.values).sum())
    if observed < MIN_STEPS:
        reason = f"only {observed} steps were observed; a forecast needs {MIN_STEPS}"
        return _fit_row(key, NO_MODEL, reason, {}, None), []
    trials: list[_Trial] = []
    rows: list[dict[str, object]] = []
    unsuited: list[str] = []
    for model in CANDIDATES:
        lack = model.lacks(view.first(backtest.origin_steps(view)[0]))
        if lack is not None:
            unsuited.append(f"{model.name}: {lack}")
            rows.append({**key, **_unscored(model, lack)})
            continue
        began = timer()
        try:
            trial = _try(model, view, target)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its candidate, on record
            rows.append({**key, **_unscored(model, f"{type(error).__name__}: {error}"), "seconds": timer() - began})
            continue
        trials.append(trial)
        rows.append({**key, **trial.row, "seconds": timer() - began})
    if not trials:
        return _fit_row(key, NO_MODEL, "every candidate failed its backtest", {}, None), rows
    best = min(trials, key=lambda trial: trial.score)
    chosen = next(trial for trial in trials if _as_good(trial, best))
    for row in rows:
        row["chosen"] = row["model"] == chosen.model.name
    reason = _reason(chosen, trials, unsuited, best)
    return _fit_row(key, chosen.model.name, reason, chosen.model.fit(view), chosen.margins), rows


def _try(model: Model, view: View, target: Target) -> _Trial:
    parameters = backtest.fit_for_backtest(model, view)
    result = backtest.run(model, view, parameters=parameters, horizon=target.horizon_steps)
    ends = bucket_ends(
        lead_steps=target.lead_steps,
        horizon_steps=target.horizon_steps,
        steps_per_hour=HOUR / view.step,
    )
    base = 0.1 * float(np.nanmean(view.values))
    actual_peak = _peak(result.actual[:, : target.lead_steps])
    losses = {
        kind: accuracy.pinball_losses(
            actual=actual_peak,
            forecast=_cross_fitted(result, kind=kind, base=base, ends=ends, target=target),
            quantile=target.quantile,
        )
        for kind in KINDS
    }
    if not np.isfinite(actual_peak).any():
        raise ValueError("no lead window after an origin was observed whole")
    kind = min(KINDS, key=lambda each: float(np.nanmean(losses[each])))
    median_peak = _peak(result.path[:, : target.lead_steps])
    return _Trial(
        model=model,
        losses=losses[kind],
        margins=Margins.from_residuals(actual=result.actual, path=result.path, kind=kind, base=base, ends=ends),
        row={
            "model": model.name,
            "chosen": False,
            "origins": len(result.path),
            "pinball": float(np.nanmean(losses[kind])),
            "wape": accuracy.wape(actual=actual_peak, forecast=median_peak),
            "bias": accuracy.bias(actual=actual_peak, forecast=median_peak),
            "error": None,
        },
    )


def _cross_fitted(
    result: backtest.Backtest, *, kind: Literal["add", "scale"], base: float, ends: tuple[int, ...], target: Target
) -> FloatArray:
    """The bound on each origin's lead window, with margins from the other half of the origins only."""
    half = len(result.path) // 2
    bound = np.empty(len(result.path))
    for mine, other in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        margins = Margins.from_residuals(
            actual=result.actual[other], path=result.path[other], kind=kind, base=base, ends=ends
        )
        quantiles = margins.apply(result.path[mine, : target.lead_steps])
        bound[mine] = at_level(quantiles, target.quantile).max(axis=-1, initial=0.0)
    return bound


def at_level(quantiles: FloatArray, level: float) -> FloatArray:
    """One level of an array whose last axis is `QUANTILE_LEVELS`, interpolated linearly between levels."""
    upper = min(max(int(np.searchsorted(QUANTILE_LEVELS, level)), 1), len(QUANTILE_LEVELS) - 1)
    low, high = QUANTILE_LEVELS[upper - 1], QUANTILE_LEVELS[upper]
    weight = (level - low) / (high - low)
    result: FloatArray = quantiles[..., upper - 1] * (1 - weight) + quantiles[..., upper] * weight
    return result


def _peak(values: FloatArray) -> FloatArray:
    """Maximum over the last axis; NaN where any of it was not observed, since the peak may have been there."""
    result: FloatArray = values.max(axis=-1)
    return result


def _reason(chosen: _Trial, trials: list[_Trial], unsuited: list[str], best: _Trial) -> str:
    if len(trials) == 1:
        return f"the only candidate that suits; {'; '.join(unsuited)}" if unsuited else "the only candidate that ran"
    last = next((trial.score for trial in trials if trial.model.name == "last_value"), None)
    against = f", {chosen.score / last:.2f} of last value" if last and chosen.model.name != "last_value" else ""
    how = "best" if chosen is best else f"as good as {best.model.name} within noise, and simpler: best"
    return f"{how} of {len(trials)}: pinball {chosen.score:.4g} tokens/s over the lead window{against}"


def _unscored(model: Model, error: str) -> dict[str, object]:
    return {
        "model": model.name, "chosen": False, "origins": 0, "pinball": None, "wape": None, "bias": None,
        "seconds": 0.0, "error": error,
    }  # fmt: skip


def _fit_row(
    key: dict[str, object], model: str, reason: str, parameters: dict[str, object], margins: Margins | None
) -> dict[str, object]:
    return {
        **key,
        "model": model,
        "reason": reason,
        "parameters": json.dumps(parameters),
        "margins": margins.model_dump_json() if margins else "{}",
    }


def fits_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict(FITS)).sort("workload_class", "metric")


def scores_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict(SCORES)).sort("workload_class", "metric")
