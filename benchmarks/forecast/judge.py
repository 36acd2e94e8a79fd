"""One series judged: floorcast and every alternative, on the same origins and targets."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.forecast.alternatives import ALTERNATIVES, DAY
from benchmarks.forecast.data import daily_share
from benchmarks.forecast.ours import lead_quantiles, outlook_quantiles
from floorcast.columns import QUANTILE_LEVELS
from floorcast.errors import ForecastError
from forecasting import accuracy
from forecasting.conformal import MARGINS, Margin, units, with_margin
from forecasting.coverage import NEXT_TO_NOTHING, share_covered
from forecasting.series import FloatArray, Series

LEVELS = (0.5, 0.9, 0.95)
LEADS = {"10m": 1, "20m": 2}
OUTLOOK = "day"
HOUR = DAY // 24
EVALUATED = 4 * DAY
MARGIN_WINDOW = 6 * DAY
CALIBRATED = 14 * DAY
"""The newest days, after the first `MARGIN_WINDOW`, over which the calibration of the outlook is told."""

OURS, OWN_MARGIN = "floorcast", "own"

Row = dict[str, str | float]

_JUDGED = [QUANTILE_LEVELS.index(level) for level in LEVELS]


@dataclass(frozen=True)
class _Truth:
    """What a series' forecasts are judged by. `evaluated` is the first judged origin, `first` the first for margins."""

    series: Series
    first: int
    evaluated: int
    known_mean: FloatArray

    @classmethod
    def of(cls, series: Series, steps: int) -> _Truth:
        values = series.values
        evaluated = len(values) - steps
        seen = np.isfinite(values)
        before = np.cumsum(np.where(seen, values, 0.0)) - np.where(seen, values, 0.0)
        count = np.cumsum(seen) - seen
        return cls(series, max(evaluated - MARGIN_WINDOW, DAY), evaluated, before / np.maximum(count, 1))

    def ahead(self, first: int, steps: int) -> FloatArray:
        """What came after every origin from `first` on: (origins, steps), NaN where missing or past the end."""
        padded = np.concatenate([self.series.values[first:], np.full(steps - 1, np.nan)])
        return np.lib.stride_tricks.sliding_window_view(padded, steps)

    def row(self, horizon: str, method: str, margin: str, quantiles: FloatArray, actual: FloatArray) -> Row:
        """The figures of quantiles (origins, steps, levels). Raises ForecastError where one is missing for a target."""
        seen = np.isfinite(actual)
        if not np.isfinite(quantiles[seen]).all():
            raise ForecastError(
                f"{method} left a target of {self.series.workload_class} {self.series.metric} without a forecast",
                remedy="mend the forecaster: a target left out would not count against it",
            )
        values = self.series.values
        median = quantiles[..., 0]
        row: Row = {
            "workload_class": self.series.workload_class,
            "metric": str(self.series.metric),
            "horizon": horizon,
            "method": method,
            "margin": margin,
            "targets": int(seen.sum()),
            "mean_rate": float(np.nanmean(values[self.evaluated :])),
            "wape": accuracy.wape(actual=actual, forecast=median),
            "mase": accuracy.mase(actual=actual, forecast=median, training=values[: self.evaluated], season=DAY),
            "bias": accuracy.bias(actual=actual, forecast=median),
        }
        for place, level in enumerate(LEVELS):
            row[f"pinball_{level}"] = accuracy.pinball(actual=actual, forecast=quantiles[..., place], quantile=level)
            row[f"share_{level}"] = accuracy.calibration(actual=actual, forecast=quantiles[..., place])
        return row


def why_left_out(series: Series) -> str | None:
    """Why a series cannot be judged, or None where it can."""
    days = len(series.values) / DAY
    if days < (EVALUATED + MARGIN_WINDOW) / DAY:
        return f"{days:.1f} days are recorded, {(EVALUATED + MARGIN_WINDOW) // DAY} are needed"
    recent = series.values[-EVALUATED:]
    if not np.isfinite(recent).any() or np.nanmax(recent) == 0:
        return "no traffic in the evaluated days"
    return None


