"""Point forecasts of the lead window at many origins at once, each from what came before its origin.

To add an expert, write its function here (or in a file of `models`) and name it in `EXPERTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from forecasting.mixture.analogue import like_moments
from forecasting.mixture.past import Past
from forecasting.models.base import DAY, WEEK, Parameters
from forecasting.models.logscale import CEILING
from forecasting.models.mstl_ets import MSTL_ETS_DAY
from forecasting.series import FloatArray, View

ANCHOR = timedelta(minutes=10)
"""The newest rates that are compared with a shape's: one step would carry its noise into the whole window."""

PEAK_OVER = timedelta(minutes=30)
TREND_SHARE, TREND_DAMPING = 0.6, 0.9
SHAPE_DAYS = 3
BASE_SHARE = 0.02
"""Shapes are scaled by ratios of rates plus this share of the mean, so that an idle night is no division by zero."""


@dataclass(frozen=True)
class Expert:
    """`paths` gives (origins, lead steps) in tokens/s from a past and what `fit` left; `needs` is the history that it
    must have before its first origin. The experts without `fit` have no parameters. One that knows more than a point
    has `quantiles`, which gives those of the greatest rate within the window, (origins, levels), at every so many
    origins, the last one included; its path is their median."""

    name: str
    needs: timedelta
    paths: Callable[[Past, Parameters], FloatArray]
    fit: Callable[[View], Parameters] | None = None
    quantiles: Callable[[Past, int], FloatArray] | None = None


def _last_value(past: Past, parameters: Parameters) -> FloatArray:
    return _repeat(past, past.back(1))


def _upward_trend(past: Past, parameters: Parameters) -> FloatArray:
    """A rise goes on, damped; a fall does not: a floor that follows falls at once is late when they end."""
    rise = np.maximum(past.back(1) - past.back(2), 0.0)
    gain = TREND_SHARE * np.cumsum(TREND_DAMPING ** np.arange(past.lead_steps))
    return _below_ceiling(past, past.back(1)[:, None] + rise[:, None] * gain)


def _recent_peak(past: Past, parameters: Parameters) -> FloatArray:
    return _repeat(past, past.recent(PEAK_OVER).max(axis=1))


def _daily_shape_added(past: Past, parameters: Parameters) -> FloatArray:
    return _added(past, _shape(past, DAY, SHAPE_DAYS))


def _weekly_shape_added(past: Past, parameters: Parameters) -> FloatArray:
    return _added(past, _shape(past, WEEK, 1))


def _daily_shape_scaled(past: Past, parameters: Parameters) -> FloatArray:
    ahead, now = _shape(past, DAY, SHAPE_DAYS)
    base = BASE_SHARE * past.mean() + np.finfo(float).tiny
    level = past.recent(ANCHOR).mean(axis=1)
    return _below_ceiling(past, (ahead + base[:, None]) * ((level + base) / (now + base))[:, None] - base[:, None])


def _blend(past: Past, parameters: Parameters) -> FloatArray:
    """The mean of last value, yesterday, and the shape of three days at today's level."""
    yesterday, _ = _shape(past, DAY, 1)
    return (_last_value(past, {}) + yesterday + _daily_shape_scaled(past, {})) / 3


def _mstl_ets_day(past: Past, parameters: Parameters) -> FloatArray:
    return MSTL_ETS_DAY.paths(parameters, past.view, past.first + np.arange(past.origins), past.lead_steps)


def _like_moments(past: Past, parameters: Parameters) -> FloatArray:
    return _repeat(past, like_moments(past, 1)[:, QUANTILE_LEVELS.index(0.5)])


EXPERTS: tuple[Expert, ...] = (
    Expert("last_value", timedelta(0), _last_value),
    Expert("upward_trend", timedelta(0), _upward_trend),
    Expert("recent_peak", PEAK_OVER, _recent_peak),
    Expert("daily_shape_added", DAY + ANCHOR, _daily_shape_added),
    Expert("daily_shape_scaled", DAY + ANCHOR, _daily_shape_scaled),
    Expert("weekly_shape_added", WEEK + ANCHOR, _weekly_shape_added),
    Expert("blend", DAY + ANCHOR, _blend),
    Expert("mstl_ets_day", 2 * DAY, _mstl_ets_day, MSTL_ETS_DAY.fit),
    Expert("like_moments", DAY, _like_moments, quantiles=like_moments),
)
"""Those with `quantiles` come last."""


def _repeat(past: Past, level: FloatArray) -> FloatArray:
    return np.repeat(level[:, None], past.lead_steps, axis=1)


def _shape(past: Past, season: timedelta, seasons: int) -> tuple[FloatArray, FloatArray]:
    """Mean over the last `seasons` seasons at the lead window's times, (origins, lead steps), and over `ANCHOR` before
    the origin, (origins,). A step not observed in any of them gets the newest rate before the one a season ago."""
    period, anchor = past.view.steps_in(season), max(past.view.steps_in(ANCHOR), 1)
    columns = []
    for ahead in range(-anchor, past.lead_steps):
        lagged = np.stack([past.exactly(back * period - ahead) for back in range(1, seasons + 1)])
        seen = np.isfinite(lagged)
        total = np.where(seen, lagged, 0.0).sum(axis=0)
        columns.append(np.where(seen.any(axis=0), total / np.maximum(seen.sum(axis=0), 1), past.back(period - ahead)))
    shape = np.stack(columns, axis=1)
    return shape[:, anchor:], shape[:, :anchor].mean(axis=1)


def _added(past: Past, shape: tuple[FloatArray, FloatArray]) -> FloatArray:
    ahead, now = shape
    level = past.recent(ANCHOR).mean(axis=1)
    return _below_ceiling(past, ahead + (level - now)[:, None])


def _below_ceiling(past: Past, paths: FloatArray) -> FloatArray:
    """From 0 to `CEILING` times the greatest rate seen: beyond it a ratio or a rise is absurd."""
    return np.clip(paths, 0.0, CEILING * past.highest()[:, None])
