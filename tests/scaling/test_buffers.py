"""Buffers one after another, by hand and as properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.pool import Margin
from scaling.buffers import apply_buffers, buffers_of


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
