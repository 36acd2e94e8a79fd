"""The path that knows demand: feasible, cheap, and not free of startups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from floorcast.errors import DataError
from scaling.replay.clairvoyant import clairvoyant
from scaling.replay.lanes import lanes_of
from scaling.replay.replay import replay
from scaling.replay.taut import taut_string

corridors = st.lists(st.integers(0, 6), min_size=2, max_size=25).flatmap(
    lambda work: st.integers(0, 6).map(lambda wait: (work, wait))
)


def curves(work, wait):
    upper = np.concatenate([[0.0], np.cumsum(np.array(work, dtype=float))])
    lower = np.concatenate([np.zeros(wait), upper])[: len(upper)]
    lower[-1] = upper[-1]
    return lower, upper


@settings(max_examples=80, deadline=None)
@given(corridors)
def test_the_taut_string_is_the_smoothest_curve_between_two(corridor):
    """The oracle minimises the sum of the squared slopes as a bounded least-squares problem."""
    lower, upper = curves(*corridor)
    string = taut_string(lower, upper)
    assert (string >= lower - 1e-9).all()
    assert (string <= upper + 1e-9).all()
    slopes = np.diff(np.eye(len(lower)), axis=0)
    fixed = -(slopes[:, 0] * lower[0] + slopes[:, -1] * lower[-1])
    if len(lower) > 2:
        bounds = (lower[1:-1] - 1e-9, upper[1:-1] + 1e-9)
        best = 2 * lsq_linear(slopes[:, 1:-1], fixed, bounds=bounds, tol=1e-12).cost
        assert (np.diff(string) ** 2).sum() <= best + 1e-4


def test_a_wait_of_two_steps_halves_a_peak_of_one():
    """60 arrive in the second step and may wait one step longer: 30 in it and 30 in the next."""
    lower, upper = curves([0, 60, 0, 0], 1)
    assert np.diff(taut_string(lower, upper)).tolist() == pytest.approx([0, 30, 30, 0])


@pytest.fixture(scope="module")
def pay(make_traffic, make_stream, make_pool, make_conditions):
    """Figures and paths of the clairvoyant for such work a step, in a pool where a replica serves 10 a step."""

    def run(work, *, on_time=1.0, max_wait_s=0.0, startup_s=20.0, min_uptime_s=0.0, bounds=None, **conditions):
        pool = make_pool(**({"bounds": bounds} if bounds else {}))
        traffic = make_traffic(make_stream(work, max_wait_s=max_wait_s))
        given = make_conditions(startup_s=np.array([startup_s]), **conditions)
        result = clairvoyant(traffic, pool=pool, conditions=given, on_time=on_time, min_uptime_s=min_uptime_s)
        return result.figures.row(0, named=True), result.run

    return run


def test_replicas_come_just_in_time_and_are_paid_for_while_they_start(pay):
    """One replica all along, a second for 10 steps in the middle: two steps of starting before it, one of draining."""
    row, run = pay([10] * 4 + [20] * 10 + [10] * 4)
    assert run.ready[:, 0].tolist() == [1] * 4 + [2] * 10 + [1] * 4
    assert run.starting[:, 0].tolist() == [0, 0, 1, 1, *[0] * 14]
    assert run.draining[:, 0].tolist() == [0] * 14 + [1, 0, 0, 0]
    assert row["gpu_hours"] == pytest.approx((18 + 10 + 2 + 1) * 10 / 3600 * 2)
    assert row["on_time_share"] == 1


@pytest.mark.parametrize(("gap", "kept"), [(3, True), (4, False)])
def test_a_replica_is_kept_through_a_gap_no_dearer_than_a_new_start(pay, gap, kept):
    """Starting takes 2 steps and draining 1: 3 steps of being ready cost as much."""
    _, run = pay([20] * 5 + [10] * gap + [20] * 5)
    assert (run.ready[5 : 5 + gap, 0] == 2).all() == kept


def test_a_replica_is_up_for_its_minimum_uptime(pay):
    _, run = pay([10] * 4 + [20] + [10] * 10, min_uptime_s=50.0)
    assert run.ready[:, 0].tolist() == [1] * 4 + [2] * 5 + [1] * 6


def test_work_that_may_wait_needs_a_lower_peak(pay):
    """100 in one step need 10 replicas; spread over it and the four steps that it may wait, 2."""
    work = [0] * 5 + [100] + [0] * 10
    assert pay(work)[0]["replicas_max"] >= 10
    assert pay(work, max_wait_s=40.0)[1].ready.max() == 2


def test_lateness_is_spent_on_the_peaks(pay):
    """A burst of 4 % of all tokens: on time it needs ten replicas, and with 5 % late it is left to one or two."""
    work = [9] * 200 + [100] + [9] * 40
    strict, _ = pay(work, max_wait_s=10.0)
    loose, run = pay(work, max_wait_s=10.0, on_time=0.9)
    assert strict["on_time_share"] == 1
    assert loose["on_time_share"] >= 0.9
    assert loose["gpu_hours"] < strict["gpu_hours"]
    assert run.ready.max() < 6


def test_what_no_path_can_serve_on_time_is_told(pay):
    with pytest.raises(DataError, match="can be on time with 3 replicas"):
        pay([90] * 20, bounds={"min": 0, "max": 3})


@settings(max_examples=20, deadline=None)
@given(
    work=st.lists(st.integers(0, 80), min_size=30, max_size=60),
    max_wait_s=st.sampled_from([0.0, 10.0, 25.0, 60.0]),
    startup_s=st.sampled_from([10.0, 60.0, 200.0]),
)
def test_it_keeps_its_promise_and_never_costs_more_than_a_static_peak(
    pay, make_traffic, make_stream, make_pool, make_conditions, work, max_wait_s, startup_s
):
    row, run = pay(work, max_wait_s=max_wait_s, startup_s=startup_s)
    assert row["on_time_share"] == pytest.approx(1.0)
    traffic = make_traffic(make_stream(work, max_wait_s=max_wait_s))
    peak = int(np.ceil(max(work) / 10))
    static = replay(
        traffic,
        lanes_of({"peak": peak}, window_s=10.0),
        pool=make_pool(),
        conditions=make_conditions(),
        initial=np.array([peak]),
    )
    assert row["gpu_hours"] <= static.figures["gpu_hours"][0] + 1e-9
    assert run.ready.sum() * 10 >= np.sum(work) - 10 * max(work) * max_wait_s / 10 - 1e-9
