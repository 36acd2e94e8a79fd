"""A backtest judged: worked by hand."""

import numpy as np
import pytest

from forecasting.margins import Pairs
from forecasting.series import FloatArray
from forecasting.verdict import Target, Verdict, judge

DAY = 24


def pairs(actual: FloatArray) -> Pairs:
    """Forecasts of 100. A step is an hour, and each origin a day after the one before."""
    targets = DAY * np.arange(len(actual))[:, None] + np.arange(actual.shape[1])
    return Pairs(actual, np.full(actual.shape, 100.0), targets, DAY)


def judged(result: Pairs, *, lead: int) -> Verdict:
    target = Target(quantile=0.95, lead_steps=lead, horizon_steps=result.path.shape[1])
    verdict = judge(result, target=target, mean=100.0)
    assert isinstance(verdict, Verdict)
    return verdict


def test_an_outlook_of_which_nothing_was_observed_is_not_judged() -> None:
    result = pairs(np.tile([100.0, np.nan], (30, 1)))
    target = Target(quantile=0.95, lead_steps=1, horizon_steps=2)
    assert judge(result, target=target, mean=100.0) == "no step after a lead window was observed"


def test_the_outlook_is_judged_step_by_step_after_the_lead_window() -> None:
    """Within the lead window all is right; after it the forecast of 100 misses 110 and 90 by 10 each."""
    actual = np.tile([100.0, 110.0, 90.0], (30, 1))
    verdict = judged(pairs(actual), lead=1)
    assert verdict.wape == pytest.approx(20 / 200)


def test_an_origin_is_bounded_by_the_margins_of_the_other_half() -> None:
    """Forty origins: the first twenty miss by 0, the last twenty by +40. Bounded by the other half, the first twenty
    lie 40 under their bound and lose 0.05 x 40; the last twenty lie 40 over it and lose 0.95 x 40. Judged by their own
    margins they would lose nothing."""
    actual = np.concatenate([np.full((20, 2), 100.0), np.full((20, 2), 140.0)])
    verdict = judged(pairs(actual), lead=1)
    np.testing.assert_allclose(verdict.losses, [0.05 * 40] * 20 + [0.95 * 40] * 20)
