"""Capacities from edges: known servers are found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from floorcast.errors import DataError
from floorcast.replica import Capacity
from scaling.calibration.edge import Edge
from scaling.calibration.fit import fit_edges
from scaling.calibration.loadtest import calibrate
from scaling.calibration.sweep import Targets
from scaling.capacity import required_replicas

TTFT_2S = Targets(99.0, {"ttft": 2.0})


def edge(tokens_in: float, tokens_out: float) -> Edge:
    return Edge(
        tokens_in_per_s=tokens_in,
        tokens_out_per_s=tokens_out,
        requests_per_s=1,
        met_per_s=1,
        missed_per_s=1.1,
        binding="ttft",
        knee_per_s=None,
        knee_strain=None,
        runs=5,
    )


def test_two_mixes_give_both_capacities_of_a_server_that_shares_its_gpu():
    # C_in 8,000 and C_out 2,000: 4,000 in and 1,000 out are 1/2 + 1/2; 7,200 in and 200 out are 0.9 + 0.1.
    found = fit_edges([edge(4000, 1000), edge(7200, 200)], role="unified")
    assert (found.prefill_tokens_per_s, found.decode_tokens_per_s) == pytest.approx((8000, 2000))
    assert (found.combine, found.separated) == ("sum", True)
    assert found.misfit == pytest.approx(0, abs=1e-9)


def test_three_mixes_tell_max_from_sum():
    # Each side on its own: 8,000 in with little out, 2,000 out with little in, and both at once in the middle.
    found = fit_edges([edge(8000, 100), edge(400, 2000), edge(8000, 2000)], role="unified")
    assert (found.prefill_tokens_per_s, found.decode_tokens_per_s, found.combine) == (8000, 2000, "max")
    assert found.misfit == 0
    forced = fit_edges([edge(8000, 100), edge(400, 2000), edge(8000, 2000)], role="unified", combine="sum")
    assert forced.combine == "sum"
    assert forced.misfit > 0.2


def test_one_lucky_sweep_does_not_make_a_capacity_of_max():
    """Nine edges of a server of 8,000 and 2,000 on either side, each up to 5 % off, and one on each side that is 40 %
    too high: the highest edge would promise 11,200 and 2,800, the medians stay within the 5 %."""
    rng = np.random.default_rng(7)
    noise = rng.uniform(0.95, 1.05, 18)
    into = [edge(8000 * off, 2000 * share) for off, share in zip(noise[:9], np.linspace(0.05, 0.7, 9), strict=True)]
    out = [edge(8000 * share, 2000 * off) for off, share in zip(noise[9:], np.linspace(0.05, 0.7, 9), strict=True)]
    found = fit_edges([*into, *out, edge(11_200, 300), edge(500, 2800)], role="unified", combine="max")
    assert 0.95 * 8000 <= found.prefill_tokens_per_s <= 1.05 * 8000
    assert 0.95 * 2000 <= found.decode_tokens_per_s <= 1.05 * 2000
    assert found.misfit == pytest.approx(0.4, abs=0.07), "and the lucky ones are told"


@given(st.floats(100, 10_000), st.floats(10, 5000), st.lists(st.floats(0.05, 0.95), min_size=1, max_size=4))
def test_max_is_found_from_any_edges_of_it(c_in, c_out, shares):
    into = [edge(c_in, share * c_out) for share in shares]
    out = [edge(share * c_in, c_out) for share in shares]
    found = fit_edges([*into, *out], role="unified", combine="max")
    assume(found.separated)
    assert (found.prefill_tokens_per_s, found.decode_tokens_per_s) == pytest.approx((c_in, c_out))


def test_least_squares_lie_between_noisy_edges():
    # Edges of 8,000 and 2,000 by turns 5 % too high and too low.
    noisy = [edge(4000 * 1.05, 1000 * 1.05), edge(7200 * 0.95, 200 * 0.95), edge(800 * 1.05, 1800 * 1.05)]
    found = fit_edges(noisy, role="unified", combine="sum")
    assert found.prefill_tokens_per_s == pytest.approx(8000, rel=0.1)
    assert found.decode_tokens_per_s == pytest.approx(2000, rel=0.1)
    assert 0.01 < found.misfit < 0.1


def test_one_mix_gives_the_lower_bound_of_both_with_max():
    found = fit_edges([edge(4000, 1000)], role="unified", combine="sum")
    assert (found.prefill_tokens_per_s, found.decode_tokens_per_s) == (4000, 1000)
    assert (found.combine, found.separated) == ("max", False)


@pytest.mark.parametrize(("role", "sides"), [("prefill", (4000, None)), ("decode", (None, 200))])
def test_a_pool_of_one_role_has_the_lowest_edge_of_its_side(role, sides):
    found = fit_edges([edge(4000, 1000), edge(7200, 200)], role=role)
    assert (found.prefill_tokens_per_s, found.decode_tokens_per_s) == sides


@given(st.floats(100, 1e5), st.floats(100, 1e5), st.floats(0.05, 0.95), st.floats(0, 5), st.floats(0, 5))
def test_bounds_from_one_mix_never_ask_for_fewer_replicas_than_the_server_needs(c_in, c_out, share, x, y):
    """The true server shares its GPU: R_in / C_in + R_out / C_out. Its edge of one mix stands for it."""
    found = fit_edges([edge(share * c_in, (1 - share) * c_out)], role="unified")
    demand = {"tokens_in_per_s": x * c_in, "tokens_out_per_s": y * c_out}
    bound = Capacity(
        prefill_tokens_per_s=found.prefill_tokens_per_s, decode_tokens_per_s=found.decode_tokens_per_s, combine="max"
    )
    true = Capacity(prefill_tokens_per_s=c_in, decode_tokens_per_s=c_out, combine="sum")
    asked, _ = required_replicas(**demand, capacity=bound, role="unified")
    needed, _ = required_replicas(**demand, capacity=true, role="unified")
    assert asked >= needed * (1 - 1e-9)


@given(st.floats(1000, 1e5), st.floats(100, 1e5), st.lists(st.floats(0.05, 0.95), min_size=2, max_size=5, unique=True))
def test_a_server_that_shares_its_gpu_is_found_from_any_mixes_that_differ(c_in, c_out, shares):
    ratios = sorted((1 - share) / share for share in shares)
    found = fit_edges([edge(share * c_in, (1 - share) * c_out) for share in shares], role="unified", combine="sum")
    if ratios[-1] / ratios[0] >= 1.51:
        assert found.prefill_tokens_per_s == pytest.approx(c_in, rel=1e-6)
        assert found.decode_tokens_per_s == pytest.approx(c_out, rel=1e-6)


def test_a_calibration_says_what_it_rests_on(run):
    done = calibrate([run(2, 0.2), run(6, 0.5), run(10, 8.0)], TTFT_2S, role="unified", combine="sum")
    text = "\n".join(done.notes)
    assert "shows one point of the line" in text
    assert "was not followed" in text
    assert "somewhere between 6 and 10 requests/s" in text
    assert "p99 of" not in text, "2,000 requests are enough"
    assert not done.at_least


def test_a_calibration_names_mixes_without_an_edge_and_those_that_never_miss(run):
    slow = [run(1, 3.0, tokens=(9000, 10)), run(2, 4.0, tokens=(9000, 10))]
    done = calibrate([run(2, 0.2), run(6, 0.5), *slow], TTFT_2S, role="unified")
    text = "\n".join(done.notes)
    assert "mix 9,000 + 10 tokens: its lowest load misses the targets already" in text
    assert "mix 1,000 + 200 tokens: no run misses the targets" in text
    assert done.at_least
    assert [sweep.edge is None for sweep in done.sweeps] == [False, True]


def test_no_run_within_the_targets_is_refused_with_the_best(run):
    with pytest.raises(DataError, match=r"the best, at 2 requests/s, is 1\.5 times over"):
        calibrate([run(6, 9.0), run(2, 3.0)], TTFT_2S, role="unified")
