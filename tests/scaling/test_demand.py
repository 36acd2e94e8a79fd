"""Quantiles between the stored levels, and a pool's demand from its classes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import QUANTILE_COLUMNS, QUANTILE_LEVELS
from floorcast.errors import ForecastError
from scaling.demand import METRICS, at_level, class_demand, pool_demand


def _at(values, level):
    frame = pl.DataFrame({name: [float(value)] for name, value in zip(QUANTILE_COLUMNS, values, strict=True)})
    return frame.select(value=at_level(level))["value"].item()


def test_a_stored_level_is_read_and_one_between_is_linear():
    """q90 is 50 and q95 is 60: q91 lies a fifth of the way, at 52."""
    values = [10, 20, 30, 40, 50, 60, 70, 80]
    assert _at(values, 0.95) == 60
    assert _at(values, 0.91) == pytest.approx(52)
    assert _at(values, 0.98) == pytest.approx(70 + 10 / 3)


@pytest.mark.parametrize("level", [0.05, 0.995])
def test_nothing_is_extrapolated(level):
    with pytest.raises(ForecastError, match=r"outside the forecast levels 0\.1 to 0\.99"):
        at_level(level)


@given(
    values=st.lists(st.floats(0, 1e6), min_size=8, max_size=8).map(sorted),
    levels=st.lists(st.floats(0.1, 0.99), min_size=2, max_size=2).map(sorted),
)
def test_a_higher_level_is_never_a_lower_quantile(values, levels):
    low, high = (_at(values, level) for level in levels)
    assert low <= high + 1e-9 * max(high, 1)
    assert values[0] <= high <= values[-1] * (1 + 1e-9)
    assert _at(values, levels[0]) == pytest.approx(np.interp(levels[0], QUANTILE_LEVELS, values))


def test_each_class_is_read_at_its_own_level(make_forecasts):
    frame = make_forecasts({"agent": [100.0], "chat": [100.0]}, spread=100)
    got = class_demand(
        frame, {(name, metric): level for name, level in (("agent", 0.5), ("chat", 0.9)) for metric in METRICS}
    ).sort("workload_class", "metric")
    assert got["quantile"].to_list() == pytest.approx([100, 100, 140, 140])
    assert got["median"].to_list() == [100] * 4


def test_a_row_without_a_usable_figure_says_nothing_and_a_negative_one_says_zero(make_forecasts):
    """Missing is not zero: null, NaN and infinity leave no row."""
    frame = make_forecasts({"chat": [1.0, 2.0, 3.0, 4.0]}, metrics=("tokens_in",))
    frame = frame.with_columns(q95=pl.Series([None, float("nan"), float("inf"), -5.0]), q50=pl.Series([1.0, 2, 3, -6]))
    got = class_demand(frame, {("chat", "tokens_in"): 0.95})
    assert got.select("quantile", "median").rows() == [(0.0, 0.0)]


def test_a_pool_adds_what_is_known_of_its_classes():
    """[classes, metrics, steps]; a class not known at a step adds nothing there."""
    classes = np.array([[[1.0, 2.0], [10.0, 20.0]], [[0.5, np.nan], [5.0, np.nan]]])
    assert pool_demand(classes, classes / 2, np.ones((2, 2)), np.ones((2, 2))).tolist() == [[1.5, 2.0], [15.0, 20.0]]


def test_a_pool_keeps_its_share_of_the_spread_of_its_classes():
    """Medians 100 and 200, quantiles 150 and 300: added up 450; with 60 % of the spread of 150, 390."""
    quantile, median = np.array([[[150.0]], [[300.0]]]), np.array([[[100.0]], [[200.0]]])
    for share, demand in ((1.0, 450.0), (0.6, 390.0), (0.0, 300.0)):
        for peak in (1.0, 1.2):
            got = pool_demand(quantile, median, np.array([[share]]), np.array([[peak]]))
            assert got.tolist() == [[pytest.approx(demand * peak)]]
