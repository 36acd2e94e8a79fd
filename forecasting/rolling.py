"""What would have been forecast at rolling origins of a series' past, each from what came before it, and what naive
forecasts with margins of their own would have said there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.errors import ForecastError, LeakageError
from forecasting.conformal import MARGINS, Margin, units, with_margin
from forecasting.evaluation import LAST_VALUE, SEASONAL_NAIVE
from forecasting.margins import Margins
from forecasting.mixture import replay
from forecasting.mixture.mixture import MEMORY
from forecasting.mixture.past import Past
from forecasting.models.base import DAY, HOUR, IntArray, ahead_of
from forecasting.outlook import NO_MODEL, fit_outlook, forecast_outlook
from forecasting.series import FloatArray, Series, View
from forecasting.verdict import Target, at_level

Span = Literal["lead", "day_ahead"]
"""`lead`: the greatest rate of the lead window, from every step. `day_ahead`: each step after it up to a day ahead,
from every hour."""

NAIVE = (LAST_VALUE, SEASONAL_NAIVE)


@dataclass(frozen=True)
class Naive:
    """A naive forecast: `point` (origins, targets), and by kind of margin its quantiles (origins, targets, levels)."""

    point: FloatArray
    quantiles: dict[Margin, FloatArray]


@dataclass(frozen=True)
class Rolled:
    """Forecasts of one span, all in tokens/s. `origins` (origins,) are steps known, counted from the series' start;
    `actual` (origins, targets) what came, NaN where a step of it was not observed or lies after the series' end;
    `quantiles` (origins, targets, levels) what would have been forecast, NaN where nothing could be."""

    span: Span
    origins: IntArray
    levels: tuple[float, ...]
    actual: FloatArray
    quantiles: FloatArray
    naive: dict[str, Naive]


def roll_lead(series: Series, *, target: Target, first: int) -> Rolled:
    """Every step from `first` on is an origin. As `forecasting.mixture.replay`: experts are fitted anew each day."""
    steps, levels = target.lead_steps, _levels(target)
    made = replay(series.view(series.end), lead_steps=steps, first_origin=first)
    begin = _learned_from(series, first)
    origins = np.arange(begin, len(series.values))
    actual = _came(series, origins, steps).max(axis=1, keepdims=True)
    unseen, mean = first - begin, _known_mean(series, origins)
    naive = {}
    for name, paths in _naive_paths(series, origins, steps):
        point = paths.max(axis=1, keepdims=True)
        quantiles = _with_margins(
            point, actual, mean, delay=steps, window=MEMORY // series.step, first=unseen, levels=levels
        )
        naive[name] = Naive(point[unseen:], quantiles)
    return Rolled("lead", origins[unseen:], levels, actual[unseen:], _at(made, levels)[:, None], naive)


def roll_day_ahead(series: Series, *, target: Target, first: int, refit_steps: int) -> Rolled:
    """Origins lie an hour apart from `first` on. The outlook's experts are weighed and fitted anew every `refit_steps`.

    Raises ForecastError where the horizon ends with the lead window.
    """
    day, hour = DAY // series.step, max(HOUR // series.step, 1)
    after = slice(target.lead_steps, min(target.horizon_steps, day))
    if after.start >= after.stop:
        raise ForecastError("the horizon ends with the lead window", remedy="give a longer `horizon`")
    levels = _levels(target)
    begin = first - (first - _learned_from(series, first)) // hour * hour
    origins = np.arange(begin, len(series.values), hour)
    actual = _came(series, origins, after.stop)[:, after]
    unseen, mean = (first - begin) // hour, _known_mean(series, origins)
    naive = {}
    for name, paths in _naive_paths(series, origins, after.stop):
        point = paths[:, after]
        # Residuals are those of like horizon, by the hour, whose targets were all known at the origin.
        by_hour = [
            _with_margins(
                point[:, span],
                actual[:, span],
                mean,
                delay=-(-(after.start + span.stop) // hour),
                window=max(MEMORY // series.step // hour, -(-(after.start + span.stop) // hour)),
                first=unseen,
                levels=levels,
            )
            for span in (slice(at, min(at + hour, point.shape[1])) for at in range(0, point.shape[1], hour))
        ]
        joined = {margin: np.concatenate([one[margin] for one in by_hour], axis=1) for margin in MARGINS}
        naive[name] = Naive(point[unseen:], joined)
    made = _outlooks(series, origins[unseen:], target=target, refit_steps=refit_steps)[:, after]
    return Rolled("day_ahead", origins[unseen:], levels, actual[unseen:], _at(made, levels), naive)


def _outlooks(series: Series, origins: IntArray, *, target: Target, refit_steps: int) -> FloatArray:
    """(origins, horizon, levels); NaN where no outlook could be fitted or made, so that floors would have fallen
    back."""
    made = np.full((len(origins), target.horizon_steps, len(QUANTILE_LEVELS)), np.nan)
    refit_at = origins[0]
    parameters, margins = None, None
    for place, origin in enumerate(origins.tolist()):
        view = series.view(series.start + origin * series.step)
        if origin >= refit_at:
            refit_at = origin + refit_steps
            parameters, margins = _fitted(view, target)
        if parameters is None or margins is None:
            continue
        try:
            made[place] = forecast_outlook(parameters, margins, view, target.horizon_steps).quantiles
        except LeakageError:
            raise
        except Exception:  # noqa: BLE001, S112 - a cycle goes on without an outlook that fails; so does its replay
            continue
    return made


def _fitted(view: View, target: Target) -> tuple[dict[str, object] | None, Margins | None]:
    try:
        row, _ = fit_outlook(view, {}, target=target, timer=lambda: 0.0)
    except LeakageError:
        raise
    except Exception:  # noqa: BLE001 - as in a fit, what a series raises costs it its outlook
        return None, None
    if row["model"] == NO_MODEL:
        return None, None
    return json.loads(str(row["parameters"]))["model"], Margins.model_validate_json(str(row["margins"]))


def _learned_from(series: Series, first: int) -> int:
    """The first origin whose residuals a margin may use: one day in, and as far back as the experts remember."""
    return min(max(first - MEMORY // series.step, DAY // series.step), first)


def _came(series: Series, origins: IntArray, steps: int) -> FloatArray:
    padded = np.concatenate([series.values, np.full(steps, np.nan)])
    came: FloatArray = padded[ahead_of(origins, steps)]
    return came


def _naive_paths(series: Series, origins: IntArray, steps: int) -> Iterator[tuple[str, FloatArray]]:
    """(origins, steps) of each: the newest rate observed; and the newest observed at that time of the day."""
    day = DAY // series.step
    newest = _filled(series.values[:, None])[:, 0]
    yield LAST_VALUE, np.repeat(newest[origins - 1, None], steps, axis=1)
    days = np.full(-(-len(newest) // day) * day, np.nan)
    days[: len(newest)] = series.values
    known = _filled(days.reshape(-1, day)).reshape(-1)
    yield SEASONAL_NAIVE, known[ahead_of(origins, min(steps, day)) - day]


def _filled(values: FloatArray) -> FloatArray:
    """Missing values as the newest before them in their column, NaN where there is none."""
    rows = np.where(np.isfinite(values), np.arange(len(values))[:, None], -1)
    newest = np.maximum.accumulate(rows, axis=0)
    filled: FloatArray = np.where(newest >= 0, np.take_along_axis(values, np.maximum(newest, 0), axis=0), np.nan)
    return filled


def _known_mean(series: Series, origins: IntArray) -> FloatArray:
    return Past(series.view(series.end), 1, 1).mean()[origins - 1]


def _with_margins(
    point: FloatArray,
    actual: FloatArray,
    mean: FloatArray,
    *,
    delay: int,
    window: int,
    first: int,
    levels: Sequence[float],
) -> dict[Margin, FloatArray]:
    by_unit = {margin: units(point, mean, margin) for margin in MARGINS}
    return {
        margin: with_margin(point, actual, unit, delay=delay, window=window, first=first, levels=levels)
        for margin, unit in by_unit.items()
    }


def _levels(target: Target) -> tuple[float, ...]:
    return tuple(sorted({*QUANTILE_LEVELS, target.quantile}))


def _at(quantiles: FloatArray, levels: Sequence[float]) -> FloatArray:
    stacked: FloatArray = np.stack([at_level(quantiles, level) for level in levels], axis=-1)
    return stacked
