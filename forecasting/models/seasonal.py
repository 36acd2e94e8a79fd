"""MSTL's seasonal shape on a log scale (statsforecast decomposes), and what models of the rest share.

The shape is estimated at each fit and kept; between fits only the model of the rest follows the newest data, which
costs milliseconds where a new decomposition costs a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from forecasting.cleaning import fill_missing
from forecasting.models.base import DAY, HOUR, WEEK, IntArray
from forecasting.models.logscale import to_log
from forecasting.series import FloatArray, View


@dataclass(frozen=True)
class Seasons:
    """Additive seasons on log(rate + offset); the longest one's length is the period of the kept shape."""

    lengths: tuple[timedelta, ...]
    grid: timedelta | None
    """The shape's resolution; None for the step. A weekly shape at the step would take most of a minute."""
    history: timedelta

    def fit(self, view: View, offset: float) -> tuple[FloatArray, FloatArray]:
        """One period of the shape at the step, counted from the epoch, mean zero; and the rest of the view."""
        filled = to_log(fill_missing(view.values, season=view.steps_in(DAY)), offset)
        shape = self._shape(view, filled)
        return shape, filled - self.at(shape, view, np.arange(len(filled)))

    def at(self, shape: FloatArray, view: View, places: IntArray) -> FloatArray:
        """The shape at steps counted from the view's start."""
        found: FloatArray = shape[(view.first_index + places) % view.steps_in(self.lengths[-1])]
        return found

    def _shape(self, view: View, filled: FloatArray) -> FloatArray:
        from statsforecast.models import MSTL, AutoETS  # noqa: PLC0415 - takes a second, and only fits need it

        per_cell = view.steps_in(self.grid) if self.grid and self.grid > view.step else 1
        lead_in = -view.first_index % per_cell
        cells = filled[lead_in:]
        cells = cells[: len(cells) // per_cell * per_cell].reshape(-1, per_cell).mean(axis=1)
        periods = [view.steps_in(season) // per_cell for season in self.lengths]
        # R's stl evaluates its loess at every tenth of a window and interpolates; at every point costs 20 times more.
        jump = -(-periods[0] // 10)
        decomposed = MSTL(
            season_length=periods,
            trend_forecaster=AutoETS(season_length=1, model="ANN"),
            stl_kwargs={"seasonal_jump": 2, "trend_jump": jump, "low_pass_jump": jump},
        ).fit(cells)
        seasonal = decomposed.model_.filter(like="seasonal").sum(axis=1).to_numpy()[-periods[-1] :]
        first_cell = (view.first_index + lead_in) // per_cell + len(cells) - periods[-1]
        shape = np.roll(seasonal, first_cell % periods[-1])
        if per_cell > 1:
            centres = (np.arange(-1, len(shape) + 1) + 0.5) * per_cell - 0.5
            wrapped = np.concatenate([shape[-1:], shape, shape[:1]])
            shape = np.interp(np.arange(len(shape) * per_cell), centres, wrapped)
        result: FloatArray = shape - shape.mean()
        return result


DAILY = Seasons((DAY,), grid=None, history=14 * DAY)
WEEKLY = Seasons((DAY, WEEK), grid=HOUR, history=28 * DAY)
