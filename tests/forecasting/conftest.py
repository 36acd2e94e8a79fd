"""Series with known shapes."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from floorcast.columns import Metric
from forecasting.series import FloatArray, Series

START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=15)
DAY_STEPS = 96


@pytest.fixture
def make_series() -> Callable[[FloatArray], Series]:
    """A series of these values from Monday 2026-11-02 on, 15 minutes a step."""
    return lambda values: Series("chat", Metric.TOKENS_OUT, START, STEP, np.asarray(values, dtype=float))


@pytest.fixture
def daily(make_series: Callable[[FloatArray], Series]) -> Callable[..., Series]:
    """A day's sine between 500 and 1500 tokens/s over so many days, with relative noise."""

    def build(days: int, noise: float = 0.0) -> Series:
        place = np.arange(days * DAY_STEPS)
        wobble = np.exp(noise * np.random.default_rng(3).standard_normal(len(place)))
        return make_series((1000 + 500 * np.sin(2 * np.pi * place / DAY_STEPS)) * wobble)

    return build
