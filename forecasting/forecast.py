"""Forecasts from stored fits and the newest data: the fast cadence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ParamSpec, TypeVar

import numpy as np
import polars as pl

from floorcast.columns import FORECASTS, QUANTILE_COLUMNS, conform
from floorcast.errors import ForecastError, LeakageError
from floorcast.units import format_time
from forecasting.lead import named, thaw
from forecasting.margins import Margins
from forecasting.mixture import Combined, Panel, assemble, combine
from forecasting.models.base import Parameters
from forecasting.outlook import Outlook, forecast_outlook
from forecasting.rows import MIXTURE, label
from forecasting.series import Series, View
from forecasting.verdict import Target, at_level

P = ParamSpec("P")
T = TypeVar("T")

MIN_WINDOWS = 12
"""Without as many lead windows observed whole, nothing is known of how far a forecast is off."""

TOGETHER = 64
"""Series whose experts are combined at once: more would not be faster, and take memory."""


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


@dataclass(frozen=True)
class Request:
    """A forecast wanted: of `series` from `cutoff` on.

    The steps that a floor due now must cover come from `lead`, those after them from `outlook`; without one they are
    not forecast, and floors fall back there.
    """

    series: Series
    cutoff: datetime
    target: Target
    lead: StoredFit
    outlook: StoredFit | None

    @property
    def where(self) -> str:
        return f"{self.series.workload_class} {self.series.metric}"


@dataclass(frozen=True)
class Forecast:
    """`frame` is of `floorcast.columns.FORECASTS`; `panel` and `combined` are what made its lead window.

    `lacks_outlook` says why the frame ends with the lead window, where it does not reach the horizon, and `failed`
    which experts left their weight to others, and why.
    """

    frame: pl.DataFrame
    panel: Panel
    combined: Combined
    lacks_outlook: str | None = None
    failed: tuple[str, ...] = ()


def forecast_all(requests: Sequence[Request]) -> list[Forecast | str]:
    """Forecast every request, or say why it cannot be: one that fails stops no other.

    A stored model that is unknown, was fitted for other settings, or whose forecast is unusable yields no forecast, so
    that floors fall back. Raises LeakageError alone.
    """
    panels = [_or_reason(_panel, request) for request in requests]
    alike: dict[tuple[timedelta, int], list[tuple[int, Panel]]] = {}
    for place, one in enumerate(panels):
        if isinstance(one, Panel):
            alike.setdefault((one.step, one.lead_steps), []).append((place, one))
    outcomes: list[Forecast | str] = [one if isinstance(one, str) else "" for one in panels]
    for placed in alike.values():
        # Those of like length together: a batch takes as long as its longest.
        placed.sort(key=lambda one: len(one[1].points))
        for begin in range(0, len(placed), TOGETHER):
            batch = placed[begin : begin + TOGETHER]
            for (place, panel), combined in zip(batch, combine([panel for _, panel in batch]), strict=True):
                outcomes[place] = _or_reason(_forecast, requests[place], panel, combined)
    return outcomes


def _or_reason(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | str:
    try:
        return make(*args, **kwargs)
    except LeakageError:
        raise
    except ForecastError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever a model raises costs its own class the forecast, no other's
        return f"{type(error).__name__}: {error}"


def _panel(request: Request) -> Panel:
    view = request.series.view(request.cutoff)
    if request.lead.model != MIXTURE:
        raise ForecastError(
            f"the stored model {request.lead.model!r} is not known", where=request.where, remedy="run `floorcast fit`"
        )
    then, now = thaw(_parameters(request.lead, request, view))
    panel = assemble(view, then=then, now=now, lead_steps=request.target.due_steps)
    whole = int(np.isfinite(panel.actual).sum())
    if whole < MIN_WINDOWS:
        raise ForecastError(
            f"only {whole} lead windows were observed whole; margins need {MIN_WINDOWS}",
            where=request.where,
            remedy="look at the class's gaps with `floorcast status`; meanwhile its floors fall back",
        )
    return panel


def _forecast(request: Request, panel: Panel, combined: Combined) -> Forecast:
    series, target, cutoff = request.series, request.target, request.cutoff
    lead_steps = min(target.due_steps, target.horizon_steps)
    values = combined.quantiles[:lead_steps]
    models = [label(named(at_level(combined.weights, target.quantile)))] * lead_steps
    failed = panel.failed
    later: Outlook | str = "no model is stored for the steps after the lead window"
    if request.outlook is not None:
        later = _or_reason(_outlook, request.outlook, request, series.view(cutoff))
        if isinstance(later, Outlook):
            values = np.vstack([values, later.quantiles[lead_steps:]])
            models += [later.label] * len(later.quantiles[lead_steps:])
            failed += later.failed
    frame = pl.DataFrame(values, schema=list(QUANTILE_COLUMNS)).with_columns(
        workload_class=pl.lit(series.workload_class),
        metric=pl.lit(str(series.metric)),
        cutoff=pl.lit(cutoff),
        step_start=pl.datetime_range(
            cutoff, cutoff + len(models) * series.step, series.step, closed="left", eager=True
        ),
        model=pl.Series(models),
    )
    lacking = isinstance(later, str) and target.horizon_steps > lead_steps
    return Forecast(conform(frame, FORECASTS), panel, combined, str(later) if lacking else None, failed)


def _parameters(fit: StoredFit, request: Request, view: View) -> Parameters:
    stored = json.loads(fit.parameters)
    if stored["settings"] != request.target.settings(view.step):
        raise ForecastError(
            f"{fit.model} was fitted for {stored['settings']}, now it is {request.target.settings(view.step)}",
            where=request.where,
            remedy="run `floorcast fit`",
        )
    parameters: Parameters = stored["model"]
    return parameters


def _outlook(fit: StoredFit, request: Request, view: View) -> Outlook:
    if fit.model != MIXTURE:
        raise ForecastError(
            f"the stored model {fit.model!r} is not known", where=request.where, remedy="run `floorcast fit`"
        )
    margins = Margins.model_validate_json(fit.margins)
    made = forecast_outlook(_parameters(fit, request, view), margins, view, request.target.horizon_steps)
    if not np.isfinite(made.quantiles).all():
        raise ForecastError(
            f"the outlook has values that are not finite at cutoff {format_time(view.cutoff)}",
            where=request.where,
            remedy="run `floorcast fit` to choose other models",
        )
    return made
