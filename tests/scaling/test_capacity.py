"""Required replicas by hand, and the margins on top."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.pool import Capacity, Margin
from scaling.capacity import add_margins, required_replicas

H100_70B = {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600, "target_utilization": 0.75}


@pytest.mark.parametrize(
    ("combine", "role", "tokens_in", "tokens_out", "required", "binding"),
    [
        # 9,000 / (4,800 x 0.75) = 9,000 / 3,600 = 2.5;  21,300 / (2,600 x 0.75) = 21,300 / 1,950 = 10.923
        pytest.param("max", "unified", 9_000, 21_300, 10.9230769, "tokens_out", id="unified max, decode decides"),
        # 14,400 / 4,800 = 3;  5,200 / 2,600 = 2;  (3 + 2) / 0.75 = 6.667
        pytest.param("sum", "unified", 14_400, 5_200, 6.6666667, "sum", id="unified sum"),
        # 18,000 / 3,600 = 5, whatever comes out
        pytest.param("max", "prefill", 18_000, 99_000, 5.0, "tokens_in", id="prefill pool"),
        # 975 / 1,950 = 0.5, whatever goes in, and a sum has one term
        pytest.param("sum", "decode", 99_000, 975, 0.5, "tokens_out", id="decode pool"),
        # 10,800 / 3,600 = 3 exactly;  3,900 / 1,950 = 2
        pytest.param("max", "unified", 10_800, 3_900, 3.0, "tokens_in", id="exact multiple, prefill decides"),
    ],
)
def test_five_cases_worked_by_hand(*, combine, role, tokens_in, tokens_out, required, binding):
    """A replica of 4,800 tokens in and 2,600 tokens out per second, used to three quarters."""
    capacity = Capacity(**H100_70B, combine=combine)
    got, term = required_replicas(tokens_in_per_s=tokens_in, tokens_out_per_s=tokens_out, capacity=capacity, role=role)
    assert float(got) == pytest.approx(required)
    assert str(term) == binding


def test_arrays_keep_their_shape_and_decide_one_by_one():
    capacity = Capacity(**H100_70B)
    got, term = required_replicas(
        tokens_in_per_s=[[3_600, 0, 7_200]], tokens_out_per_s=[[0, 1_950, 1_950]], capacity=capacity, role="unified"
    )
    assert got.tolist() == [[1.0, 1.0, 2.0]]
    assert term.tolist() == [["tokens_in", "tokens_out", "tokens_in"]]


def test_margins_apply_in_order():
    """10.92 replicas, 10 % more, up to whole ones, one warm: 12.02, 13, 14."""
    after = add_margins(21_300 / 1_950, Margin(minimum=0.1, warm=1))
    assert float(after.minimum) == pytest.approx(12.0154, abs=1e-4)
    assert (int(after.rounded), int(after.warm)) == (13, 14)


@pytest.mark.parametrize(("required", "whole"), [(3.0000000001, 3), (3.0001, 4), (1.1 * 10, 11), (0.0, 0), (1e-4, 1)])
def test_float_noise_does_not_buy_a_replica_and_any_real_excess_does(required, whole):
    assert int(add_margins(required, Margin(minimum=0)).rounded) == whole


def test_absurd_demand_stays_a_large_number_of_replicas():
    """Past the range of integers it must not wrap round to a negative floor."""
    assert (add_margins(np.array([1e200, np.inf]), Margin()).warm > 1e14).all()


@given(
    required=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    minimum=st.floats(0, 5),
    warm=st.integers(0, 50),
)
def test_margins_never_take_away_and_follow_demand(required, more, minimum, warm):
    margin = Margin(minimum=minimum, warm=warm)
    low, high = add_margins(required, margin).warm, add_margins(required + more, margin).warm
    assert required - 1e-3 <= int(low) - warm
    assert low <= high
