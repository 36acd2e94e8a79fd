"""What others forecast with. Each gives a path of `horizon` steps from every origin, from what was known there.

All take `values` (tokens/s a step, the first one observed) and give an array (origins, horizon) for the origins
`first`, `first` + 1, ..., len(values) - 1, where an origin is the number of steps known. Gaps are bridged with the
step a day before, except where a model can step over them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.forecast.arima import auto_arima
from forecasting.series import FloatArray

DAY = 144
"""Steps of ten minutes."""

WEEK = 7 * DAY

Forecaster = Callable[..., FloatArray]
BoolArray = npt.NDArray[np.bool_]

PHPA = (0.9, 0.9, 0.9)
"""alpha, beta and gamma of predictive-horizontal-pod-autoscaler's example."""

GRID = tuple(product((0.1, 0.3, 0.5, 0.7, 0.9), (0.0, 0.01, 0.1), (0.02, 0.1, 0.3, 0.9)))

CRANE_STRONGEST = 100
TOP_HARMONICS = 32


def filled(values: FloatArray) -> FloatArray:
    """Values without gaps, each known at its own step: the step a day before, else the one before."""
    result = values.copy()
    for t in np.flatnonzero(~np.isfinite(values)):
        result[t] = result[t - DAY] if t >= DAY else result[t - 1]
    return result


def last_value(values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """The newest observed rate, held."""
    newest = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), 0))
    return np.repeat(values[newest[first - 1 : -1], None], horizon, axis=1)


def seasonal_naive(values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """The rate at the same time of the last day."""
    days = np.lib.stride_tricks.sliding_window_view(filled(values)[first - DAY : -1], DAY)
    return days[:, np.arange(horizon) % DAY]


def holt_winters(
    values: FloatArray, *, first: int, horizon: int, parameters: tuple[float, float, float] = PHPA
) -> FloatArray:
    """Additive trend and daily season with fixed smoothing; starts from the first day and steps over gaps."""
    level, trend, seasons, _ = _smooth(values, np.array([parameters]), keep_from=first)
    ahead = np.arange(horizon)
    origins = np.arange(first, len(values))
    season = np.take_along_axis(seasons, (origins[:, None] + ahead) % DAY, axis=1)
    return np.maximum(level[:, None] + (ahead + 1) * trend[:, None] + season, 0.0)


def holt_winters_tuned(values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """The same with the parameters of a grid that were best, one step ahead, before the first origin."""
    error = _smooth(values[:first], np.array(GRID), keep_from=first)[3]
    return holt_winters(values, first=first, horizon=horizon, parameters=GRID[int(np.argmin(error))])


def fft_crane(values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """Crane's estimator: of the spectrum of the last seven whole days, all periods of an hour and more and, of the
    shorter ones, those among the 100 strongest; the last day of what these make is the forecast."""
    days = _spectral(values, _crane_keeps, slice(-DAY, None), first=first)
    return days[:, np.arange(horizon) % DAY]


def fft_top(values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """The mean and the strongest harmonics of an hour and more of the last seven whole days, continued."""
    days = _spectral(values, _top_keeps, slice(DAY), first=first)
    return days[:, np.arange(horizon) % DAY]


ALTERNATIVES: dict[str, Forecaster] = {
    "last_value": last_value,
    "seasonal_naive": seasonal_naive,
    "auto_arima": lambda values, *, first, horizon: auto_arima(filled(values), values, first=first, horizon=horizon),
    "holt_winters_phpa": holt_winters,
    "holt_winters_tuned": holt_winters_tuned,
    "fft_crane": fft_crane,
    "fft_top": fft_top,
}


def _smooth(
    values: FloatArray, parameters: FloatArray, *, keep_from: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Level and trend (origins,), seasons (origins, DAY) at every origin from `keep_from` on, of the first set of
    `parameters` (sets, 3), and each set's sum of absolute one-step errors."""
    alpha, beta, gamma = parameters.T
    begin = filled(values[:DAY])
    level = np.full(len(parameters), begin.mean())
    trend = np.zeros(len(parameters))
    season = np.repeat((begin - begin.mean())[:, None], len(parameters), axis=1)
    error = np.zeros(len(parameters))
    kept: list[tuple[float, float, FloatArray]] = []
    for t in range(DAY, len(values)):
        if t >= keep_from:
            kept.append((level[0], trend[0], season[:, 0].copy()))
        place = t % DAY
        expected = level + trend + season[place]
        surprise = values[t] - expected if np.isfinite(values[t]) else np.zeros(len(parameters))
        error += np.abs(surprise)
        # The error-correction form of additive Holt-Winters.
        level = level + trend + alpha * surprise
        trend = trend + alpha * beta * surprise
        season[place] += gamma * (1 - alpha) * surprise
    if not kept:
        return np.array([]), np.array([]), np.empty((0, DAY)), error
    levels, trends, seasons = zip(*kept, strict=True)
    return np.array(levels), np.array(trends), np.stack(seasons), error


def _spectral(
    values: FloatArray, keeps: Callable[[FloatArray, FloatArray], BoolArray], part: slice, *, first: int
) -> FloatArray:
    """A part of what the kept harmonics of the last seven whole days make (of fewer while there are fewer): one day,
    (origins, DAY). They repeat, so that what comes next is what the first day was."""
    known = filled(values)
    rows: list[FloatArray] = []
    for origin in range(first, len(values), DAY):
        length = min(origin // DAY * DAY, WEEK)
        end = min(origin + DAY, len(values))
        windows = np.lib.stride_tricks.sliding_window_view(known[origin - length : end - 1], length)
        spectrum = np.fft.rfft(windows, axis=1)
        per_day = np.arange(spectrum.shape[1]) * DAY / length
        spectrum[~keeps(np.abs(spectrum), per_day)] = 0
        rows.append(np.maximum(np.fft.irfft(spectrum, n=length, axis=1), 0.0)[:, part])
    return np.vstack(rows)


def _crane_keeps(strength: FloatArray, per_day: FloatArray) -> BoolArray:
    result: BoolArray = (per_day <= 24) | (strength >= _weakest(strength[:, 1:], CRANE_STRONGEST))
    return result


def _top_keeps(strength: FloatArray, per_day: FloatArray) -> BoolArray:
    slow = np.where((per_day > 0) & (per_day <= 24), strength, 0.0)
    result: BoolArray = (per_day == 0) | ((slow > 0) & (slow >= _weakest(slow, TOP_HARMONICS)))
    return result


def _weakest(strength: FloatArray, count: int) -> FloatArray:
    """The least of the `count` strongest of each row."""
    return np.sort(strength, axis=1)[:, -min(count, strength.shape[1]), None]
