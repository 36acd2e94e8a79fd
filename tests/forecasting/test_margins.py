"""Quantiles from residuals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from floorcast.columns import QUANTILE_LEVELS
from forecasting.margins import Margins

RATES = st.floats(0, 1e7)


def test_the_95_percent_margin_of_ninety_nine_residuals_is_the_ninety_fifth() -> None:
    """ceil((99 + 1) x 0.95) = 95: the 95th smallest of 1 to 99."""
    actual = np.arange(1.0, 100.0)[:, None]
    margins = Margins.from_residuals(actual=actual, path=np.zeros_like(actual), kind="add", base=0, ends=(1,))
    assert margins.offsets[0][QUANTILE_LEVELS.index(0.95)] == 95
    assert margins.apply(np.array([10.0]))[0, QUANTILE_LEVELS.index(0.95)] == 105


def test_margins_of_kind_scale_grow_with_the_forecast() -> None:
    """Actual always a fifth above forecast + base: every quantile adds that fifth."""
    path = np.linspace(100, 200, 30)[:, None]
    margins = Margins.from_residuals(actual=path + 0.2 * (path + 50), path=path, kind="scale", base=50, ends=(1,))
    np.testing.assert_allclose(margins.apply(np.array([400.0]))[0], 400 + 0.2 * 450)


def test_a_bucket_with_too_few_residuals_takes_the_one_before_it() -> None:
    actual = np.full((20, 3), np.nan)
    actual[:, 0] = 5.0
    actual[0, 2] = 1000.0
    margins = Margins.from_residuals(actual=actual, path=np.zeros((20, 3)), kind="add", base=0, ends=(1, 2, 3))
    assert margins.offsets[1] == margins.offsets[2] == margins.offsets[0]


@given(arrays(np.float64, (20, 6), elements=RATES), arrays(np.float64, (20, 6), elements=RATES),
       arrays(np.float64, 9, elements=RATES), st.sampled_from(["add", "scale"]))  # fmt: skip
def test_quantiles_do_not_cross_are_never_negative_and_survive_json(actual, path, ahead, kind) -> None:  # type: ignore[no-untyped-def]
    margins = Margins.from_residuals(actual=actual, path=path, kind=kind, base=10.0, ends=(1, 3, 6))
    quantiles = margins.apply(ahead)
    assert quantiles.shape == (9, len(QUANTILE_LEVELS))
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    assert (quantiles >= 0).all()
    np.testing.assert_array_equal(Margins.model_validate_json(margins.model_dump_json()).apply(ahead), quantiles)
