"""Candidate models, simplest first."""

from forecasting.models.base import Model, Parameters
from forecasting.models.calendar_arima import CALENDAR_ARIMA
from forecasting.models.fourier_arima import FOURIER_ARIMA
from forecasting.models.mstl_arima import MSTL_ARIMA_DAY, MSTL_ARIMA_WEEK
from forecasting.models.mstl_ets import MSTL_ETS_DAY
from forecasting.models.naive import (
    DAY_AVERAGE,
    LAST_VALUE,
    SEASONAL_AVERAGE_DAY,
    SEASONAL_AVERAGE_WEEK,
    SEASONAL_NAIVE_DAY,
    SEASONAL_NAIVE_WEEK,
)

CANDIDATES: tuple[Model, ...] = (
    LAST_VALUE,
    DAY_AVERAGE,
    SEASONAL_NAIVE_DAY,
    SEASONAL_AVERAGE_DAY,
    SEASONAL_NAIVE_WEEK,
    SEASONAL_AVERAGE_WEEK,
    MSTL_ETS_DAY,
    MSTL_ARIMA_DAY,
    MSTL_ARIMA_WEEK,
    FOURIER_ARIMA,
    CALENDAR_ARIMA,
)

BY_NAME: dict[str, Model] = {model.name: model for model in CANDIDATES}

__all__ = ["BY_NAME", "CANDIDATES", "Model", "Parameters"]
