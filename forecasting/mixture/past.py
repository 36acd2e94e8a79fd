"""What was known of one series at each of many origins."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from forecasting.models.base import DAY
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class Past:
    """One series as it was at each origin from `first` steps after the view's start up to the view's cutoff.

    Every array that its methods hand out has one row an origin, and reaches nothing at or after that row's origin.
    `filled` (steps,) are the view's rates, those not observed as the newest before them, NaN before the first.
    """

    view: View
    first: int
    lead_steps: int
    filled: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.first <= len(self.view.values) or not 1 <= self.lead_steps < self.view.steps_in(DAY):
            raise ValueError("origins need a step before them, and the lead window must be shorter than a day")
        values = self.view.values
        seen = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
        object.__setattr__(self, "filled", np.where(seen >= 0, values[np.maximum(seen, 0)], np.nan))

    @property
    def origins(self) -> int:
        return len(self.view.values) - self.first + 1

    def back(self, steps: int) -> FloatArray:
        """The newest rate observed up to `steps` steps before each origin (1: the last), NaN before the start."""
        return self._lagged(self.filled, steps)

    def exactly(self, steps: int) -> FloatArray:
        """The rate of the step `steps` before each origin, NaN where it was not observed."""
        return self._lagged(self.view.values, steps)

    def recent(self, span: timedelta) -> FloatArray:
        """Rates of the steps of the `span` before each origin, filled forward: (origins, steps)."""
        return np.stack([self.back(k) for k in range(1, max(self.view.steps_in(span), 1) + 1)], axis=1)

    def mean(self) -> FloatArray:
        """Mean of all rates observed before each origin."""
        seen = np.isfinite(self.view.values)
        total = np.cumsum(np.where(seen, self.view.values, 0.0))
        mean: FloatArray = (total / np.maximum(np.cumsum(seen), 1))[self.first - 1 :]
        return mean

    def highest(self) -> FloatArray:
        """The greatest rate observed before each origin."""
        peak: FloatArray = np.fmax.accumulate(self.view.values)[self.first - 1 :]
        return peak

    def _lagged(self, values: FloatArray, steps: int) -> FloatArray:
        if steps < 1:
            raise ValueError("a step at or after the origin was asked for")
        places = np.arange(self.first, len(values) + 1) - steps
        return np.where(places >= 0, values[np.maximum(places, 0)], np.nan)


def greatest(rates: FloatArray, lead_steps: int) -> FloatArray:
    """The greatest of the `lead_steps` rates from each step on, and for the end: (steps + 1,). NaN where one of them is
    missing, since the peak may have been there, or ahead."""
    padded = np.concatenate([rates, np.full(lead_steps, np.nan)])
    most: FloatArray = np.lib.stride_tricks.sliding_window_view(padded, lead_steps).max(axis=1)
    return most
