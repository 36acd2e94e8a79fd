"""The share of targets that a quantile covers, where some of what comes is exactly 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.series import FloatArray

NEXT_TO_NOTHING = 0.02
"""Of a series' mean rate: a quantile that small says that nothing comes."""


def share_covered(
    actual: FloatArray, quantiles: FloatArray, *, levels: Sequence[float], level: float, silent: float
) -> float:
    """The share of `actual` (...) at or under the quantile of `level`, of `quantiles` (..., levels); NaN where no
    target is known.

    A job that runs at night is certain to be silent by day, and all of its quantiles are next to 0 then: at most
    `silent`. Plain counting would call every one of them covered, at any level. As in the randomised integral
    transform of a discrete distribution (Czado, Gneiting and Held, 2009), silence that was foretold with probability F
    counts as covered by level / F, of a level under F, which is taken to be half way between the last level whose
    quantile is silent and the next.
    """
    known = np.isfinite(actual)
    came, given = actual[known], quantiles[known]
    if not len(came):
        return float("nan")
    bound = given[:, list(levels).index(level)]
    edges = np.array([0.0, *levels, 1.0])
    silenced = (given <= silent).sum(axis=1)
    foretold = (edges[silenced] + edges[silenced + 1]) / 2
    covered = np.where((came == 0) & (bound <= silent), np.minimum(level / foretold, 1.0), came <= bound)
    return float(covered.mean())
