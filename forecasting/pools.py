"""What a pool needs of its classes together: less than one by one where they peak apart, more in its busiest minute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.forecast import Forecast
from forecasting.margins import conformal
from forecasting.mixture import Panel, greatest
from forecasting.series import FloatArray, Series
from forecasting.verdict import at_level

MIN_ORIGINS = 96
"""Fewer origins than this at which all classes are known say nothing, and the classes' quantiles are added up."""

LEAST_SHARE = 0.05
"""Added to both sides of a ratio, as a share of the mean bound: an idle night must not decide the busiest minute."""


def kept_share(members: Sequence[tuple[Series, Forecast]], *, quantile: float) -> float:
    """The share of the classes' spread above their medians, added up, that the pool's quantile of the greatest total
    rate within the lead window keeps; from 0 to 1.

    At each past origin the classes had medians and quantiles, and what came is the total of all of them in the same
    steps: sample paths of the classes drawn together in time. Of each origin the total's excess over the medians is
    taken in units of the spread that was forecast then, and the ceil((n + 1) q)-th smallest of these is the share, as
    in split conformal prediction. One class, too few origins, or classes known up to different times: 1, their sum.
    """
    if len(members) < 2 or not _comparable(members):
        return 1.0
    median, bound = _added(members, quantile)
    spread = bound - median
    total = _at_origins(_rates(members).sum(axis=0), members[0][1].panel, len(median))
    return share_of(total - median, spread, quantile=quantile)


def share_of(excess: FloatArray, spread: FloatArray, *, quantile: float) -> float:
    """`kept_share` from what came above the medians and the spread that was forecast, (origins,) each; NaN where not
    known. 1 with too few origins."""
    judged = np.isfinite(excess) & (spread > 0)
    if int(judged.sum()) < MIN_ORIGINS:
        return 1.0
    [share] = conformal(excess[judged] / spread[judged], [quantile])
    return float(np.clip(share, 0.0, 1.0))


def peak_factor(
    members: Sequence[tuple[Series, Forecast]], peaks: Sequence[FloatArray], *, quantile: float, share: float
) -> float | None:
    """How much the pool's quantile must be raised to cover the greatest 1-minute rate of the lead window as often as it
    covers the greatest mean rate of its steps; at least 1.

    `peaks` are the classes' peak 1-minute rates, aligned with their series. At each past origin the greatest peak is
    taken in units of the bound that the pool had then (medians, and `share` of the spread), and the
    ceil((n + 1) q)-th smallest of these is the factor. Within a step the classes' busiest minutes are taken as
    unrelated: their excesses over the mean add up as squares. None where too few origins tell, or the classes are
    known up to different times.
    """
    if not _comparable(members):
        return None
    median, added = _added(members, quantile)
    bound = median + share * (added - median)
    values = _rates(members)
    tops = np.stack([peak[-values.shape[1] :] for peak in peaks])
    most = _at_origins(busiest_minutes(values, tops), members[0][1].panel, len(median))
    return factor_of(most, bound, quantile=quantile)


def busiest_minutes(rates: FloatArray, peaks: FloatArray) -> FloatArray:
    """(steps,) of the pool's busiest minute within each step, from its classes' (classes, steps)."""
    busiest: FloatArray = rates.sum(axis=0) + np.sqrt((np.maximum(peaks - rates, 0.0) ** 2).sum(axis=0))
    return busiest


def factor_of(most: FloatArray, bound: FloatArray, *, quantile: float) -> float | None:
    """`peak_factor` from the greatest minutes that came and the bound that the pool had, (origins,) each; NaN where not
    known. None with too few origins."""
    judged = np.isfinite(most) & (bound > 0)
    if int(judged.sum()) < MIN_ORIGINS:
        return None
    base = LEAST_SHARE * float(np.mean(bound[judged]))
    [factor] = conformal((most[judged] + base) / (bound[judged] + base), [quantile])
    return max(1.0, float(factor))


def _comparable(members: Sequence[tuple[Series, Forecast]]) -> bool:
    """Whether the classes' origins are the same moments, with the same window after them."""
    return len({(series.end, series.step, made.panel.lead_steps) for series, made in members}) == 1


def _added(members: Sequence[tuple[Series, Forecast]], quantile: float) -> tuple[FloatArray, FloatArray]:
    """The classes' medians and their quantiles, each added up, at the origins that all have: (origins,)."""
    origins = min(len(made.panel.actual) for _, made in members)
    past = np.stack([made.combined.past[-origins:] for _, made in members]).sum(axis=0)
    return at_level(past, 0.5), at_level(past, quantile)


def _rates(members: Sequence[tuple[Series, Forecast]]) -> FloatArray:
    """(classes, steps) of the steps at the end that all classes have."""
    steps = min(len(series.values) for series, _ in members)
    return np.stack([series.values[-steps:] for series, _ in members])


def _at_origins(rates: FloatArray, panel: Panel, origins: int) -> FloatArray:
    """The greatest rate within the lead window from each of the last `origins` origins on, (origins,)."""
    most = greatest(rates, panel.lead_steps)
    return most[(len(most) - 1) % panel.spacing :: panel.spacing][-origins:]
