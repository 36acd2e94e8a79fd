"""Buffers one after another, by hand and as properties."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.pool import Margin
from scaling.buffers import Rollout, ZoneLoss, apply_buffers, buffers_of


def _after(required, **margin):
    return [float(after) for after in apply_buffers(required, buffers_of(Margin(**margin)))]


def test_margins_apply_in_order():
    """10.92 replicas, 10 % more, up to whole ones, one warm: 12.02, 13, 14."""
    assert _after(21_300 / 1_950, minimum=0.1, warm=1) == [pytest.approx(12.0154, abs=1e-4), 13, 14]


@pytest.mark.parametrize(("required", "whole"), [(3.0000000001, 3), (3.0001, 4), (1.1 * 10, 11), (0.0, 0), (1e-4, 1)])
def test_float_noise_does_not_buy_a_replica_and_any_real_excess_does(required, whole):
    assert _after(required, minimum=0) == [whole]


def test_absurd_demand_stays_a_large_number_of_replicas():
    """Past the range of integers it must not wrap round to a negative floor."""
    (*_, last) = apply_buffers(np.array([1e200, np.inf]), buffers_of(Margin()))
    assert (last.astype(np.int64) > 1e14).all()


@given(required=st.floats(0, 1e6), more=st.floats(0, 1e6), minimum=st.floats(0, 5), warm=st.integers(0, 50))
def test_margins_never_take_away_and_follow_demand(required, more, minimum, warm):
    margin = {"minimum": minimum, "warm": warm}
    low, high = _after(required, **margin)[-1], _after(required + more, **margin)[-1]
    assert required - 1e-3 <= low - warm
    assert low <= high


def test_the_whole_chain_by_hand():
    """6.1 and 10 % are 6.71, whole 7. Of 3 zones one may go: 7 x 3 / 2 = 10.5, so 11, of which the largest zone has 4
    and 7 are left. A rollout takes a quarter: 11 / 0.75 = 14.67, so 15, of which 11.25 are left. Two warm: 17."""
    after = _after(6.1, minimum=0.1, zones=3, rollout_unavailable=0.25, warm=2)
    assert after == [pytest.approx(6.71), 7, 11, 15, 17]
    names = [buffer.name for buffer in buffers_of(Margin(minimum=0.1, zones=3, rollout_unavailable="25%", warm=2))]
    assert names == ["minimum_margin", "round_up", "zone_loss", "rollout", "warm"]


@given(need=st.integers(0, 2000), zones=st.integers(2, 20))
def test_with_any_zone_lost_the_others_carry_the_need_and_one_replica_less_would_not(need, zones):
    (total,) = apply_buffers(float(need), [ZoneLoss(zones)])
    sizes = [len(range(zone, int(total), zones)) for zone in range(zones)]
    assert sum(sizes) - max(sizes) >= need
    less = [len(range(zone, int(total) - 1, zones)) for zone in range(zones)]
    assert need == 0 or sum(less) - max(less) < need


@given(need=st.integers(0, 2000), away=st.integers(1, 50) | st.floats(0.01, 0.95))
def test_during_a_rollout_the_others_carry_the_need_and_one_replica_less_would_not(need, away):
    (total,) = apply_buffers(float(need), [Rollout(away)])
    left = total - (away if away >= 1 else away * total)
    assert left >= need * (1 - 1e-8)
    assert need == 0 or (total - 1) - (away if away >= 1 else away * (total - 1)) < need


@given(
    required=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    zones=st.integers(1, 9),
    away=st.integers(0, 9) | st.floats(0.01, 0.9),
)
def test_headroom_never_takes_away_and_follows_demand(required, more, zones, away):
    margin = {"minimum": 0.1, "zones": zones, "rollout_unavailable": away}
    low, high = _after(required, **margin), _after(required + more, **margin)
    assert all(after >= before - 1e-3 for before, after in pairwise([required, *low]))
    assert low[-1] <= high[-1]


@pytest.mark.parametrize(
    ("margin", "text"),
    [
        ({"zones": 3}, "zone loss, 1 of 3: 7 x 3 / 2 -> 11"),
        ({"rollout_unavailable": "25%"}, "rollout 25 %: 7 / 0.75 -> 10"),
        ({"rollout_unavailable": 2}, "rollout 2: 9"),
        ({"warm": 1}, "warm 1: 8"),
    ],
)
def test_each_says_how_it_got_there(margin, text):
    buffers = buffers_of(Margin(minimum=0, **margin))
    before, after = (float(each) for each in apply_buffers(6.1, buffers))
    assert buffers[-1].text(before, after) == text
