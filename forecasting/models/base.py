"""What a candidate model is. To add one: write a file beside this one and name it in `CANDIDATES`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from floorcast.units import format_duration
from forecasting.series import FloatArray, View

DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)
HOUR = timedelta(hours=1)

IntArray = npt.NDArray[np.int64]

Parameters = dict[str, Any]
"""What a fit leaves behind: a JSON object, so that a restart keeps it."""


class Model(Protocol):
    """A point forecaster of one series.

    Invariants: `paths` returns finite values in tokens/s; the row of an origin depends on nothing at or after that
    origin, and is what a view that ends there gives; the same parameters and view give the same values.
    """

    @property
    def name(self) -> str:
        """Its name in stores, pages and explanations."""

    def lacks(self, view: View) -> str | None:
        """Why this model cannot be fitted on that history, or None where it can."""

    def fit(self, view: View) -> Parameters:
        """Estimate parameters. Slow; done daily."""

    def paths(self, parameters: Parameters, view: View, origins: IntArray, horizon: int) -> FloatArray:
        """Forecast `horizon` steps from each origin with parameters fitted earlier: (origins, horizon).

        An origin is the number of steps of the view known there; origins ascend. Fast; done each step.
        """


def lacks_history(view: View, span: timedelta) -> str | None:
    """The reason where less than `span` was recorded, or less than half of its last part observed."""
    need = view.steps_in(span)
    have = len(view.values)
    if have < need:
        return f"history of {format_duration(have * view.step)} is under {format_duration(span)}"
    observed = int(np.isfinite(view.values[-need:]).sum())
    return None if observed * 2 >= need else f"only {observed} of the last {need} steps were observed"


def lacks_everything(view: View) -> str | None:
    """The reason where nothing was observed."""
    return None if np.isfinite(view.values).any() else "nothing was observed"


def carried(values: FloatArray) -> FloatArray:
    """Values with each missing one replaced by the newest before it in its column: the first observed one where there
    is none before, NaN where there is none at all."""
    rows = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    newest = np.maximum.accumulate(np.where(np.isfinite(values), rows, -1), axis=0)
    filled: FloatArray = np.take_along_axis(values, np.where(newest >= 0, newest, (newest >= 0).argmax(axis=0)), axis=0)
    return filled


def ahead_of(origins: IntArray, horizon: int) -> IntArray:
    """The places of the steps that are forecast, counted from the view's start: (origins, horizon)."""
    return np.asarray(origins[:, None] + np.arange(horizon), dtype=np.int64)
