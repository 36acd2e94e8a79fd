"""Made traffic, small enough to check by hand."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.forecast.data import Pair
from forecasting.series import FloatArray

DAY = 144


@pytest.fixture
def traffic() -> FloatArray:
    """Five days of a daily cycle with noise and two gaps."""
    rng = np.random.default_rng(3)
    times = np.arange(5 * DAY)
    values = 1000 * (1.5 + np.sin(2 * np.pi * times / DAY)) * np.exp(0.2 * rng.standard_normal(len(times)))
    values[200:204] = np.nan
    values[500] = np.nan
    return values


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Fifteen clients over a day; client 3 is the largest, the others fall off; two windows in which all read 0."""
    rng = np.random.default_rng(5)
    windows = np.arange(DAY) * int(timedelta(minutes=10).total_seconds())
    frames = []
    for client in range(15):
        size = 100.0 if client == 3 else 20.0 / (client + 1)
        rate = size * rng.uniform(0.5, 1.5, DAY)
        rate[50:52] = 0.0
        frames.append(
            pl.DataFrame(
                {"client": client, "window_start_s": windows, "requests_per_s": rate, "interarrival_cv": np.ones(DAY)}
            )
        )
    rates, lengths = tmp_path / "servegen_made_rates.parquet", tmp_path / "servegen_made_lengths.parquet"
    pl.concat(frames).write_parquet(rates)
    pl.DataFrame(
        {
            "client": list(range(15)),
            "window_start_s": [0] * 15,
            "mean_input_tokens": [100.0 + 10 * client for client in range(15)],
            "mean_output_tokens": [50.0] * 15,
        }
    ).write_parquet(lengths)
    return Pair(rates, lengths)
