"""ARIMA forecasts from many origins at once, for coefficients that statsforecast estimated.

Its own `forward` filters the whole history anew at every call; here errors are filtered once for all origins.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from forecasting.models.base import IntArray
from forecasting.series import FloatArray

LARGEST_ROOT = 0.995
"""Of the MA polynomial: at 1 the filter would never forget how it started."""


@dataclass(frozen=True)
class Arma:
    """z = value - mean follows ar(B) z = ma(B) e, differences included in `ar`. Both polynomials begin with 1."""

    ar: FloatArray
    ma: FloatArray
    mean: float

    @classmethod
    def of(cls, order: Sequence[int], coefficients: Mapping[str, float]) -> Arma:
        """From an order (p, d, q) and coefficients as statsforecast names them."""
        p, d, q = order
        ar = np.array([1.0, *(-coefficients[f"ar{i + 1}"] for i in range(p))])
        for _ in range(d):
            ar = np.convolve(ar, [1.0, -1.0])
        ma = np.array([1.0, *(coefficients[f"ma{j + 1}"] for j in range(q))])
        return cls(ar, _invertible(ma), coefficients.get("intercept", 0.0))

    def paths(self, values: FloatArray, origins: IntArray, horizon: int) -> FloatArray:
        """Forecasts of `horizon` steps from each origin, the number of `values` known there: (origins, horizon).

        The errors of the first steps are taken as 0. Values must be finite, and each origin must be as long as `ar`.
        """
        z = values - self.mean
        lags = len(self.ar) - 1
        errors = np.concatenate(
            [np.zeros(lags), scipy.signal.lfilter([1.0], self.ma, np.convolve(z, self.ar)[lags : len(z)])]
        )
        size = max(len(self.ar), len(self.ma)) - 1
        if not size:
            return np.full((len(origins), horizon), self.mean)
        ar, ma = np.zeros(size + 1), np.zeros(size + 1)
        ar[: len(self.ar)], ma[: len(self.ma)] = self.ar, self.ma
        # The delays of a direct form II transposed filter, as scipy.signal.lfiltic makes them for one origin.
        state = np.zeros((len(origins), size))
        for place in range(size):
            for back in range(size - place):
                at = origins - 1 - back
                known = at >= 0
                lag = place + 1 + back
                state[:, place] += np.where(known, ma[lag] * errors[at] - ar[lag] * z[at], 0.0)
        ahead, _ = scipy.signal.lfilter(ma, ar, np.zeros((len(origins), horizon)), axis=1, zi=state)
        paths: FloatArray = ahead + self.mean
        return paths


def _invertible(ma: FloatArray) -> FloatArray:
    """The polynomial of the same autocovariances whose filter is stable: roots outside the unit circle are reflected
    into it. The search leaves such ones, which a Kalman filter tolerates and a plain recursion does not."""
    roots = np.roots(ma)
    size = np.abs(roots)
    inside = np.where(size > 1, roots / np.maximum(size, 1) ** 2, roots)
    inside *= np.minimum(1, LARGEST_ROOT / np.maximum(np.abs(inside), LARGEST_ROOT))
    coefficients: FloatArray = np.real(np.poly(inside)) if len(roots) else ma
    return coefficients


def search(values: FloatArray) -> tuple[list[int], dict[str, float]]:
    """The order (p, d, q) and coefficients that AutoARIMA finds."""
    from statsforecast.models import AutoARIMA  # noqa: PLC0415 - takes a second, and only fits need it

    model = AutoARIMA(season_length=1, seasonal=False, max_d=1, max_p=3, max_q=2, approximation=True, allowdrift=False)
    with warnings.catch_warnings():
        # The search warns of each order whose optimisation stopped early; the orders that won are judged by the
        # backtest, not by the optimiser.
        warnings.simplefilter("ignore")
        fitted = model.fit(values).model_
    p, q, _, _, _, d, _ = fitted["arma"]
    return [int(p), int(d), int(q)], {name: float(value) for name, value in fitted["coef"].items()}
