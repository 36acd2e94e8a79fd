"""What its classes ask of a pool."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.ladder import Figures
from scaling.pool_demand import own_demand


@pytest.mark.parametrize(
    ("hurried", "factor"), [((True, True), 2.0), ((True, False), 1.25), ((False, False), 1.0)], ids=str
)
def test_only_what_may_not_wait_has_a_busiest_minute(make_config, hurried, factor):
    """100 tokens/s of one class and 300 of another, at a busiest minute of twice the mean: of both 800; of the first
    alone 100 x 2 + 300 = 500, which is 400 x 1.25; of neither 400."""
    quantile = np.tile(np.array([100.0, 300.0])[:, None, None], (1, 2, 4))
    figures = Figures(
        classes=("chat", "batch"),
        quantile=quantile,
        median=quantile,
        rung=np.zeros(quantile.shape, dtype=np.int8),
        label=np.zeros(quantile.shape, dtype=np.int32),
        labels=("model",),
    )
    pool = make_config().pools["main"]
    made = own_demand(pool, figures, [0, 1], width=2, share=np.ones(2), peak=np.full(2, 2.0), hurried=np.array(hurried))
    np.testing.assert_allclose(made.demand, 400 * factor)
    np.testing.assert_allclose(made.peak, factor)
