"""The steps after the lead window: candidates weighed by their backtest, margins by horizon and hour of the day, and
schedules beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from floorcast.errors import ForecastError, LeakageError
from forecasting import backtest, clocked
from forecasting.margins import Margins, Pairs
from forecasting.models import BY_NAME, CANDIDATES, Model, Parameters
from forecasting.models.base import DAY, HOUR, IntArray
from forecasting.rows import MIXTURE, Row, fit_row, label, score_row
from forecasting.series import FloatArray, View
from forecasting.verdict import Target, Verdict, judge

NO_MODEL = "none"
"""Stands where a series cannot be forecast; the reason says why, and floors fall back."""

SHARPNESS = 8.0
"""Weights are exp(-SHARPNESS (loss / least loss - 1)), as those of exponentially weighted experts (Cesa-Bianchi and
Lugosi, 2006) on losses relative to the best."""

LEAST_WEIGHT = 0.02
"""A candidate of less weight is left out until the next fit."""

REPLAYED_EVERY = 2 * HOUR
"""Between the origins that are forecast again to correct the margins by what came since the fit."""


@dataclass(frozen=True)
class Outlook:
    """`quantiles` (steps, levels) of each step from the cutoff on, the experts' `label`, and of those that `failed`
    why."""

    quantiles: FloatArray
    label: str
    failed: tuple[str, ...]


@dataclass(frozen=True)
class _Trial:
    """What became of one candidate: a backtest and its verdict, or the reason why there is none."""

    model: Model
    seconds: float
    pairs: Pairs | None
    verdict: Verdict | None
    error: str | None
    suited: bool = True


def fit_outlook(
    view: View, at: Row, *, target: Target, timer: Callable[[], float], candidates: Sequence[Model] | None = None
) -> tuple[Row, list[Row]]:
    """A row of `floorcast.columns.FITS` for the outlook and one of `SCORES` for each candidate and the mixture.

    `candidates` are `CANDIDATES` unless given. One that crashes or returns something that is no forecast is
    disqualified with the error recorded.
    """
    began = timer()
    origins = backtest.origin_steps(view)
    trials = [_try(model, view, origins, target, timer) for model in candidates or CANDIDATES]
    weights, parameters = _weigh_and_fit(trials, view)
    if not weights:
        scores = [_score_row(at, trial, 0.0) for trial in trials]
        return fit_row(at, NO_MODEL, "every candidate failed its backtest", {}, None), scores
    mixed = _mixed(trials, weights)
    verdict = judge(mixed, target=target, mean=_mean_before(view, origins))
    if not isinstance(verdict, Verdict):
        raise ForecastError(verdict)
    tried = clocked.try_schedules(view, origins, mixed, target=target, timer=timer)
    parts = {MIXTURE: clocked.of_points(verdict, mixed, target)}
    parts |= {one.schedule.name: one.judged for one in tried if one.judged is not None}
    shares = _weights({name: part.score for name, part in parts.items()})
    blend = clocked.blended(parts, shares, mixed, target)
    of_points = shares.get(MIXTURE, 0.0)
    mixture = score_row(
        at,
        MIXTURE,
        weight=1.0,
        chosen=True,
        origins=verdict.origins,
        pinball=blend.score,
        **clocked.errors_of(blend, mixed, target),
        seconds=timer() - began,
        error=None,
    )
    schedules = {
        one.schedule.name: {**one.parameters, "share": shares[one.schedule.name]}
        for one in tried
        if one.parameters is not None and one.schedule.name in shares
    }
    stored: Parameters = {
        "settings": target.settings(view.step),
        "model": {
            "fitted": view.first_index + len(view.values),
            "weights": weights,
            "experts": parameters,
            "schedules": schedules,
        },
    }
    named = _named(weights, {name: share for name, share in shares.items() if name != MIXTURE})
    row = fit_row(at, MIXTURE, _reason(blend.score, named, trials), stored, verdict.margins)
    scores = [_score_row(at, trial, of_points * weights.get(trial.model.name, 0.0)) for trial in trials]
    scores += [clocked.scored(at, one, shares.get(one.schedule.name, 0.0), mixed, target) for one in tried]
    return row, [*scores, mixture]


def forecast_outlook(parameters: Parameters, margins: Margins, view: View, horizon: int) -> Outlook:
    """Quantiles from a stored fit, corrected by what came since.

    The experts' forecasts from the day before the fit on are made again with its parameters; only steps that came after
    the fit are learned from, since it has not seen them. An expert that fails leaves its weight to the others. Raises
    ForecastError where none is left.
    """
    day, count = view.steps_in(DAY), len(view.values)
    fitted = parameters["fitted"] - view.first_index
    replayed = np.arange(max(fitted - day, 1), count, max(view.steps_in(REPLAYED_EVERY), 1))
    origins = np.append(replayed if count > fitted else replayed[:0], count)
    shape = (len(origins), horizon)
    paths: dict[str, FloatArray] = {}
    failed: list[str] = []
    for name, kept in parameters["experts"].items():
        try:
            paths[name] = backtest.checked(BY_NAME[name].paths(kept, view, origins, horizon), shape)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - its weight goes to the others, on record
            failed.append(f"{name}: {type(error).__name__}: {error}")
    weights = {name: parameters["weights"][name] for name in paths}
    total = sum(weights.values())
    if not total:
        raise ForecastError("; ".join(failed), remedy="run `floorcast fit` to choose other models")
    weights = {name: weight / total for name, weight in weights.items()}
    pairs = backtest.pairs_of(view, origins, _weighted(paths, weights))
    since = replace(pairs, actual=np.where(pairs.targets >= parameters["fitted"], pairs.actual, np.nan))
    quantiles = margins.follow(since).apply(pairs.path[-1], pairs.targets[-1], pairs.day)
    quantiles, shares, without = clocked.with_schedules(quantiles, parameters.get("schedules", {}), view)
    return Outlook(quantiles, label(_named(weights, shares)), (*failed, *without))


def _try(model: Model, view: View, origins: IntArray, target: Target, timer: Callable[[], float]) -> _Trial:
    before = view.first(origins[0])
    lack = model.lacks(before)
    if lack is not None:
        return _Trial(model, 0.0, None, None, lack, suited=False)
    began = timer()
    try:
        parameters = model.fit(before)
        pairs = backtest.run(model, view, origins=origins, parameters=parameters, horizon=target.horizon_steps)
    except LeakageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its candidate, on record
        return _Trial(model, timer() - began, None, None, f"{type(error).__name__}: {error}")
    verdict = judge(pairs, target=target, mean=_mean_before(view, origins))
    if isinstance(verdict, str):
        return _Trial(model, timer() - began, None, None, verdict)
    return _Trial(model, timer() - began, pairs, verdict, None)


def _weigh_and_fit(trials: list[_Trial], view: View) -> tuple[dict[str, float], dict[str, Parameters]]:
    """The weights of the candidates that are kept, and their parameters from all of the history. One that fails there
    is disqualified on record in `trials`, and the others are weighed anew."""
    parameters: dict[str, Parameters] = {}
    weights = _weights(_scores(trials))
    while left := [name for name in weights if name not in parameters]:
        place = next(i for i, trial in enumerate(trials) if trial.model.name == left[0])
        try:
            parameters[left[0]] = trials[place].model.fit(view)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its candidate, on record
            said = f"on all data: {type(error).__name__}: {error}"
            trials[place] = replace(trials[place], pairs=None, verdict=None, error=said)
            weights = _weights(_scores(trials))
    return weights, {name: parameters[name] for name in weights}


def _scores(trials: list[_Trial]) -> dict[str, float]:
    return {trial.model.name: trial.verdict.score for trial in trials if trial.verdict is not None}


def _named(weights: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Weights of the point forecasts among themselves, with the shares that schedules have of the whole."""
    rest = 1.0 - sum(shares.values())
    return {**{name: rest * weight for name, weight in weights.items()}, **shares}


