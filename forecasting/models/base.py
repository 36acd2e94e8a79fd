"""What a candidate model is. To add one: write a file beside this one and name it in `CANDIDATES`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import numpy as np

from floorcast.units import format_duration
from forecasting.series import FloatArray, View

DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)
HOUR = timedelta(hours=1)

Parameters = dict[str, Any]
"""What a fit leaves behind: a JSON object, so that a restart keeps it."""


class Model(Protocol):
    """A point forecaster of one series.

    Invariants: `predict` sees only the view; it returns `horizon` finite values in tokens/s for the steps from
    the view's cutoff on; the same parameters and view give the same values.
    """

    @property
    def name(self) -> str:
        """Its name in stores, pages and explanations."""

    def lacks(self, view: View) -> str | None:
        """Why this model cannot be used on that history, or None where it can."""

    def fit(self, view: View) -> Parameters:
        """Estimate parameters. Slow; done daily."""

    def predict(self, parameters: Parameters, view: View, horizon: int) -> FloatArray:
        """Forecast from parameters fitted earlier and the newest data. Fast; done each step."""


def lacks_history(view: View, span: timedelta) -> str | None:
    """The reason where less than `span` was recorded, or less than half of its last part observed."""
    need = view.steps_in(span)
    have = len(view.values)
    if have < need:
        return f"history of {format_duration(have * view.step)} is under {format_duration(span)}"
    observed = int(np.isfinite(view.values[-need:]).sum())
    return None if observed * 2 >= need else f"only {observed} of the last {need} steps were observed"
