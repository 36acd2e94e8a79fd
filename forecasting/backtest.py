"""Rolling-origin backtest of one candidate on one series."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np

from forecasting.margins import Pairs
from forecasting.models import Model, Parameters
from forecasting.models.base import DAY, IntArray, ahead_of
from forecasting.series import FloatArray, View

MAX_ORIGINS = 144
MAX_SPAN = timedelta(days=6)
KEPT = timedelta(days=4)
"""Of history before the first origin, where there is as much; of a short one, two thirds."""


def origin_steps(view: View) -> IntArray:
    """Lengths of the history at each origin: evenly over its end, at most the last six days.

    The gap between origins shares no factor with a day, so that they fall on many times of day.
    """
    count = len(view.values)
    span = min(max(count - view.steps_in(KEPT), count // 3), view.steps_in(MAX_SPAN))
    gap = max(-(-span // MAX_ORIGINS), 1)
    while gap > 1 and math.gcd(gap, view.steps_in(DAY)) > 1:
        gap += 1
    first = count - span
    return np.arange(first, count, gap) if first > 0 else np.zeros(0, dtype=np.int64)


def run(model: Model, view: View, *, origins: IntArray, parameters: Parameters, horizon: int) -> Pairs:
    """Forecast from every origin with parameters that saw none of them.

    Raises ValueError where the model returns something that is no forecast: a wrong shape, NaN or a negative.
    """
    return pairs_of(view, origins, checked(model.paths(parameters, view, origins, horizon), (len(origins), horizon)))


def checked(paths: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """The same paths. Raises ValueError where they are no forecast."""
    if paths.shape != shape or not np.isfinite(paths).all() or (paths < 0).any():
        raise ValueError(f"a forecast of shape {paths.shape} with {int((~(paths >= 0)).sum())} unusable values")
    return paths


def pairs_of(view: View, origins: IntArray, paths: FloatArray) -> Pairs:
    """Paths from origins, and what the view holds of what came."""
    horizon = paths.shape[1]
    ahead = ahead_of(origins, horizon)
    padded = np.concatenate([view.values, np.full(horizon, np.nan)])
    return Pairs(actual=padded[ahead], path=paths, targets=view.first_index + ahead, day=view.steps_in(DAY))
