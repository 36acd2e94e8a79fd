"""Required replicas by hand."""

from __future__ import annotations

import pytest

from floorcast.replica import Capacity
from scaling.capacity import required_replicas

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
