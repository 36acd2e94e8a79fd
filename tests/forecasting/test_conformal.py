import math

import numpy as np
import pytest

from forecasting.conformal import MARGINS, Margin, units, with_margin
from forecasting.series import FloatArray

LEVELS = (0.5, 0.9, 0.95)


def oracle(
    point: FloatArray, actual: FloatArray, unit: FloatArray, *, delay: int, window: int, first: int
) -> FloatArray:
    rows = []
    for origin in range(first, len(point)):
        known = []
        for past in range(max(origin - window, 0), origin - delay + 1):
            known += [r for r in ((actual[past] - point[past]) / unit[past]).tolist() if not math.isnan(r)]
        known.sort()
        offsets = [
            known[min(math.ceil(round((len(known) + 1) * level, 9)), len(known)) - 1] if known else 0.0
            for level in LEVELS
        ]
        rows.append([[max(f + u * o, 0.0) for o in offsets] for f, u in zip(point[origin], unit[origin], strict=True)])
    return np.array(rows)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("width", "delay", "window", "first"), [(1, 1, 40, 60), (1, 2, 40, 0), (6, 3, 10, 12)])
def test_the_margin_is_what_a_plain_loop_gives(margin: Margin, width: int, delay: int, window: int, first: int) -> None:
    rng = np.random.default_rng(width + delay)
    point, actual = rng.uniform(0, 9, (90, width)), rng.uniform(0, 9, (90, width))
    actual[rng.uniform(size=actual.shape) < 0.2] = np.nan
    unit = units(point, np.linspace(1, 5, 90), margin)
    got = with_margin(point, actual, unit, delay=delay, window=window, first=first, levels=LEVELS)
    np.testing.assert_allclose(got, oracle(point, actual, unit, delay=delay, window=window, first=first))


def test_nineteen_residuals_give_the_largest_at_0_95_and_the_eighteenth_at_0_9() -> None:
    point, actual = np.zeros((20, 1)), np.arange(1.0, 21.0)[:, None]
    [[got]] = with_margin(point, actual, np.ones((20, 1)), delay=1, window=19, first=19, levels=LEVELS)
    assert got.tolist() == [10.0, 18.0, 19.0]


def test_a_target_that_is_not_over_yet_gives_no_margin() -> None:
    point = np.zeros((30, 1))
    actual = np.ones((30, 1))
    actual[28:] = 1e9
    got = with_margin(point, actual, np.ones((30, 1)), delay=2, window=20, first=29, levels=LEVELS)
    assert got.max() == 1.0


def test_ratios_are_to_the_forecast_plus_a_share_of_the_mean() -> None:
    point, mean = np.array([[100.0], [0.0], [0.0]]), np.array([50.0, 50.0, 0.0])
    assert units(point, mean, "ratio10")[:, 0].tolist() == [105.0, 5.0, 1.0]
    assert units(point, mean, "ratio1")[:, 0].tolist() == [100.5, 1.0, 1.0]
