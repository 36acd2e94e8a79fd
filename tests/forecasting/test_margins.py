"""Quantiles from residuals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from floorcast.columns import QUANTILE_LEVELS
from forecasting.margins import RATE, Margins, Pairs, conformal
from forecasting.models.base import IntArray
from forecasting.series import FloatArray

DAY = 24
RATES = st.floats(0, 1e7)
P95 = QUANTILE_LEVELS.index(0.95)


def pairs(actual: FloatArray, path: FloatArray, targets: IntArray | None = None) -> Pairs:
    """A step is an hour; without `targets` each origin is a day after the one before."""
    if targets is None:
        targets = DAY * np.arange(len(path))[:, None] + np.arange(path.shape[1])
    return Pairs(actual, path, targets, DAY)


def estimate(given: Pairs, kind: str = "add", base: float = 0.0, ends: tuple[int, ...] = (1,)) -> Margins:
    return Margins.from_residuals(given, kind=kind, base=base, ends=ends)  # type: ignore[arg-type]


def applied(margins: Margins, path: FloatArray, first: int = 0) -> FloatArray:
    return margins.apply(path, first + np.arange(len(path)), DAY)


@pytest.mark.parametrize(("count", "rank"), [(19, 19), (20, 20), (39, 38), (99, 95)])
def test_few_residuals_widen_a_quantile_to_the_largest_of_them(count: int, rank: int) -> None:
    """The ceil((n + 1) x 0.95)-th: of 19 the 19th, of 20 the ceil(19.95) = 20th. Without the one added it would be the
    19th of both."""
    assert conformal(np.arange(1.0, count + 1), [0.95]).tolist() == [rank]


def test_the_95_percent_margin_of_ninety_nine_days_is_the_ninety_sixth_residual() -> None:
    """Of 99 days the level is 1 - 0.05 x 99 / 109 = 0.9546, and ceil(100 x 0.9546) = 96: the 96th of 1 to 99."""
    actual = np.arange(1.0, 100.0)[:, None]
    margins = estimate(pairs(actual, np.zeros_like(actual)))
    assert margins.offsets[0][P95] == pytest.approx(96)
    assert applied(margins, np.array([10.0]))[0, P95] == pytest.approx(106)


def test_few_days_widen_the_margins_however_many_their_steps() -> None:
    """The same hundred residuals, seen on a hundred days or all on one: then 0.9 becomes 1 - 0.1 / 11."""
    actual = np.arange(1.0, 101.0)[:, None]
    one_day = pairs(actual, np.zeros_like(actual), np.zeros((100, 1), dtype=np.int64))
    p90 = QUANTILE_LEVELS.index(0.9)
    assert estimate(one_day).offsets[0][p90] == 100
    assert estimate(pairs(actual, np.zeros_like(actual))).offsets[0][p90] == pytest.approx(92)
    assert estimate(one_day).offsets[0][QUANTILE_LEVELS.index(0.5)] == 51


def test_margins_of_kind_scale_grow_with_the_forecast() -> None:
    """Actual always a fifth above forecast + base: every quantile adds that fifth."""
    path = np.linspace(100, 200, 30)[:, None]
    margins = estimate(pairs(path + 0.2 * (path + 50), path), kind="scale", base=50)
    np.testing.assert_allclose(applied(margins, np.array([400.0]))[0], 400 + 0.2 * 450)


def test_hours_that_err_more_get_wider_margins() -> None:
    """Forty days of 24 hours, off by 1 at night and by 9 from noon to 18. Of the hour and its neighbours together,
    half way to the mean of 3: at 15 (9 + 3) / 2 / 3 = 2 times the usual, at 3 in the morning (1 + 3) / 2 / 3 = 0.67."""
    off = np.where((np.arange(24) >= 12) & (np.arange(24) < 18), 9.0, 1.0)
    actual = 100 + np.tile(off, (40, 1)) * np.where(np.arange(40) % 2, 1, -1)[:, None]
    margins = estimate(pairs(actual, np.full((40, 24), 100.0)), ends=(24,))
    assert margins.hours[15] == pytest.approx(2)
    assert margins.hours[3] == pytest.approx(2 / 3)
    quantiles = applied(margins, np.full(24, 100.0))
    assert quantiles[15, P95] - 100 == pytest.approx(3 * (quantiles[3, P95] - 100))


def test_a_bucket_with_too_few_residuals_takes_the_one_before_it() -> None:
    actual = np.full((20, 3), np.nan)
    actual[:, 0] = 5.0
    actual[0, 2] = 1000.0
    margins = estimate(pairs(actual, np.zeros((20, 3))), ends=(1, 2, 3))
    assert margins.offsets[1] == margins.offsets[2] == margins.offsets[0]


def test_a_miss_raises_and_a_cover_lowers_what_is_off_in_the_horizon_where_it_was_seen() -> None:
    """One target in an hour, above its 0.95 quantile: up by 0.95 of the rate and the spread. Under it: down by 0.05."""
    rng = np.random.default_rng(2)
    before = estimate(pairs(rng.normal(100, 10, (60, 2)), np.full((60, 2), 100.0)), ends=(1, 2))
    for came, share in ((500.0, 0.95), (90.0, -0.05)):
        after = before.follow(pairs(np.array([[came, np.nan]]), np.full((1, 2), 100.0)))
        moved = after.offsets[0][P95] - before.offsets[0][P95]
        assert moved == pytest.approx(share * RATE * before.spreads[0])
        assert after.offsets[1] == before.offsets[1]


def test_without_anything_known_nothing_is_corrected() -> None:
    margins = estimate(pairs(np.full((20, 1), 7.0), np.zeros((20, 1))))
    assert margins.follow(pairs(np.full((3, 1), np.nan), np.zeros((3, 1)))) is margins


def test_coverage_that_was_lost_is_won_back() -> None:
    """Margins from residuals of 10, then a month of residuals of 20: covered at first 66 %, in the last week 95 %."""
    rng = np.random.default_rng(4)
    margins = estimate(pairs(rng.normal(100, 10, (60, 24)), np.full((60, 24), 100.0)), ends=(24,))
    covered = []
    for day in range(30):
        actual = rng.normal(108, 20, (1, 24))
        covered.append((actual <= applied(margins, np.full(24, 100.0))[:, P95]).mean())
        margins = margins.follow(pairs(actual, np.full((1, 24), 100.0), 24 * day + np.arange(24)[None, :]))
    assert np.mean(covered[:2]) < 0.85
    assert abs(np.mean(covered[-14:]) - 0.95) < 0.03


@given(arrays(np.float64, (20, 6), elements=RATES), arrays(np.float64, (20, 6), elements=RATES),
       arrays(np.float64, 9, elements=RATES), st.sampled_from(["add", "scale"]))  # fmt: skip
def test_quantiles_do_not_cross_are_never_negative_and_survive_json(actual, path, ahead, kind) -> None:  # type: ignore[no-untyped-def]
    margins = estimate(pairs(actual, path), kind=kind, base=10.0, ends=(1, 3, 6)).follow(pairs(actual[:5], path[5:10]))
    quantiles = applied(margins, ahead, first=7)
    assert quantiles.shape == (9, len(QUANTILE_LEVELS))
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    assert (quantiles >= 0).all()
    again = Margins.model_validate_json(margins.model_dump_json())
    np.testing.assert_array_equal(applied(again, ahead, first=7), quantiles)
