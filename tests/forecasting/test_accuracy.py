"""Losses: worked by hand, and beside a plain loop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forecasting import accuracy

VALUES = arrays(
    np.float64, st.integers(1, 40), elements=st.floats(0, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))
)


def test_losses_worked_by_hand() -> None:
    """Actual 10, 20, 30 against 12, 18, 30: errors -2, 2, 0."""
    pair = {"actual": np.array([10.0, 20, 30]), "forecast": np.array([12.0, 18, 30])}
    assert accuracy.wape(**pair) == pytest.approx(4 / 60)
    assert accuracy.bias(**pair) == pytest.approx(0)
    assert accuracy.pinball(**pair, quantile=0.9) == pytest.approx((0.1 * 2 + 0.9 * 2) / 3)
    assert accuracy.calibration(**pair) == pytest.approx(2 / 3)
    assert accuracy.mase(**pair, training=np.array([0.0, 4, 8]), season=1) == pytest.approx((4 / 3) / 4)


def test_a_forecast_that_is_too_high_has_a_positive_bias() -> None:
    assert accuracy.bias(actual=np.array([10.0]), forecast=np.array([15.0])) == pytest.approx(0.5)


def test_missing_pairs_are_left_out_and_nothing_left_is_nan() -> None:
    pair = {"actual": np.array([np.nan, 10.0]), "forecast": np.array([5.0, 10.0])}
    assert accuracy.wape(**pair) == 0
    assert math.isnan(accuracy.wape(actual=np.array([np.nan]), forecast=np.array([1.0])))
    assert math.isnan(accuracy.wape(actual=np.array([0.0]), forecast=np.array([1.0])))
    assert math.isnan(accuracy.mase(**pair, training=np.array([1.0, 1, 1]), season=1))


@given(VALUES, st.floats(0.01, 0.99), st.randoms())
def test_vectorised_losses_agree_with_a_loop(actual: np.ndarray, quantile: float, random) -> None:  # type: ignore[no-untyped-def]
    forecast = np.array([random.uniform(0, 1e6) for _ in actual])
    loop = []
    for y, f in zip(actual, forecast, strict=True):
        loop.append(quantile * (y - f) if y >= f else (1 - quantile) * (f - y))
    assert accuracy.pinball(actual=actual, forecast=forecast, quantile=quantile) == pytest.approx(sum(loop) / len(loop))
    if actual.sum() > 0:
        absolute = sum(abs(y - f) for y, f in zip(actual, forecast, strict=True))
        assert accuracy.wape(actual=actual, forecast=forecast) == pytest.approx(absolute / actual.sum())
