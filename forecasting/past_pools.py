"""What a pool's demand would have been forecast to be, at every origin of its past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from forecasting.mixture import greatest, replay
from forecasting.mixture.mixture import MEMORY
from forecasting.models.base import DAY
from forecasting.pools import busiest_minutes, factor_of, share_of
from forecasting.series import FloatArray, Series

_MEDIAN = QUANTILE_LEVELS.index(0.5)


@dataclass(frozen=True)
class Member:
    """A class of the pool, one metric. `peaks` are its peak 1-minute rates, aligned with the series; None where none
    are known."""

    series: Series
    peaks: FloatArray | None


class PastQuantiles(NamedTuple):
    """(origins, levels) in tokens/s each: of the busiest minutes, and of the steps' means; alike where no peaks are
    known."""

    peaks: FloatArray
    means: FloatArray


def past_quantiles(members: Sequence[Member], *, lead_steps: int, start: datetime, end: datetime) -> PastQuantiles:
    """Quantiles of a pool's greatest rate within the lead window, as they would have been forecast at every step from
    `start` to before `end`, each from what came before it; NaN where no class had begun.

    Each class as `forecasting.mixture.replay` has it; 0 before it begins, and as last forecast after its data end.
    Added up as `forecasting.pools` does, with the share and the peak factor of each day from the six days before it, so
    that the first day or so has neither.
    """
    step = members[0].series.step
    learned = max(min(one.series.start for one in members) + DAY, start - MEMORY)
    first = min(start, learned)
    count = (end - first) // step
    past = np.stack([_class_quantiles(one.series, lead_steps, first, count) for one in members])
    rates = np.stack([_on_grid(one.series, one.series.values, first, count) for one in members])
    peaks = [None if one.peaks is None else _on_grid(one.series, one.peaks, first, count) for one in members]
    known = [peak for peak in peaks if peak is not None]
    minutes = busiest_minutes(rates, np.stack(known)) if len(known) == len(members) else None
    begin = (start - first) // step
    means = _pooled(past, rates, None, lead_steps=lead_steps, day=DAY // step)[begin:]
    if minutes is None:
        return PastQuantiles(means, means)
    return PastQuantiles(_pooled(past, rates, minutes, lead_steps=lead_steps, day=DAY // step)[begin:], means)


def _class_quantiles(series: Series, lead_steps: int, first: datetime, count: int) -> FloatArray:
    """(count, levels) from `first` on."""
    begin = (first - series.start) // series.step
    origin = min(max(begin, 1), max(len(series.values) - 1, 1))
    made = replay(series.view(series.end), lead_steps=lead_steps, first_origin=origin)[:count]
    before = np.zeros((min(max(origin - begin, 0), count), made.shape[1]))
    rows = np.concatenate([before, made])[:count]
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])


def _on_grid(series: Series, values: FloatArray, first: datetime, count: int) -> FloatArray:
    """(count,) from `first` on: 0 before the series begins, NaN where it is not known."""
    begin = (first - series.start) // series.step
    placed = np.full(count, np.nan)
    placed[: max(-begin, 0)] = 0.0
    inside = values[max(begin, 0) : max(begin + count, 0)]
    placed[max(-begin, 0) : max(-begin, 0) + len(inside)] = inside
    return placed


def _pooled(
    past: FloatArray, rates: FloatArray, minutes: FloatArray | None, *, lead_steps: int, day: int
) -> FloatArray:
    """(origins, levels), day by day."""
    bound: FloatArray = past.sum(axis=0)
    median = bound[:, _MEDIAN]
    origins = len(bound)
    came = greatest(rates.sum(axis=0), lead_steps)[:origins]
    most = None if minutes is None else greatest(minutes, lead_steps)[:origins]
    pooled = bound.copy()
    for begin in range(0, origins, day):
        today = slice(begin, begin + day)
        # What came after an origin is known a lead window later.
        known = slice(max(begin - (MEMORY // DAY) * day, 0), max(begin - lead_steps, 0))
        for place, level in enumerate(QUANTILE_LEVELS):
            if level < QUANTILE_LEVELS[_MEDIAN]:
                continue
            spread = bound[:, place] - median
            share = share_of((came - median)[known], spread[known], quantile=level) if len(past) > 1 else 1.0
            kept = median + share * spread
            peak = None if most is None else factor_of(most[known], kept[known], quantile=level)
            pooled[today, place] = kept[today] * (peak or 1.0)
    return pooled
