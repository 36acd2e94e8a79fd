"""Whether a series has left what its fit knew: coverage lost, error risen, level shifted.

Only what came after the fit's cutoff is evidence, so that a refit needs new evidence before another can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
import polars as pl
import scipy

from floorcast.columns import DRIFT
from floorcast.units import format_duration
from forecasting.accuracy import pinball_losses
from forecasting.forecast import Forecast, Request
from forecasting.models.base import DAY
from forecasting.series import FloatArray
from forecasting.verdict import at_level

Kind = Literal["coverage_lost", "error_risen", "level_shifted"]

LEAST_EVIDENCE, MOST_EVIDENCE = timedelta(hours=6), DAY
"""Less time since the fit shows nothing; of more the newest is judged."""

CHANCE = 0.001
"""Coverage is lost where luck alone leaves as little of it more rarely than this."""

RISEN = 3.0
SLIGHT = 0.001
"""A miss by less than this share, and a loss of less than this share of the mean rate, are none."""

SHIFTED, STEADY = 2.0, 1.5
"""A level has shifted by more than the first factor, where the days before were within the second of each other."""

DAYS_BEFORE, WEEK_DAYS = 3, 7
IDLE = 0.05
"""Rates under this share of the series' mean are idle: twice or half of them is nothing."""


@dataclass(frozen=True)
class Drift:
    """`value` against `reference`: shares covered, pinball losses in tokens/s, or mean rates in tokens/s. `span` is how
    much known time was judged."""

    kind: Kind
    value: float
    reference: float
    span: timedelta

    @property
    def evidence(self) -> str:
        """For a person: `80 % of 95 % over 9h`."""
        over = f"over {format_duration(self.span)}"
        if self.kind == "coverage_lost":
            return f"{self.value * 100:.0f} % of {self.reference * 100:g} % {over}"
        if self.kind == "error_risen":
            return f"pinball {_figure(self.value)} tokens/s against {_figure(self.reference)} before the fit, {over}"
        return f"{_figure(self.value)} tokens/s against {_figure(self.reference)} at the same times before, {over}"


def _figure(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.4g}"


def find_all(
    judged: Iterable[tuple[Request, Forecast, datetime]], *, as_of: datetime
) -> tuple[pl.DataFrame, dict[str, str]]:
    """DRIFT of forecasts, each with the cutoff of the fit that made it, and why of which series nothing can be said:
    what fails here costs no forecast."""
    rows, failed = [], {}
    for request, made, fitted in judged:
        try:
            found = find_drift(request, made, fitted=fitted)
        except Exception as error:  # noqa: BLE001 - on record; a judgement of a forecast must not stop it
            failed[request.where] = f"{type(error).__name__}: {error}"
            continue
        rows += [
            {
                "workload_class": request.series.workload_class,
                "metric": str(request.series.metric),
                "as_of": as_of,
                "kind": one.kind,
                "cutoff": request.cutoff,
                "value": one.value,
                "reference": one.reference,
                "hours": one.span / timedelta(hours=1),
                "evidence": one.evidence,
            }
            for one in found
        ]
    return pl.DataFrame(rows, schema=dict(DRIFT)), failed


def said(drift: pl.DataFrame) -> dict[str, str]:
    """Rows of DRIFT by series, for a person: `coverage_lost (80 % of 95 % over 9h)` of `chat tokens_in`."""
    each = pl.format("{} ({})", "kind", "evidence").str.join("; ")
    by_series = drift.group_by(pl.format("{} {}", "workload_class", "metric").alias("series"), maintain_order=True)
    return dict(by_series.agg(each).iter_rows())


