"""The log scale that the seasonal models work on."""

from __future__ import annotations

import numpy as np

from forecasting.series import FloatArray

OFFSET_SHARE = 0.02
"""The offset as a share of the mean rate: small enough for ratios to stay ratios, large enough for a zero."""

CEILING = 3.0
"""A forecast above this many times the largest rate ever seen is absurd and is cut there."""


def log_offset(values: FloatArray) -> float:
    """What is added to a rate before its logarithm is taken, in tokens/s."""
    mean = float(np.nanmean(values))
    return OFFSET_SHARE * mean if mean > 0 else 1.0


def to_log(values: FloatArray, offset: float) -> FloatArray:
    result: FloatArray = np.log(values + offset)
    return result


def from_log(values: FloatArray, offset: float, *, highest: FloatArray) -> FloatArray:
    """Back to tokens/s, from 0 to `CEILING` times the `highest` rate seen, which broadcasts."""
    top = CEILING * highest + offset
    result: FloatArray = np.maximum(np.exp(np.minimum(values, np.log(top))) - offset, 0.0)
    return result
