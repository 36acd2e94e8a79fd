"""Candidate models, simplest first."""

from forecasting.models.base import Model, Parameters
from forecasting.models.fourier_arima import FOURIER_ARIMA
from forecasting.models.mstl_ets import MSTL_ETS_DAY, MSTL_ETS_WEEK
from forecasting.models.naive import LAST_VALUE, SEASONAL_NAIVE_DAY, SEASONAL_NAIVE_WEEK

CANDIDATES: tuple[Model, ...] = (
    LAST_VALUE,
    SEASONAL_NAIVE_DAY,
    SEASONAL_NAIVE_WEEK,
    MSTL_ETS_DAY,
    MSTL_ETS_WEEK,
    FOURIER_ARIMA,
)

BY_NAME: dict[str, Model] = {model.name: model for model in CANDIDATES}

__all__ = ["BY_NAME", "CANDIDATES", "Model", "Parameters"]
