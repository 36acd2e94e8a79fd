"""Rolling-origin backtest of one candidate on one series."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from forecasting.models import Model, Parameters
from forecasting.models.base import DAY
from forecasting.series import FloatArray, View

MAX_ORIGINS = 96
MAX_SPAN = timedelta(days=4)
SPAN_SHARE = 1 / 3


@dataclass(frozen=True)
class Backtest:
    """What a candidate forecast and what came. Both arrays are (origins, horizon) in tokens/s; steps past the
    cutoff or not observed are NaN in `actual`."""

    actual: FloatArray
    path: FloatArray


def origin_steps(view: View) -> list[int]:
    """Lengths of the history at each origin: evenly over the last third of it, at most the last four days.

    The gap between origins shares no factor with a day, so that they fall on many times of day.
    """
    span = min(int(len(view.values) * SPAN_SHARE), view.steps_in(MAX_SPAN))
    first = len(view.values) - span
    gap = max(-(-span // MAX_ORIGINS), 1)
    while gap > 1 and math.gcd(gap, view.steps_in(DAY)) > 1:
        gap += 1
    return list(range(first, len(view.values), gap)) if first > 0 else []


def fit_for_backtest(model: Model, view: View) -> Parameters:
    """Parameters from what came before the first origin: no origin may have shaped them."""
    return model.fit(view.first(origin_steps(view)[0]))


def run(model: Model, view: View, *, parameters: Parameters, horizon: int) -> Backtest:
    """Forecast from every origin with parameters that saw none of them.

    Raises ValueError where the model returns something that is no forecast: a wrong shape, NaN or a negative.
    """
    origins = origin_steps(view)
    padded = np.concatenate([view.values, np.full(horizon, np.nan)])
    paths = np.empty((len(origins), horizon))
    for row, origin in enumerate(origins):
        path = model.predict(parameters, view.first(origin), horizon)
        if path.shape != (horizon,) or not np.isfinite(path).all() or (path < 0).any():
            raise ValueError(f"a forecast of shape {path.shape} with {int((~(path >= 0)).sum())} unusable values")
        paths[row] = path
    actual = np.stack([padded[origin : origin + horizon] for origin in origins])
    return Backtest(actual=actual, path=paths)
