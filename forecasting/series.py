"""Demand on the step grid as rates, and the view that a model gets of it: nothing past the cutoff."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from floorcast.columns import Metric
from floorcast.errors import LeakageError
from floorcast.units import EPOCH, format_time

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """A series up to its cutoff: the only thing a model is given.

    `values` has one tokens/s a step from `start` on, NaN where not observed, read-only. The arrays hold no
    element at or past the cutoff, so that nothing later can be reached through them.
    """

    start: datetime
    step: timedelta
    values: FloatArray

    @property
    def cutoff(self) -> datetime:
        return self.start + len(self.values) * self.step

    @property
    def first_index(self) -> int:
        """Steps from the Unix epoch to `start`: the phase of daily and weekly cycles."""
        return (self.start - EPOCH) // self.step

    def steps_in(self, span: timedelta) -> int:
        return span // self.step

    def between(self, start: datetime, end: datetime) -> FloatArray:
        """Values of the steps from `start` to before `end`. Raises LeakageError where `end` is past the cutoff."""
        if end > self.cutoff:
            raise LeakageError(
                f"data up to {format_time(end)} was asked for, past the cutoff {format_time(self.cutoff)}",
                remedy="ask only for steps that end at or before the cutoff",
            )
        first = max((start - self.start) // self.step, 0)
        return self.values[first : max((end - self.start) // self.step, 0)]

    def first(self, steps: int) -> View:
        """What was known `steps` steps after the view's start."""
        return View(self.start, self.step, self.between(self.start, self.start + steps * self.step))

    def tail(self, steps: int) -> View:
        """The same view, its last `steps` steps only."""
        dropped = max(len(self.values) - steps, 0)
        return View(self.start + dropped * self.step, self.step, self.values[dropped:])


@dataclass(frozen=True)
class Series:
    """One class's one metric: tokens/s a step from `start` on, NaN where not observed."""

    workload_class: str
    metric: Metric
    start: datetime
    step: timedelta
    values: FloatArray

    @property
    def end(self) -> datetime:
        return self.start + len(self.values) * self.step

    def until_last_observed(self) -> Series:
        """The same series without the steps at its end that were not observed."""
        observed = np.flatnonzero(np.isfinite(self.values))
        length = int(observed[-1]) + 1 if len(observed) else 0
        return replace(self, values=self.values[:length])

    def view(self, cutoff: datetime) -> View:
        """What was known at `cutoff`. Raises LeakageError where the series does not reach that far,
        since a cutoff in the future would make the missing end look observed."""
        if cutoff > self.end:
            raise LeakageError(
                f"{self.workload_class} {self.metric} ends at {format_time(self.end)}, "
                f"before the cutoff {format_time(cutoff)}",
                remedy="take the cutoff from the newest complete step",
            )
        known = self.values[: max((cutoff - self.start) // self.step, 0)].copy()
        known.flags.writeable = False
        return View(self.start, self.step, known)
