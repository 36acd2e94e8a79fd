"""Growth until a replica asked for now would serve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from floorcast.overlay import Lookahead
from scaling.overlay.growth import forecast_growth, growth

HOUR = 3600.0


def seen(*, quantile=0.5, days=2, around="0s", recent="3h", weight=0.0):
    return Lookahead.model_validate(
        {"quantile": quantile, "days": days, "around": around, "recent": recent, "recent_weight": weight}
    )


def test_the_same_time_on_the_days_before_by_hand():
    """Hourly. At 8:00 the rate was 100 on the first day and 200 on the second; within the two hours after, at most 150
    and 500: growth 1.5 and 2.5. The median, as the smaller of two, is 1.5; the 90th percentile 2.5."""
    rates = np.full(57, 100.0)
    rates[[8, 9, 10]] = 100, 120, 150
    rates[[32, 33, 34]] = 200, 500, 300
    at = [56]
    common = {"at": at, "step_s": HOUR, "ahead_s": 2 * HOUR}
    assert growth(rates, **common, lookahead=seen()).tolist() == pytest.approx([1.5])
    assert growth(rates, **common, lookahead=seen(quantile=0.9)).tolist() == pytest.approx([2.5])


def test_the_last_hours_are_blended_in_on_a_log_scale():
    """At the same time yesterday growth 1; in the hours before, 4 throughout: half and half is 4 ** 0.5 = 2."""
    rates = np.concatenate([np.ones(40), 4.0 ** np.arange(9)])
    common = {"at": [48], "step_s": HOUR, "ahead_s": HOUR}
    assert growth(rates, **common, lookahead=seen(days=1, weight=1)).tolist() == pytest.approx([4])
    assert growth(rates, **common, lookahead=seen(days=1, weight=0.5)).tolist() == pytest.approx([2])
    assert growth(rates, **common, lookahead=seen(days=1, weight=0)).tolist() == pytest.approx([1])


def test_one_alone_where_the_other_has_nothing_and_none_where_neither_has():
    rates = 2.0 ** np.arange(10)
    common = {"step_s": HOUR, "ahead_s": HOUR}
    assert growth(rates, at=[9], **common, lookahead=seen(weight=0.5)).tolist() == pytest.approx([2])
    assert np.isnan(growth(rates, at=[0], **common, lookahead=seen())).all()
    assert np.isnan(growth(np.zeros(100), at=[99], **common, lookahead=seen())).all()


def test_growth_out_of_next_to_nothing_is_bounded():
    """From 1 to 1,000 where the mean up to there is 991.8: 5 % of it, 49.6, stands for the 1."""
    rates = np.full(120, 1_000.0)
    rates[119 - 24] = 1.0
    mean = (95 * 1_000 + 1) / 96
    found = growth(rates, at=[119], step_s=HOUR, ahead_s=HOUR, lookahead=seen(days=1))
    assert found.tolist() == pytest.approx([1_000 / (0.05 * mean)])


def test_steps_not_observed_say_nothing():
    rates = np.full(57, 100.0)
    rates[[8, 9]] = 100, 300
    rates[33] = np.nan
    found = growth(rates, at=[56], step_s=HOUR, ahead_s=2 * HOUR, lookahead=seen(quantile=0.01))
    assert found.tolist() == pytest.approx([3.0])


def scalar(rates, position, *, ahead, day, around, days, recent, quantile, weight):
    """The same in loops."""

    def ratio(step):
        if step < 0 or step + ahead > position:
            return None
        window = rates[step : step + ahead + 1]
        if any(math.isnan(value) for value in window):
            return None
        past = [value for value in rates[: step + 1] if not math.isnan(value)]
        base = max(window[0], 0.05 * sum(past) / len(past))
        return max(*window, base) / base if base > 0 else None

    def pick(steps):
        known = sorted(found for step in steps if (found := ratio(step)) is not None)
        return known[max(math.ceil(quantile * len(known) - 1e-9) - 1, 0)] if known else None

    by_day = pick([position - day * d + j for d in range(1, days + 1) for j in range(-around, around + 1)])
    by_hour = pick([position - ahead - i for i in range(recent)])
    if by_day is None or by_hour is None:
        return by_day or by_hour or math.nan
    return by_day ** (1 - weight) * by_hour**weight


@profile(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), ahead=st.integers(1, 5), quantile=st.sampled_from([0.1, 0.5, 0.8, 0.95]))
def test_as_in_loops(seed, ahead, quantile):
    rng = np.random.default_rng(seed)
    rates = np.where(rng.random(100) < 0.1, np.nan, rng.gamma(2, 100, 100) * (rng.random(100) < 0.9))
    look = seen(quantile=quantile, days=3, around="2h", recent="6h", weight=0.4)
    found = growth(rates, at=np.arange(100), step_s=HOUR, ahead_s=ahead * HOUR, lookahead=look)
    expected = [
        scalar(rates, t, ahead=ahead, day=24, around=2, days=3, recent=6, quantile=quantile, weight=0.4)
        for t in range(100)
    ]
    np.testing.assert_allclose(found, expected)


@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, 399))
def test_nothing_after_a_position_is_looked_at(seed, cut):
    """Another future gives the same growth up to now, even where days and the time around them overlap the lead."""
    rng = np.random.default_rng(seed)
    rates, other = rng.gamma(2, 100, 400), rng.gamma(2, 5_000, 400)
    changed = np.concatenate([rates[:cut], other[cut:]])
    common = {"at": np.arange(cut), "step_s": HOUR, "ahead_s": 5 * HOUR, "lookahead": seen(around="23h", weight=0.5)}
    np.testing.assert_array_equal(growth(rates, **common), growth(changed, **common))


def test_a_forecast_lends_its_shape_and_not_its_level():
    """60 now, 90 at most ahead: 1.5. Demand that falls is never less than the live rate."""
    found = forecast_growth(now=[60.0, 60.0, 0.0, np.nan], ahead=[[70, 90, 80], [50, 40, 30], [10, 20, 30], [1, 2, 3]])
    assert found[:2].tolist() == [1.5, 1.0]
    assert np.isnan(found[2:]).all()
