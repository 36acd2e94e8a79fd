"""AutoARIMA with Fourier terms of the day and regressors of the calendar, on a log scale (statsforecast fits it)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forecasting.models.base import DAY, WEEK, IntArray
from forecasting.models.fourier_arima import FourierArima
from forecasting.series import FloatArray, View

MONDAY = 3
"""The weekday of the epoch's day, a Thursday, counted from Monday."""

REST_DAYS = (5, 6)
REST_HARMONICS = 2


@dataclass(frozen=True)
class CalendarArima(FourierArima):
    """Saturdays and Sundays (UTC) each have a level and a daily shape of their own.

    A week's sines know no edges: three of them, as of any seven days, smear a weekend over Friday and Monday.
    """

    def _terms(self, view: View, places: IntArray) -> FloatArray:
        day = view.steps_in(DAY)
        at = view.first_index + places
        weekday, angle = (at // day + MONDAY) % 7, 2 * np.pi * at / day
        waves = [wave(order * angle) for order in range(1, REST_HARMONICS + 1) for wave in (np.sin, np.cos)]
        rest = [(weekday == each) * shape for each in REST_DAYS for shape in (np.ones(len(places)), *waves)]
        return np.column_stack([super()._terms(view, places), *rest])


CALENDAR_ARIMA = CalendarArima("calendar_arima", ((DAY, 5),), history=4 * WEEK, needs=2 * WEEK)
