"""A backtest judged: worked by hand."""

import numpy as np
import pytest

from floorcast.columns import QUANTILE_LEVELS
from forecasting.backtest import Backtest
from forecasting.margins import Margins
from forecasting.verdict import Target, Verdict, judge

AT_95 = QUANTILE_LEVELS.index(0.95)


def judged(result: Backtest, *, lead: int) -> Verdict:
    target = Target(quantile=0.95, lead_steps=lead, horizon_steps=result.path.shape[1])
    verdict = judge(result, target=target, mean=100.0)
    assert isinstance(verdict, Verdict)
    return verdict


def test_an_outlook_of_which_nothing_was_observed_is_not_judged() -> None:
    result = Backtest(actual=np.tile([100.0, np.nan], (30, 1)), path=np.full((30, 2), 100.0))
    target = Target(quantile=0.95, lead_steps=1, horizon_steps=2)
    assert judge(result, target=target, mean=100.0) == "no step after a lead window was observed"


def test_the_outlook_is_judged_step_by_step_after_the_lead_window() -> None:
    """Within the lead window all is right; after it the forecast of 100 misses 110 and 90 by 10 each."""
    actual = np.tile([100.0, 110.0, 90.0], (30, 1))
    verdict = judged(Backtest(actual=actual, path=np.full((30, 3), 100.0)), lead=1)
    assert verdict.wape == pytest.approx(20 / 200)


def test_an_origin_is_bounded_by_the_margins_of_the_other_half() -> None:
    """Twenty origins: the first ten miss by 0, the last ten by +40. Bounded by the other half, the first ten lie 40
    under their bound and lose 0.05 x 40; the last ten lie 40 over it and lose 0.95 x 40. Judged by their own
    margins they would lose nothing."""
    actual = np.concatenate([np.full((20, 2), 100.0), np.full((20, 2), 140.0)])
    verdict = judged(Backtest(actual=actual, path=np.full((40, 2), 100.0)), lead=1)
    np.testing.assert_allclose(verdict.losses, [0.05 * 40] * 20 + [0.95 * 40] * 20)


def test_few_residuals_widen_the_margin_to_the_largest_of_them() -> None:
    """Of nineteen residuals the 95 % margin is the ceil(20 x 0.95) = 19th, of twenty the 20th; without the one
    added it would be the 19th of both."""
    for count, rank in ((19, 19), (20, 20), (39, 38)):
        actual = np.arange(1.0, count + 1)[:, None]
        margins = Margins.from_residuals(actual=actual, path=np.zeros_like(actual), kind="add", base=0, ends=(1,))
        assert margins.offsets[0][AT_95] == rank