def judge_series(series: Series, *, evaluated: int = EVALUATED) -> list[Row]:
    """A row for each horizon, method and margin: its figures over the last `evaluated` steps.

    `seconds` are a method's for all origins of that horizon; an alternative makes those of all horizons at once.
    """
    truth = _Truth.of(series, evaluated)
    rows = _judge_ours(truth)
    for name, forecast in ALTERNATIVES.items():
        began = time.perf_counter()
        paths = forecast(series.values, first=truth.first, horizon=DAY)
        seconds = time.perf_counter() - began
        for margin in MARGINS:
            rows += [row | {"seconds": seconds} for row in _judge_alternative(truth, name, paths, margin)]
    return rows


def _judge_ours(truth: _Truth) -> list[Row]:
    series, evaluated = truth.series, truth.evaluated
    rows: list[Row] = []
    for horizon, steps in LEADS.items():
        began = time.perf_counter()
        quantiles = lead_quantiles(series, lead_steps=steps, first=MARGIN_WINDOW, levels=QUANTILE_LEVELS)[:, None]
        seconds = time.perf_counter() - began
        actual = truth.ahead(MARGIN_WINDOW, steps).max(axis=1)[:, None]
        skipped = evaluated - MARGIN_WINDOW
        row = truth.row(horizon, OURS, OWN_MARGIN, quantiles[skipped:, :, _JUDGED], actual[skipped:])
        rows.append(row | _of_all(series, quantiles, actual, seconds))
    hours_before = (evaluated - max(MARGIN_WINDOW, len(series.values) - CALIBRATED)) // HOUR
    origins = range(evaluated - hours_before * HOUR, len(series.values), HOUR)
    began = time.perf_counter()
    outlook, weights = outlook_quantiles(series, origins=origins, horizon=DAY, refit_every=DAY, levels=QUANTILE_LEVELS)
    seconds = time.perf_counter() - began
    actual = truth.ahead(origins[0], DAY)[::HOUR]
    row = truth.row(OUTLOOK, OURS, OWN_MARGIN, outlook[hours_before:, :, _JUDGED], actual[hours_before:])
    row |= _of_all(series, outlook, actual, seconds)
    return [*rows, row | {f"weight of {name}": weight for name, weight in weights.items()}]


def _of_all(series: Series, quantiles: FloatArray, actual: FloatArray, seconds: float) -> Row:
    """What is told of all origins that floorcast forecast at, of quantiles at all levels."""
    silent = NEXT_TO_NOTHING * float(np.nanmean(series.values))
    shares = {
        f"share_of_all_{level}": share_covered(actual, quantiles, levels=QUANTILE_LEVELS, level=level, silent=silent)
        for level in LEVELS
    }
    targets = int(np.isfinite(actual).sum())
    return {**shares, "seconds": seconds, "daily_share": daily_share(series.values, day=DAY), "targets_of_all": targets}


def _judge_alternative(truth: _Truth, name: str, paths: FloatArray, margin: Margin) -> list[Row]:
    first = truth.first
    skipped = truth.evaluated - first
    mean = truth.known_mean[first:]
    rows: list[Row] = []
    for horizon, steps in LEADS.items():
        point = paths[:, :steps].max(axis=1)[:, None]
        actual = truth.ahead(first, steps).max(axis=1)[:, None]
        quantiles = with_margin(
            point,
            actual,
            units(point, mean, margin),
            delay=steps,
            window=MARGIN_WINDOW,
            first=skipped,
            levels=LEVELS,
        )
        row = truth.row(horizon, name, margin, quantiles, actual[skipped:])
        rows.append(row | {"point_wape": accuracy.wape(actual=actual[skipped:], forecast=point[skipped:])})
    hourly = slice(skipped % HOUR, None, HOUR)
    point, actual, mean = paths[hourly], truth.ahead(first, DAY)[hourly], mean[hourly]
    unit = units(point, mean, margin)
    by_hour = [
        with_margin(
            point[:, span],
            actual[:, span],
            unit[:, span],
            delay=span.stop // HOUR,
            window=MARGIN_WINDOW // HOUR,
            first=skipped // HOUR,
            levels=LEVELS,
        )
        for span in (slice(begin, begin + HOUR) for begin in range(0, DAY, HOUR))
    ]
    judged = slice(skipped // HOUR, None)
    row = truth.row(OUTLOOK, name, margin, np.concatenate(by_hour, axis=1), actual[judged])
    rows.append(row | {"point_wape": accuracy.wape(actual=actual[judged], forecast=point[judged])})
    return rows