def find_drift(request: Request, made: Forecast, *, fitted: datetime) -> list[Drift]:
    """What has changed since the fit with the cutoff `fitted`, each kind at most once."""
    panel, quantile = made.panel, request.target.quantile
    age = request.cutoff - fitted
    if age < LEAST_EVIDENCE:
        return []
    at_fit = max(len(panel.actual) - 1 - age // panel.apart, 0)
    newest = max(at_fit, len(panel.actual) - 1 - MOST_EVIDENCE // panel.apart)
    known, bound = np.isfinite(panel.actual), at_level(made.combined.past, quantile)
    origins = np.arange(len(known))
    since, before = known & (origins >= newest), known & (origins < at_fit)
    found = [_level_shifted(request.series.view(request.cutoff).values, age // panel.step, panel.step)]
    span = int(since.sum()) * panel.apart
    if span >= LEAST_EVIDENCE:
        found.append(_coverage_lost(panel.actual[since], bound[since], quantile, panel.overlap, span))
        if int(before.sum()) * panel.apart >= DAY:
            losses = pinball_losses(actual=panel.actual, forecast=bound, quantile=quantile)
            found.append(_error_risen(losses[since], losses[before], float(panel.actual[known].mean()), span))
    return [one for one in found if one is not None]


def _coverage_lost(
    actual: FloatArray, bound: FloatArray, quantile: float, overlap: int, span: timedelta
) -> Drift | None:
    """Lead windows of neighbouring origins overlap: only one in `overlap` counts as a trial of its own."""
    covered = int((actual <= bound * (1 + SLIGHT)).sum())
    trials = len(actual) // overlap
    lucky = scipy.stats.binom.cdf(-(-covered * trials // len(actual)), trials, quantile)
    return Drift("coverage_lost", covered / len(actual), quantile, span) if lucky < CHANCE else None


def _error_risen(since: FloatArray, before: FloatArray, rate: float, span: timedelta) -> Drift | None:
    """None where as many origins in a row lost as much before: a class in bursts has risen errors every few days."""
    value, reference = float(since.mean()), max(float(before.mean()), SLIGHT * rate)
    if value <= RISEN * reference:
        return None
    worst = float(np.lib.stride_tricks.sliding_window_view(before, len(since)).mean(axis=1).max())
    return Drift("error_risen", value, reference, span) if value > worst else None


@dataclass(frozen=True)
class _Level:
    """The mean rate of `known` steps, and that of the same times of each of some earlier days, in tokens/s."""

    mean: float
    earlier: FloatArray
    known: int

    @property
    def reference(self) -> float:
        return float(self.earlier.mean())

    @property
    def ratio(self) -> float:
        return self.mean / self.reference

    @property
    def shifted(self) -> bool:
        return not 1 / SHIFTED <= self.ratio <= SHIFTED

    @property
    def steady(self) -> bool:
        return len(self.earlier) > 1 and bool(self.earlier.max() <= STEADY * self.earlier.min())


def _level(values: FloatArray, width: int, days: range, day: int) -> _Level | None:
    """The newest `width` steps beside those `days` days of `day` steps earlier; days of which less than half was
    observed are left out. None where the others have less than half in common, or were wholly idle."""
    begins = [len(values) - width - back * day for back in (0, *days)]
    spans = [values[begin : begin + width] for begin in begins if begin >= 0]
    spans = [spans[0], *(one for one in spans[1:] if np.isfinite(one).mean() >= 0.5)] if spans else []
    if len(spans) < 2:
        return None
    common = np.isfinite(spans).all(axis=0)
    if common.mean() < 0.5:
        return None
    mean, *earlier = np.stack(spans)[:, common].mean(axis=1)
    level = _Level(float(mean), np.array(earlier), int(common.sum()))
    return level if level.reference > 0 else None


def _level_shifted(values: FloatArray, age: int, step: timedelta) -> Drift | None:
    """The mean rate since the fit, the newest day of it at most, against the same times of up to three days before the
    fit. None where these days differ among themselves, as bursts do; where a week ago it was as now, as on weekends;
    where the shift had come before the fit; and for an idle class."""
    day = DAY // step
    width, first_day = min(age, day), -(-age // day)
    now = _level(values, width, range(first_day, first_day + DAYS_BEFORE), day)
    if now is None or now.known * step < LEAST_EVIDENCE or not now.shifted or not now.steady:
        return None
    week_ago = _level(values, width, range(WEEK_DAYS, WEEK_DAYS + 1), day) if first_day <= WEEK_DAYS else None
    at_fit = _level(values[:-age], LEAST_EVIDENCE // step, range(1, DAYS_BEFORE + 1), day)
    if (
        max(now.mean, now.reference) < IDLE * float(np.nanmean(values))
        or (week_ago is not None and not week_ago.shifted)
        or (at_fit is not None and at_fit.ratio / STEADY <= now.ratio <= at_fit.ratio * STEADY)
    ):
        return None
    return Drift("level_shifted", now.mean, now.reference, now.known * step)
