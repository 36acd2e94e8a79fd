import math

import numpy as np
import pytest

from forecasting.coverage import share_covered

LEVELS = (0.5, 0.9, 0.95)
SILENT = 1.0


def share(actual: list[float], quantiles: list[list[float]], level: float) -> float:
    return share_covered(np.array(actual), np.array(quantiles), levels=LEVELS, level=level, silent=SILENT)


def test_certain_silence_that_comes_counts_as_covered_by_each_level_with_its_own_probability() -> None:
    """All levels are silent, so that F is half way from 0.95 to 1: 0.975, and 0.9 counts 0.9 / 0.975."""
    assert share([0.0] * 4, [[0.0, 0.0, 0.5]] * 4, 0.9) == pytest.approx(0.9 / 0.975)
    assert share([0.0] * 4, [[0.0, 0.0, 0.5]] * 4, 0.5) == pytest.approx(0.5 / 0.975)


def test_silence_under_a_quantile_that_is_not_silent_is_covered_whole() -> None:
    """Silent up to 0.5, so that F is 0.7, under the level of 0.9."""
    assert share([0.0], [[0.0, 30.0, 40.0]], 0.9) == 1.0
    assert share([0.0], [[0.0, 30.0, 40.0]], 0.5) == pytest.approx(0.5 / 0.7)


def test_rates_above_nothing_are_counted_and_what_is_missing_is_not() -> None:
    nan = math.nan
    assert share([10.0, 50.0, 0.5, nan], [[5.0, 20.0, 30.0], [5.0, 20.0, 30.0], [0.0, 0.0, 0.0], [9.0] * 3], 0.9) == (
        pytest.approx(1 / 3)
    )
    assert math.isnan(share([nan], [[1.0, 2.0, 3.0]], 0.9))


@pytest.mark.parametrize("level", LEVELS)
def test_the_true_quantiles_of_a_job_that_runs_at_random_cover_their_level(level: float) -> None:
    """Silent in 70 % of the steps whatever is known; else uniform up to 100, so that the quantile of q is
    100 (q - 0.7) / 0.3, and 0 under 0.7."""
    rng = np.random.default_rng(1)
    actual = np.where(rng.uniform(size=20_000) < 0.7, 0.0, rng.uniform(2, 100, 20_000))
    quantiles = np.maximum(100 * (np.array(LEVELS) - 0.7) / 0.3, 0.0)
    got = share_covered(actual, np.tile(quantiles, (20_000, 1)), levels=LEVELS, level=level, silent=SILENT)
    assert got == pytest.approx(level, abs=0.01)