def _weights(scores: Mapping[str, float]) -> dict[str, float]:
    if not scores:
        return {}
    least = min(scores.values())
    worse_by = {name: (score - least) / max(least, np.finfo(float).tiny) for name, score in scores.items()}
    weights = {name: float(np.exp(-SHARPNESS * min(ratio, 1e3))) for name, ratio in worse_by.items()}
    total = sum(weights.values())
    kept = {name: weight for name, weight in weights.items() if weight >= LEAST_WEIGHT * total}
    return {name: weight / sum(kept.values()) for name, weight in kept.items()}


def _mixed(trials: list[_Trial], weights: Mapping[str, float]) -> Pairs:
    pairs = {trial.model.name: trial.pairs for trial in trials if trial.pairs is not None}
    paths = {name: pairs[name].path for name in weights}
    return replace(pairs[next(iter(weights))], path=_weighted(paths, weights))


def _weighted(paths: Mapping[str, FloatArray], weights: Mapping[str, float]) -> FloatArray:
    mixed: FloatArray = np.sum([weight * paths[name] for name, weight in weights.items()], axis=0)
    return mixed


def _mean_before(view: View, origins: IntArray) -> float:
    known = view.first(origins[0]).values
    return float(np.nanmean(known)) if np.isfinite(known).any() else 0.0


def _reason(score: float, weights: Mapping[str, float], trials: list[_Trial]) -> str:
    unsuited = [f"{trial.model.name}: {trial.error}" for trial in trials if not trial.suited]
    if len(weights) == 1 and sum(trial.verdict is not None for trial in trials) == 1:
        return "; ".join([f"{next(iter(weights))} alone suits", *unsuited])
    last = next((trial.verdict.score for trial in trials if trial.model.name == "last_value" and trial.verdict), 0.0)
    against = f", {score / last:.2f} of last value's" if last else ""
    return f"pinball {score:.4g} tokens/s{against}; {label(weights)}"


def _score_row(at: Row, trial: _Trial, weight: float) -> Row:
    verdict = trial.verdict
    return score_row(
        at,
        trial.model.name,
        weight=weight,
        chosen=weight > 0,
        origins=verdict.origins if verdict else 0,
        pinball=verdict.score if verdict else None,
        wape=verdict.wape if verdict else None,
        bias=verdict.bias if verdict else None,
        seconds=trial.seconds,
        error=trial.error,
    )
