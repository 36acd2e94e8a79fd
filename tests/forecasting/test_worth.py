"""Figures and the verdict, by hand."""

import numpy as np
import pytest

from forecasting.rolling import Naive, Rolled
from forecasting.worth import judge_rolled

LEVELS = (0.5, 0.9)
DAY_STEPS = 96


@pytest.fixture
def series(make_series):
    """Ten days; the first five rise by 20 each day, so that the seasonal naive errs by 20."""
    days = np.repeat(np.arange(10.0), DAY_STEPS)
    return make_series(100 + 20 * days)


def rolled(actual, ours, last, seasonal) -> Rolled:
    """One target an origin, an origin a day from the sixth on; ours are (median, quantile 0.9), a naive forecast is a
    point, which is also its quantiles."""

    def naive(points) -> Naive:
        point = np.asarray(points, dtype=float)[:, None]
        return Naive(point, {"add": np.repeat(point[..., None], 2, axis=2), "ratio1": 3 * point[..., None] * [1, 1]})

    return Rolled(
        "lead",
        5 * DAY_STEPS + DAY_STEPS * np.arange(len(actual)),
        LEVELS,
        np.asarray(actual, dtype=float)[:, None],
        np.asarray(ours, dtype=float)[:, None],
        {"last_value": naive(last), "seasonal_naive": naive(seasonal)},
    )


def test_every_figure(series):
    given = rolled(
        [100, 200, 300], ours=[(90, 110), (210, 220), (300, 310)], last=[80, 180, 280], seasonal=[50, 50, 50]
    )
    got = judge_rolled(series, given, quantile=0.9)
    ours, last, seasonal = got.figures
    # |100 - 90| + |200 - 210| + 0 = 20 of 600; their mean 20 / 3 over a seasonal step of 20.
    assert ours.wape == pytest.approx(20 / 600)
    assert ours.mase == pytest.approx(20 / 3 / 20)
    # -10 + 10 + 0
    assert ours.bias == 0
    # All three are under: 0.1 (10 + 20 + 10) / 3.
    assert ours.pinball == pytest.approx(4 / 3)
    assert ours.covered == 1
    # 20 too low each time: 0.9 x 20. Three times the point would lose 0.1 (140 + 340 + 540) / 3 = 34.
    assert (last.pinball, last.margin, last.covered) == (pytest.approx(18), "add", 0)
    assert last.bias == pytest.approx(-60 / 600)
    # At its point 0.9 (50 + 150 + 250) / 3 = 135; at 150 it loses (0.1 x 50 + 0.9 x 50 + 0.9 x 150) / 3 = 185 / 3.
    assert (seasonal.pinball, seasonal.margin) == (pytest.approx(185 / 3), "ratio1")
    assert (got.targets, got.unforecast, got.days, got.days_better, got.best) == (3, 0, 3, 3, "last_value")
    assert got.ratio == pytest.approx(4 / 3 / 18)
    assert got.worth == "pays"
    assert got.why == (
        "pays: loses 0.07 of what last value loses, and less on 3 of 3 days; "
        "quantile 0.9 is higher than it need be: it covers 100.0%"
    )


@pytest.mark.parametrize(
    ("ours", "worth", "said"),
    [
        # Last value is 10 too low: it loses 9 a day. A quantile 100 too high loses 10, one 90 too high 9, one 80, 8.
        ([100, 100, 100], "does_not_pay", "does not pay: loses 1.11 of what last value loses, and less on 0 of 3 days"),
        ([90, 90, 90], "even", "no better than last value: loses 1.00 of what last value loses"),
        ([80, 80, 80], "pays", "pays: loses 0.89 of what last value loses, and less on 3 of 3 days"),
        ([10, 100, 100], "unclear", "not clear: loses 0.78 of what last value loses, and less on 1 of 3 days"),
        ([160, 80, 80], "unclear", "not clear: loses 1.19 of what last value loses, and less on 2 of 3 days"),
    ],
)
def test_verdicts(series, ours, worth, said):
    quantiles = [(500, 500 + over) for over in ours]
    got = judge_rolled(series, rolled([500] * 3, quantiles, last=[490] * 3, seasonal=[0] * 3), quantile=0.9)
    assert got.worth == worth
    assert got.why.startswith(said)


def test_two_days_are_too_few_for_a_clear_verdict(series):
    got = judge_rolled(series, rolled([500] * 2, [(500, 510)] * 2, last=[490] * 2, seasonal=[0] * 2), quantile=0.9)
    assert (got.worth, got.days_better, got.days) == ("unclear", 2, 2)
    assert got.why.startswith("not clear: loses 0.11 of what last value loses, and less on 2 of 2 days")


def test_days_that_are_divided_give_no_clear_verdict(series):
    # 160 too high loses 16 for 9, on two of the four days; 38 for 36 in sum.
    quantiles = [(500, 500 + over) for over in (160, 160, 30, 30)]
    got = judge_rolled(series, rolled([500] * 4, quantiles, last=[490] * 4, seasonal=[0] * 4), quantile=0.9)
    assert got.why.startswith("not clear: loses 1.06 of what last value loses, and less on 2 of 4 days")


def test_all_methods_are_judged_on_the_same_targets(series):
    given = rolled(
        [500, np.nan, 500, 500],
        ours=[(500, 510), (0, 0), (np.nan, np.nan), (500, 510)],
        last=[490, 490, 490, np.nan],
        seasonal=[0] * 4,
    )
    got = judge_rolled(series, given, quantile=0.9)
    assert (got.targets, got.unforecast, got.days) == (1, 1, 1)
    assert got.why.endswith("; 1 more had no forecast")


def test_nothing_to_judge_is_told(series):
    unseen = rolled([np.nan] * 2, [(1, 1)] * 2, last=[1] * 2, seasonal=[1] * 2)
    unmade = rolled([5.0] * 2, [(np.nan, np.nan)] * 2, last=[1] * 2, seasonal=[1] * 2)
    assert [judge_rolled(series, one, quantile=0.9).why for one in (unseen, unmade)] == [
        "nothing was observed that could be judged",
        "no forecast could be made",
    ]


def test_a_naive_forecast_that_is_always_right_cannot_be_beaten(series):
    got = judge_rolled(series, rolled([500] * 3, [(500, 500)] * 3, last=[500] * 3, seasonal=[0] * 3), quantile=0.9)
    assert (got.worth, got.ratio, got.why.split(";")[0]) == ("even", None, "last value was always right")
    missed = judge_rolled(series, rolled([500] * 3, [(500, 400)] * 3, last=[500] * 3, seasonal=[0] * 3), quantile=0.9)
    assert (missed.worth, missed.why.split(";")[0]) == ("does_not_pay", "does not pay: last value was always right")
