"""Levelling work: by hand, beside a linear programme, and by what no exchange may improve."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from scaling.levelling import level, ramps

few = st.integers(0, 6).map(float)


@st.composite
def cases(draw, terms=(1, 2)):
    """Loads of the others [steps, terms], each term's share of a unit of work [steps, terms], arrived and due."""
    steps, wait, number = draw(st.integers(1, 9)), draw(st.integers(0, 5)), draw(st.sampled_from(terms))
    work = draw(st.lists(few, min_size=steps + wait, max_size=steps + wait))
    others = draw(st.lists(st.lists(few, min_size=number, max_size=number), min_size=steps, max_size=steps))
    first = draw(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9]), min_size=steps, max_size=steps))
    share = [[1.0] if number == 1 else [one, 1 - one] for one in first]
    total = np.concatenate([[0.0], np.cumsum(work)])
    due = [total[j] if j < steps else total[-1] for j in range(steps + 1)]
    return np.array(others), np.array(share), total[wait:], np.array(due)


def _levelled(others, share, arrived, due):
    return level(ramps(others.T, share.T), list(arrived), list(due))


def _load(others, share, worked):
    return (others + share * worked[:, None]).max(axis=1)


def _least_peak(others, share, arrived, due):
    """Work s and peak p: others + share s <= p in each term, and sums of s within arrived and due."""
    steps, terms = others.shape
    rows, limits = [], []
    for step in range(steps):
        for term in range(terms):
            row = np.zeros(steps + 1)
            row[step], row[-1] = share[step, term], -1
            rows.append(row)
            limits.append(-others[step, term])
        upto = np.append((np.arange(steps) <= step).astype(float), 0)
        rows += [upto, -upto]
        limits += [arrived[step + 1], -due[step + 1]]
    bounds = [(0, None)] * steps + [(None, None)]
    found = linprog([0] * steps + [1], A_ub=np.array(rows), b_ub=limits, bounds=bounds)
    assert found.success
    return found.fun


def test_a_peak_of_work_fills_the_valley_before_it_is_due():
    """Others 4, 1, 1, 4; 6 of work arrive in the first step and are due by the end of the third: 0, 3 and 3 of it lift
    these to 4, 4, 4."""
    steps = ramps(np.array([[4.0, 1.0, 1.0, 4.0]]), np.ones((1, 4)))
    assert level(steps, [0, 6, 6, 6, 6], [0, 0, 0, 6, 6]) == pytest.approx([0, 3, 3, 0])
    # With one more, 7 over 4, 1 and 1: all three to 13 / 3.
    assert level(steps, [0, 7, 7, 7, 7], [0, 0, 0, 7, 7]) == pytest.approx([1 / 3, 10 / 3, 10 / 3, 0])


def test_work_is_never_done_before_it_arrives_nor_after_it_is_due():
    """Nothing else to do. 2 arrive and are due at once, then nothing, then 4 with two steps to go."""
    steps = ramps(np.zeros((1, 4)), np.ones((1, 4)))
    assert level(steps, [0, 2, 2, 6, 6], [0, 2, 2, 2, 6]) == pytest.approx([2, 0, 2, 2])


def test_the_greater_of_two_terms_is_levelled():
    """Half of a unit of work counts in each term. The others load the first term with 3 in the first step, the second
    term with 1 in the second step: 6 of work raise the terms to 3 + x / 2 and 1 + (6 - x) / 2, level at x = 1."""
    steps = ramps(np.array([[3.0, 0.0], [0.0, 1.0]]), np.full((2, 2), 0.5))
    assert level(steps, [0, 6, 6], [0, 0, 6]) == pytest.approx([1, 5])
    # A term that gets nine tenths of the work meets the loaded one: up to 3 there is room for 3 / 0.9 for free.
    (one,) = ramps(np.array([[3.0], [0.0]]), np.array([[0.1], [0.9]]))
    assert one.work(3.5) == pytest.approx(3.5 / 0.9)


@settings(max_examples=120, deadline=None)
@given(cases())
def test_all_is_done_in_time_and_the_peak_is_that_of_a_linear_programme(case):
    others, share, arrived, due = case
    worked = _levelled(*case)
    done = np.cumsum(worked)
    assert (worked >= -1e-9).all()
    assert (done <= arrived[1:] + 1e-9).all()
    assert (done >= due[1:] - 1e-9).all()
    assert done[-1] == pytest.approx(arrived[-1])
    assert _load(others, share, worked).max() == pytest.approx(_least_peak(*case), abs=1e-6)


@settings(max_examples=300, deadline=None)
@given(cases(terms=(1,)))
def test_no_exchange_between_two_steps_makes_the_load_more_level(case):
    """Work may move later while what is due stays done, and earlier once it has arrived: to the lower load."""
    others, share, arrived, due = case
    worked = _levelled(*case)
    load, done = _load(others, share, worked), np.cumsum(worked)
    for early, late in combinations(range(len(worked)), 2):
        between = slice(early, late)
        spare_later = (done[between] - due[early + 1 : late + 1]).min()
        spare_earlier = (arrived[early + 1 : late + 1] - done[between]).min()
        if min(worked[early], spare_later) > 1e-6:
            assert load[early] <= load[late] + 1e-6
        if min(worked[late], spare_earlier) > 1e-6:
            assert load[late] <= load[early] + 1e-6


@given(st.lists(few, min_size=2, max_size=2), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 20))
def test_a_ramp_is_the_work_that_brings_the_load_to_a_level(others, first, at):
    (one,) = ramps(np.array(others)[:, None], np.array([[first], [1 - first]]))
    work = one.work(at)
    load = max(others[0] + first * work, others[1] + (1 - first) * work)
    assert load == pytest.approx(max(at, *others), abs=1e-6)
    assert not math.isnan(work)
