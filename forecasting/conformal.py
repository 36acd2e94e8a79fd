"""Margins for forecasts that have none of their own: split conformal, from their own newest residuals, renewed at every
origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from forecasting.series import FloatArray

Margin = Literal["add", "ratio10", "ratio1"]
MARGINS: tuple[Margin, ...] = get_args(Margin)
_SHARE = {"ratio10": 0.1, "ratio1": 0.01}

LEAST_UNIT = 1.0
"""tokens/s: what a residual is divided by where both the forecast and the mean are about 0."""


_SORTED_AT_ONCE = 4_000_000
"""Residuals: six days of minutes at each of many thousand origins would not fit into memory."""


def units(point: FloatArray, known_mean: FloatArray, margin: Margin) -> FloatArray:
    """What residuals are counted in, for points of shape (origins, steps).

    `add`: tokens/s. `ratio10` and `ratio1`: the forecast plus 10 or 1 % of `known_mean` (origins,), the mean of all
    that was known at the origin.
    """
    if margin == "add":
        return np.ones_like(point)
    return np.maximum(point + _SHARE[margin] * known_mean[:, None], LEAST_UNIT)


def with_margin(
    point: FloatArray,
    actual: FloatArray,
    unit: FloatArray,
    *,
    delay: int,
    window: int,
    first: int,
    levels: Sequence[float],
) -> FloatArray:
    """Quantiles of points of shape (origins, steps) from origin `first` on: (origins - first, steps, levels).

    Origin i takes the residuals, in units, of the origins from i - `window` to i - `delay`, of all steps together:
    their ceil((n + 1) q)-th smallest, the largest where there are fewer. `delay` is how many origins later an origin's
    steps are all known. Missing actuals leave no residual; without any the margin is 0.
    """
    residuals = (actual - point) / unit
    padded = np.vstack([np.full((window, point.shape[1]), np.nan), residuals])
    # Row i of `padded` is the residual of origin i - window.
    windows = np.lib.stride_tricks.sliding_window_view(padded, window - delay + 1, axis=0)[first : len(point)]
    many = max(_SORTED_AT_ONCE // windows[:1].size, 1) if len(windows) else 1
    parts = [_offsets(windows[begin : begin + many], levels) for begin in range(0, len(windows), many)]
    offset = np.concatenate([np.empty((0, len(levels))), *parts])
    result: FloatArray = np.maximum(point[first:, :, None] + unit[first:, :, None] * offset[:, None, :], 0.0)
    return result


def _offsets(windows: FloatArray, levels: Sequence[float]) -> FloatArray:
    """(origins, levels) of the residuals (origins, ...) that each may use."""
    ordered = np.sort(windows.reshape(len(windows), -1), axis=1)
    count = np.isfinite(ordered).sum(axis=1)[:, None]
    # NaN sorts last. The nudge keeps (n + 1) q = 95.00000000000001 from counting as 96.
    rank = np.clip(np.ceil((count + 1) * np.asarray(levels) - 1e-9).astype(int), 1, np.maximum(count, 1))
    offset: FloatArray = np.where(count > 0, np.take_along_axis(ordered, rank - 1, axis=1), 0.0)
    return offset
