"""Losses. Arrays broadcast; pairs with a missing side are left out; the result is NaN where no pair is left."""

from __future__ import annotations

import numpy as np

from forecasting.series import FloatArray


def _pairs(*, actual: FloatArray, forecast: FloatArray) -> tuple[FloatArray, FloatArray]:
    both = np.isfinite(actual) & np.isfinite(forecast)
    return actual[both], forecast[both]


def wape(*, actual: FloatArray, forecast: FloatArray) -> float:
    """Weighted absolute percentage error: sum|actual - forecast| / sum|actual|. NaN where the sum is 0."""
    y, f = _pairs(actual=actual, forecast=forecast)
    total = float(np.abs(y).sum())
    return float(np.abs(y - f).sum()) / total if total > 0 else float("nan")


def bias(*, actual: FloatArray, forecast: FloatArray) -> float:
    """sum(forecast - actual) / sum|actual|: positive where forecasts are too high. NaN where the sum is 0."""
    y, f = _pairs(actual=actual, forecast=forecast)
    total = float(np.abs(y).sum())
    return float((f - y).sum()) / total if total > 0 else float("nan")


def pinball(*, actual: FloatArray, forecast: FloatArray, quantile: float) -> float:
    """Mean of max(q e, (q - 1) e) with e = actual - forecast, in the unit of the values."""
    y, f = _pairs(actual=actual, forecast=forecast)
    return float(pinball_losses(actual=y, forecast=f, quantile=quantile).mean()) if len(y) else float("nan")


def pinball_losses(*, actual: FloatArray, forecast: FloatArray, quantile: float) -> FloatArray:
    """The loss of each pair, NaN where a side is missing."""
    error = actual - forecast
    losses: FloatArray = np.maximum(quantile * error, (quantile - 1) * error)
    return losses


def calibration(*, actual: FloatArray, forecast: FloatArray) -> float:
    """Share of steps at or under the forecast: one-sided, as a floor needs it."""
    y, f = _pairs(actual=actual, forecast=forecast)
    return float((y <= f).mean()) if len(y) else float("nan")


def mase(*, actual: FloatArray, forecast: FloatArray, training: FloatArray, season: int) -> float:
    """Mean absolute error over the seasonal naive's mean absolute step in the training part.

    NaN where the training part holds no pair one season apart, or never changes.
    """
    y, f = _pairs(actual=actual, forecast=forecast)
    steps = np.abs(training[season:] - training[:-season]) if len(training) > season else np.array([])
    steps = steps[np.isfinite(steps)]
    scale = float(steps.mean()) if len(steps) else 0.0
    return float(np.abs(y - f).mean()) / scale if len(y) and scale > 0 else float("nan")


def or_none(value: float) -> float | None:
    """A loss as it is stored: a figure, or nothing."""
    return None if np.isnan(value) else value
