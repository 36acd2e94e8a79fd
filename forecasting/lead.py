"""The lead window of one series: experts fitted, weighed on the past, and what is recorded of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from floorcast.errors import LeakageError
from floorcast.units import format_duration
from forecasting import accuracy
from forecasting.mixture import EXPERTS, Combined, Panel, assemble, checked_paths, combine, first_origin
from forecasting.mixture.mixture import Fitted
from forecasting.mixture.past import Past
from forecasting.models import Parameters
from forecasting.rows import MIXTURE, Row, fit_row, label, score_row
from forecasting.series import FloatArray, View
from forecasting.verdict import Target, at_level

LEAST_EARNED = 0.005
"""An expert that never earned more than this share of the weight, at any level, is left out until the next fit."""

NOTHING_GAINED = 0.98
"""A mixture that loses more than this share of what last value loses with the same margins has gained nothing."""


NO_FORECAST_PAYS = "no forecast pays"
"""How the reason of such a fit begins."""


@dataclass
class _Fit:
    then: dict[str, Parameters] = field(default_factory=dict)
    now: dict[str, Parameters] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def fit_lead(view: View, at: Row, *, target: Target, timer: Callable[[], float]) -> tuple[Row, list[Row]]:
    """A row of `floorcast.columns.FITS` for the lead window and one of `SCORES` for each expert and the mixture.

    An expert that crashes or returns something that is no forecast is disqualified with the error recorded. Last value
    cannot be: where nothing else is left, the mixture is last value with margins.
    """
    began = timer()
    fitted = _fit_experts(view, target, timer)
    panel = assemble(view, then=fitted.then, now=fitted.now, lead_steps=target.lead_steps)
    [combined] = combine([panel])
    earned = np.nan_to_num(combined.earned.max(axis=1))
    kept = {
        expert.name: {"then": fitted.then[expert.name], "now": fitted.now[expert.name]}
        for expert, share in zip(EXPERTS, earned, strict=True)
        if expert.name in fitted.then and (share > LEAST_EARNED or expert.name == EXPERTS[0].name)
    }
    stored: Parameters = {"settings": target.settings(view.step), "model": kept}
    weights = at_level(combined.weights, target.quantile)
    scores = [
        _score(
            at,
            expert.name,
            panel,
            forecast=panel.points[:, place],
            losses=combined.losses[place],
            weight=float(weights[place]),
            target=target,
            seconds=fitted.seconds.get(expert.name, 0.0),
            error=fitted.errors.get(expert.name),
        )
        for place, expert in enumerate(EXPERTS)
    ]
    mixture = _score(
        at,
        MIXTURE,
        panel,
        forecast=at_level(combined.past, 0.5),
        losses=combined.mixture_losses,
        weight=1.0,
        target=target,
        seconds=timer() - began,
        error=None,
    )
    reason = f"{_verdict(combined, target)}; {label(named(weights))}"
    return fit_row(at, MIXTURE, reason, stored, None), [*scores, mixture]


def named(weights: FloatArray) -> dict[str, float]:
    """Weights (experts,) by name."""
    return {expert.name: float(weight) for expert, weight in zip(EXPERTS, weights, strict=True)}


def thaw(experts: dict[str, dict[str, Parameters]]) -> tuple[Fitted, Fitted]:
    """The parameters that a stored fit holds: those from before its origins, and those from all of its data."""
    return (
        {name: generations["then"] for name, generations in experts.items()},
        {name: generations["now"] for name, generations in experts.items()},
    )


def _fit_experts(view: View, target: Target, timer: Callable[[], float]) -> _Fit:
    fit = _Fit()
    first = first_origin(view)
    before, past = view.first(first), Past(view, first, target.lead_steps)
    latest = Past(view, len(view.values), target.lead_steps)
    for expert in EXPERTS:
        if len(before.values) * view.step < expert.needs:
            have = format_duration(len(before.values) * view.step)
            fit.errors[expert.name] = (
                f"history of {have} before the first origin is under {format_duration(expert.needs)}"
            )
            continue
        began = timer()
        try:
            then, now = (expert.fit(before), expert.fit(view)) if expert.fit else ({}, {})
            json.dumps([then, now], allow_nan=False)
            checked_paths(expert, past, latest, then=then, now=now)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a library raises disqualifies its expert, on record
            fit.errors[expert.name] = f"{type(error).__name__}: {error}"
        else:
            fit.then[expert.name], fit.now[expert.name] = then, now
        fit.seconds[expert.name] = timer() - began
    return fit


def _score(
    at: Row,
    name: str,
    panel: Panel,
    *,
    forecast: FloatArray,
    losses: FloatArray,
    weight: float,
    target: Target,
    seconds: float,
    error: str | None,
) -> Row:
    """`forecast` (origins,) is judged as a point, `losses` (levels,) are of its quantiles."""
    return score_row(
        at,
        name,
        weight=weight,
        chosen=weight >= LEAST_EARNED,
        origins=int(np.isfinite(panel.actual).sum()),
        pinball=accuracy.or_none(float(at_level(losses, target.quantile))),
        wape=accuracy.or_none(accuracy.wape(actual=panel.actual, forecast=forecast)),
        bias=accuracy.or_none(accuracy.bias(actual=panel.actual, forecast=forecast)),
        seconds=seconds,
        error=error,
    )


def _verdict(combined: Combined, target: Target) -> str:
    loss = float(at_level(combined.mixture_losses, target.quantile))
    last = float(at_level(combined.losses[0], target.quantile))
    if not np.isfinite(loss):
        return "no lead window was observed whole"
    if not last:
        return "last value was always right"
    if loss > NOTHING_GAINED * last:
        return (
            f"{NO_FORECAST_PAYS}: pinball {loss:.4g} tokens/s, {loss / last:.2f} of last value's with the same margins"
        )
    return f"pinball {loss:.4g} tokens/s, {loss / last:.2f} of last value's with the same margins"
