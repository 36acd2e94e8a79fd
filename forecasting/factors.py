"""Factors of events and holidays, learned from how they were before. Only what was over by the cutoff is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.columns import TIME
from floorcast.event import WEEK, Window
from floorcast.units import EPOCH
from forecasting.series import FloatArray, Series

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MEMORY = timedelta(days=800)
"""How far back occurrences count: two years and two months, so that two of a yearly event are among them."""

LEAST_OCCURRENCES, MOST_OCCURRENCES = 2, 8
LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
AROUND = tuple(weeks for weeks in range(-4, 5) if weeks)
"""The weeks, from an occurrence, whose same time tells what is ordinary."""

_MICROSECOND = timedelta(microseconds=1)
_NEVER = np.iinfo(np.int64).min
_CLOCK_CHANGE = timedelta(hours=2)
WHOLE_DAY = 0.9
"""A day of which less was observed tells no mean."""


@dataclass(frozen=True)
class Rates:
    """One class's one metric: `values` in tokens/s of the steps that start at `times`, in microseconds from the Unix
    epoch and in order. Steps may be absent; values may be NaN."""

    step: timedelta
    times: IntArray
    values: FloatArray

    def before(self, cutoff: datetime) -> Rates:
        """The steps that were over at the cutoff."""
        count = int(np.searchsorted(self.times, microseconds(cutoff - self.step), side="right"))
        return Rates(self.step, self.times[:count], self.values[:count])

    def outside(self, windows: Sequence[Window]) -> Rates:
        """The same, NaN where a step touches a window."""
        inside = touched(self.times, self.step, windows)
        return Rates(self.step, self.times, np.where(inside, np.nan, self.values))

    def at(self, times: IntArray) -> FloatArray:
        """Values of the steps that start at `times`, NaN where absent."""
        if not len(self.times):
            return np.full(times.shape, np.nan)
        place = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        return np.where(self.times[place] == times, self.values[place], np.nan)


@dataclass(frozen=True)
class Factor:
    """What was learned: `value` is None where too few occurrences were `known`."""

    value: float | None
    known: int


def learn(
    rates: Rates, *, occurrences: Sequence[Window], avoid: Sequence[Window], zone: str, cutoff: datetime
) -> Factor:
    """The median over occurrences of demand during it over ordinary demand, within 0.1 to 10.

    Ordinary is the median of the same time on the clock and the week in the four weeks before and after, outside of all
    windows of `avoid`. An occurrence counts if it was over at the cutoff and half of its steps can be compared.
    """
    seen = rates.before(cutoff)
    ordinary = seen.outside([*avoid, *occurrences])
    ratios: list[float] = []
    for window in _newest(window for window in occurrences if window.end <= cutoff):
        times, around = _same_times(window, seen.step, zone)
        actual, expected = seen.at(times), _median(ordinary.at(around))
        both = np.isfinite(actual) & np.isfinite(expected)
        total = float(expected[both].sum())
        if both.sum() * 2 * seen.step >= window.end - window.start and total > 0:
            ratios.append(float(actual[both].sum()) / total)
    if len(ratios) < LEAST_OCCURRENCES:
        return Factor(None, len(ratios))
    return Factor(float(np.clip(np.median(ratios), LEAST_FACTOR, MOST_FACTOR)), len(ratios))


def as_rest_day(
    rates: Rates, *, weekday: int, rest_day: int, avoid: Sequence[Window], zone: str, cutoff: datetime
) -> float | None:
    """How a rest day compares with a weekday, both 0 for Monday: the ratio of the medians of their days' means.

    None where fewer than two of either were observed outside of `avoid`, or the weekday had no demand.
    """
    seen = rates.before(cutoff).outside(avoid)
    known = np.isfinite(seen.values)
    local = pl.Series(seen.times[known], dtype=pl.Int64).cast(TIME).dt.convert_time_zone(zone).dt.date()
    days, place, steps = np.unique(local.cast(pl.Int32).to_numpy(), return_inverse=True, return_counts=True)
    # Added up in the order of time, so that the same data give the same forecast to the last digit.
    daily = np.bincount(place, weights=seen.values[known], minlength=len(days)) / np.maximum(steps, 1)
    whole = steps * seen.step.total_seconds() >= WHOLE_DAY * 86400
    # Day 0, 1 January 1970, was a Thursday.
    means = {day: daily[whole & ((days + 3) % 7 == day)] for day in (weekday, rest_day)}
    if min(map(len, means.values())) < LEAST_OCCURRENCES:
        return None
    ordinary = float(np.median(means[weekday]))
    if ordinary <= 0:
        return None
    return float(np.clip(np.median(means[rest_day]) / ordinary, LEAST_FACTOR, MOST_FACTOR))


def looked_at(occurrences: Sequence[Window], *, before: datetime) -> list[Window]:
    """What `learn` needs to see of the time before `before`, merged and in order."""
    around = [
        Window(window.start + weeks * WEEK - _CLOCK_CHANGE, min(window.end + weeks * WEEK + _CLOCK_CHANGE, before))
        for window in _newest(occurrences)
        for weeks in (0, *AROUND)
    ]
    return merged(window for window in around if window.start < before)


def _newest(occurrences: Iterable[Window]) -> list[Window]:
    """The newest of them, in order."""
    return sorted(occurrences)[-MOST_OCCURRENCES:]


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def times_of(series: Series) -> IntArray:
    """When the steps of a series start, in microseconds from the Unix epoch."""
    times: IntArray = microseconds(series.start) + np.arange(len(series.values), dtype=np.int64) * (
        series.step // _MICROSECOND
    )
    return times


def touched(times: IntArray, step: timedelta, windows: Sequence[Window]) -> BoolArray:
    """Which steps a window overlaps."""
    starts, ends = _bounds(windows)
    last = np.searchsorted(starts, times + step // _MICROSECOND, side="left")
    return ends[last] > times


def within(times: IntArray, step: timedelta, windows: Sequence[Window]) -> BoolArray:
    """Which steps lie in the windows whole."""
    starts, ends = _bounds(windows)
    last = np.searchsorted(starts, times, side="right")
    return ends[last] >= times + step // _MICROSECOND


def merged(windows: Iterable[Window]) -> list[Window]:
    """The same time in windows that neither overlap nor touch each other, in order."""
    apart: list[Window] = []
    for window in sorted(windows):
        if apart and window.start <= apart[-1].end:
            apart[-1] = Window(apart[-1].start, max(apart[-1].end, window.end))
        else:
            apart.append(window)
    return apart


def _bounds(windows: Sequence[Window]) -> tuple[IntArray, IntArray]:
    """Starts of the merged windows, and behind an end before all times their ends: `ends[n]` is of the n-th start."""
    apart = merged(windows)
    starts = np.array([microseconds(window.start) for window in apart], dtype=np.int64)
    ends = np.array([_NEVER, *(microseconds(window.end) for window in apart)], dtype=np.int64)
    return starts, ends


@lru_cache(maxsize=4096)
def _same_times(window: Window, step: timedelta, zone: str) -> tuple[IntArray, IntArray]:
    """The steps that lie in a window whole, and for each of `AROUND` the same times on the clock then: (weeks, steps).

    -1 stands where clocks skip one. Every class asks for the same.
    """
    length = step // _MICROSECOND
    first = -(-microseconds(window.start) // length) * length
    times = np.arange(first, microseconds(window.end) - length + 1, length, dtype=np.int64)
    clock = pl.Series(times, dtype=pl.Int64).cast(TIME).dt.convert_time_zone(zone).dt.replace_time_zone(None)
    moved = [
        (clock + weeks * WEEK).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null") for weeks in AROUND
    ]
    around = np.stack([each.dt.convert_time_zone("UTC").cast(pl.Int64).fill_null(-1).to_numpy() for each in moved])
    times.flags.writeable = around.flags.writeable = False
    return times, around


def _median(rows: FloatArray) -> FloatArray:
    """The median of each column, of what is finite."""
    ordered = np.sort(rows, axis=0)  # NaN sorts last
    count = np.isfinite(rows).sum(axis=0)
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    at = np.arange(rows.shape[1])
    middle: FloatArray = (ordered[low, at] + ordered[np.minimum(high, len(rows) - 1), at]) / 2
    return np.where(count > 0, middle, np.nan)
