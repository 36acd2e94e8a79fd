"""One demo history for all tests of it: it ends in mid-morning on a Monday, seed 7."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from pipelines.demo.features import PlantedFeature, planted_features
from pipelines.demo.generate import generate_minutes

END = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)


@pytest.fixture(scope="session")
def end() -> datetime:
    return END


@pytest.fixture(scope="session")
def minutes() -> pl.DataFrame:
    return generate_minutes(end=END, rng=np.random.default_rng(7))


@pytest.fixture(scope="session")
def features() -> tuple[PlantedFeature, ...]:
    return planted_features(end=END, days=28, rng=np.random.default_rng(7))
