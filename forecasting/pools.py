"""How much of its classes' spread a pool keeps: classes that peak apart need less together than one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.forecast import Forecast
from forecasting.series import FloatArray, Series
from forecasting.verdict import at_level

MIN_ORIGINS = 96
"""Fewer origins than this at which all classes are known say nothing, and the classes' quantiles are added up."""


def kept_share(members: Sequence[tuple[Series, Forecast]], *, quantile: float) -> float:
    """The share of the classes' spread above their medians, added up, that the pool's quantile of the greatest total
    rate within the lead window keeps; from 0 to 1.

    At each past origin the classes had medians and quantiles, and what came is the total of all of them in the same
    steps: sample paths of the classes drawn together in time. Of each origin the total's excess over the medians is
    taken in units of the spread that was forecast then, and the ceil((n + 1) q)-th smallest of these is the share, as
    in split conformal prediction. One class, too few origins, or classes known up to different times: 1, their sum.
    """
    if len(members) < 2 or len({(series.end, series.step, made.panel.lead_steps) for series, made in members}) > 1:
        return 1.0
    origins = min(len(made.panel.actual) for _, made in members)
    past = np.stack([made.combined.past[-origins:] for _, made in members]).sum(axis=0)
    median = at_level(past, 0.5)
    spread = at_level(past, quantile) - median
    total = _greatest_total(members, origins)
    judged = np.isfinite(total) & (spread > 0)
    count = int(judged.sum())
    if count < MIN_ORIGINS:
        return 1.0
    excess = np.sort((total - median)[judged] / spread[judged])
    rank = min(int(np.ceil((count + 1) * quantile)), count)
    return float(np.clip(excess[rank - 1], 0.0, 1.0))


def _greatest_total(members: Sequence[tuple[Series, Forecast]], origins: int) -> FloatArray:
    """The greatest total rate of the lead window from each of the last `origins` origins on, NaN where a class was not
    observed throughout, since the peak may have been there. The last origin is the cutoff, whose window is ahead."""
    lead_steps = members[0][1].panel.lead_steps
    values = [series.values[-(origins - 1) :] for series, _ in members]
    total = np.concatenate([np.sum(values, axis=0), np.full(lead_steps, np.nan)])
    greatest: FloatArray = np.lib.stride_tricks.sliding_window_view(total, lead_steps).max(axis=1)
    return greatest
