"""Non-seasonal AutoARIMA (NVIDIA Dynamo's default), refitted once a day and filtered forward at every step.

statsforecast searches and fits; its `forward` filters all of the history anew at every call, so the filter and the
forecasts of all origins of a day are computed here, and compared with it in a test.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from statsforecast.models import AutoARIMA

from forecasting.series import FloatArray

DAY = 144


@dataclass(frozen=True)
class Coefficients:
    """z = value - mean - drift * (t + 1) follows z_t = sum ar_i z_(t-i) + e_t + sum ma_j e_(t-j), differences included
    in `ar`."""

    ar: FloatArray
    ma: FloatArray
    mean: float = 0.0
    drift: float = 0.0


LARGEST_ROOT = 0.995
"""Of the MA polynomial: at 1 the filter would never forget how it started."""

LAST_VALUE = Coefficients(ar=np.array([1.0]), ma=np.array([]))


def fit(known: FloatArray) -> Coefficients:
    """The order and coefficients that AutoARIMA finds; last value where it finds none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders that it tries and drops
        try:
            model = AutoARIMA(season_length=1, seasonal=False, approximation=True).fit(known).model_
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            return LAST_VALUE
    p, q, _, _, _, d, _ = model["arma"]
    coef = model["coef"]
    polynomial = np.array([1.0, *(-coef[f"ar{i + 1}"] for i in range(p))])
    for _ in range(d):
        polynomial = np.convolve(polynomial, [1.0, -1.0])
    return Coefficients(
        ar=-polynomial[1:],
        ma=invertible(np.array([coef[f"ma{j + 1}"] for j in range(q)])),
        mean=float(coef.get("intercept", 0.0)),
        drift=float(coef.get("drift", 0.0)),
    )


def invertible(ma: FloatArray) -> FloatArray:
    """The MA coefficients of the same autocovariances whose filter is stable: roots outside the unit circle are
    reflected into it. The search leaves such ones, which a Kalman filter tolerates and a plain recursion does not."""
    roots = np.roots([1.0, *ma])
    size = np.abs(roots)
    inside = np.where(size > 1, roots / np.maximum(size, 1) ** 2, roots)
    size = np.abs(inside)
    inside *= np.minimum(1, LARGEST_ROOT / np.maximum(size, LARGEST_ROOT))
    coefficients: FloatArray = np.real(np.poly(inside))[1:] if len(ma) else ma
    return coefficients


def auto_arima(known: FloatArray, values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """Paths from every origin as in `alternatives`; fitted on `known` (without gaps) at `first` and a day apart."""
    days = [
        forecast(fit(known[:begin]), values[: begin + DAY], first=begin, horizon=horizon)
        for begin in range(first, len(values), DAY)
    ]
    return np.vstack(days)


def forecast(coefficients: Coefficients, values: FloatArray, *, first: int, horizon: int) -> FloatArray:
    """Paths (origins, horizon) from `first` to len(values) - 1. A gap takes what was expected of it."""
    ar, ma = coefficients.ar.tolist(), coefficients.ma.tolist()
    trend = coefficients.mean + coefficients.drift * np.arange(1, len(values) + horizon + 1)
    z = (values - trend[: len(values)]).tolist()
    errors = [0.0] * len(z)
    start = len(ar)
    for t, value in enumerate(z):
        back = min(t, start)
        expected = sum(ar[i] * z[t - 1 - i] for i in range(back))
        expected += sum(ma[j] * errors[t - 1 - j] for j in range(min(t, len(ma))))
        if value != value:  # noqa: PLR0124 - NaN
            z[t] = expected
        elif t >= start:
            errors[t] = value - expected
    origins = np.arange(first, len(values))
    state, shocks = np.array(z), np.array(errors)
    paths = np.empty((len(origins), horizon))
    for ahead in range(horizon):
        step = np.zeros(len(origins))
        for i, weight in enumerate(ar):
            step += weight * (paths[:, ahead - 1 - i] if i < ahead else state[origins + ahead - 1 - i])
        for j in range(ahead, len(ma)):
            step += ma[j] * shocks[origins + ahead - 1 - j]
        paths[:, ahead] = step
    result: FloatArray = np.maximum(paths + trend[origins[:, None] + np.arange(horizon)], 0.0)
    return result
