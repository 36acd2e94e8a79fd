"""What forecasts a series: experts combined for the lead window, one model for the outlook after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from floorcast.errors import LeakageError
from forecasting import backtest
from forecasting.backtest import Backtest
from forecasting.lead import fit_lead
from forecasting.models import CANDIDATES, Model, Parameters
from forecasting.rows import Row, fit_row, score_row
from forecasting.series import Series, View
from forecasting.verdict import HORIZONS, Target, Verdict, judge

NO_MODEL = "none"
"""Stands where a series cannot be forecast; the reason says why, and floors fall back."""

NOISE = 0.02
MOST_NOISE = 0.1
"""A simpler candidate is preferred within the first share of the best score, and up to the second as long as the
difference of their losses is within its standard error (Breiman's rule, with an end: bursts make that error large)."""

MIN_STEPS = 24
"""Fewer observed steps than this carry no backtest and so no margin."""


@dataclass(frozen=True)
class _Trial:
    """What became of one candidate: a backtest, or the reason why there is none."""

    model: Model
    seconds: float
    result: Backtest | None
    error: str | None
    suited: bool


def fit_series(
    series: Series, *, cutoff: datetime, target: Target, timer: Callable[[], float]
) -> tuple[list[Row], list[Row]]:
    """Fit one series: experts for the lead window, and a model for the outlook after it.

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
    for horizon, make in zip(horizons, (fit_lead, _fit_outlook), strict=False):
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


def _fit_outlook(view: View, at: Row, *, target: Target, timer: Callable[[], float]) -> tuple[Row, list[Row]]:
    """Choose, fit and calibrate the one model of the steps after the lead window."""
    trials = [_try(model, view, target, timer) for model in CANDIDATES]
    before = view.first(backtest.origin_steps(view)[0]).values
    mean = float(np.nanmean(before)) if np.isfinite(before).any() else 0.0
    verdicts = {
        trial.model.name: judge(trial.result, target=target, mean=mean) for trial in trials if trial.result is not None
    }
    ranked = {name: verdict for name, verdict in verdicts.items() if isinstance(verdict, Verdict)}
    chosen, parameters = _choose_and_fit(ranked, trials, view)
    scores = [_score_row(at, trial, verdicts.get(trial.model.name), chosen) for trial in trials]
    if chosen is None:
        return fit_row(at, NO_MODEL, "every candidate failed its backtest", {}, None), scores
    stored = {"settings": target.settings(view.step), "model": parameters}
    return fit_row(at, chosen, _reason(chosen, ranked, trials), stored, ranked[chosen].margins), scores


def _choose_and_fit(ranked: dict[str, Verdict], trials: list[_Trial], view: View) -> tuple[str | None, Parameters]:
    """The chosen candidate, fitted on all of the history. One that fails there is disqualified on record, and taken
    out of `ranked`."""
    while (chosen := _choose(ranked)) is not None:
        place = next(i for i, trial in enumerate(trials) if trial.model.name == chosen)
        try:
            return chosen, trials[place].model.fit(view)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its candidate, on record
            trials[place] = replace(trials[place], result=None, error=f"on all data: {type(error).__name__}: {error}")
            del ranked[chosen]
    return None, {}


def _try(model: Model, view: View, target: Target, timer: Callable[[], float]) -> _Trial:
    lack = model.lacks(view.first(backtest.origin_steps(view)[0]))
    if lack is not None:
        return _Trial(model, 0.0, None, lack, suited=False)
    began = timer()
    try:
        parameters = backtest.fit_for_backtest(model, view)
        result = backtest.run(model, view, parameters=parameters, horizon=target.horizon_steps)
    except LeakageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its candidate, on record
        return _Trial(model, timer() - began, None, f"{type(error).__name__}: {error}", suited=True)
    return _Trial(model, timer() - began, result, None, suited=True)


def _choose(ranked: dict[str, Verdict]) -> str | None:
    """The simplest candidate that is as good as the best; `ranked` is in order of simplicity."""
    if not ranked:
        return None
    best = min(ranked.values(), key=lambda verdict: verdict.score)
    return next(name for name, verdict in ranked.items() if _as_good(verdict, best))


def _as_good(verdict: Verdict, best: Verdict) -> bool:
    worse_by = verdict.losses - best.losses
    seen = worse_by[np.isfinite(worse_by)]
    standard_error = float(seen.std()) / len(seen) ** 0.5
    tolerated = max(NOISE * best.score, min(standard_error, MOST_NOISE * best.score))
    return bool(float(seen.mean()) <= tolerated)


def _reason(chosen: str, ranked: dict[str, Verdict], trials: Sequence[_Trial]) -> str:
    unsuited = [f"{trial.model.name}: {trial.error}" for trial in trials if not trial.suited]
    if len(ranked) == 1:
        return "; ".join(["the only candidate that suits", *unsuited])
    best = min(ranked, key=lambda name: ranked[name].score)
    how = "best" if chosen == best else f"simpler than {best} and as good within noise, out"
    last = ranked["last_value"].score if "last_value" in ranked else 0.0
    against = f", {ranked[chosen].score / last:.2f} of last value's" if last and chosen != "last_value" else ""
    return f"{how} of {len(ranked)}, pinball {ranked[chosen].score:.4g} tokens/s{against}"


def _score_row(at: Row, trial: _Trial, verdict: Verdict | str | None, chosen: str | None) -> Row:
    judged = verdict if isinstance(verdict, Verdict) else None
    is_chosen = trial.model.name == chosen
    return score_row(
        at,
        trial.model.name,
        weight=float(is_chosen),
        chosen=is_chosen,
        origins=int(np.isfinite(judged.losses).sum()) if judged else 0,
        pinball=judged.score if judged else None,
        wape=judged.wape if judged else None,
        bias=judged.bias if judged else None,
        seconds=trial.seconds,
        error=trial.error or (verdict if isinstance(verdict, str) else None),
    )
