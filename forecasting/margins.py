"""Quantiles around a point forecast, from the residuals that the same model left in its backtest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from floorcast.columns import QUANTILE_LEVELS
from forecasting.series import FloatArray

Kind = Literal["add", "scale"]

MIN_RESIDUALS = 12
"""A horizon bucket with fewer residuals takes the margins of the bucket before it."""


class Margins(BaseModel):
    """Quantiles of residuals by horizon.

    `offsets[b]` holds one offset for each of `QUANTILE_LEVELS`, for horizons up to `ends[b]` steps (the last
    bucket serves all longer ones). Kind `add` adds it to the forecast in tokens/s; kind `scale` adds it times
    (forecast + `base`). Invariant: offsets do not decrease along the levels, so quantiles do not cross.
    """

    model_config = ConfigDict(frozen=True)

    kind: Kind
    base: float
    ends: tuple[int, ...]
    offsets: tuple[tuple[float, ...], ...]

    @classmethod
    def from_residuals(
        cls, *, actual: FloatArray, path: FloatArray, kind: Kind, base: float, ends: tuple[int, ...]
    ) -> Self:
        """Estimate from a backtest: `actual` and `path` are (origins, horizon), NaN where not observed.

        A quantile takes the ceil((n + 1) q)-th smallest residual, as in split conformal prediction
        (Lei et al., 2018), so that few residuals widen it.
        """
        unit = path + base if kind == "scale" else np.ones_like(path)
        residuals = (actual - path) / unit
        offsets: list[tuple[float, ...]] = []
        for first, end in zip((0, *ends), ends, strict=False):
            seen = residuals[:, first:end][np.isfinite(residuals[:, first:end])]
            if len(seen) >= MIN_RESIDUALS or not offsets:
                offsets.append(tuple(conformal(seen, QUANTILE_LEVELS).tolist()))
            else:
                offsets.append(offsets[-1])
        return cls(kind=kind, base=base, ends=ends, offsets=tuple(offsets))

    def apply(self, path: FloatArray) -> FloatArray:
        """Quantiles of a point forecast of shape (..., horizon): shape (..., horizon, levels), non-negative."""
        horizon = np.arange(1, path.shape[-1] + 1)
        bucket = np.minimum(np.searchsorted(self.ends, horizon), len(self.ends) - 1)
        offsets = np.asarray(self.offsets)[bucket]
        unit = (path + self.base)[..., None] if self.kind == "scale" else 1.0
        result: FloatArray = np.maximum(path[..., None] + offsets * unit, 0.0)
        return result


def conformal(residuals: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Of each level the ceil((n + 1) q)-th smallest of n residuals, 0 where there is none."""
    if len(residuals) == 0:
        return np.zeros(len(levels))
    ranks = np.ceil((len(residuals) + 1) * np.asarray(levels)).astype(int)
    quantiles: FloatArray = np.sort(residuals)[np.clip(ranks, 1, len(residuals)) - 1]
    return quantiles
