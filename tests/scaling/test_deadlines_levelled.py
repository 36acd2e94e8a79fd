"""How work that may wait is levelled: beside a linear programme over cohorts, and what must always hold."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

from scaling.deadlines import schedule_deadlines
from scaling.ladder import MISSING, Figures, Grid

STEP = timedelta(minutes=5)

rates = st.integers(0, 90).map(float)


@pytest.fixture(scope="session")
def scheduled(make_config, idle_before, now):
    """`scheduled(case)` gives the figures of a case, medians a tenth lower and all fresh, before and after."""

    def made(case) -> tuple[Figures, Figures]:
        names = sorted(case.demand)
        quantile = np.array([case.demand[name] for name in names], dtype=float)
        known = Figures(
            classes=tuple(names),
            quantile=quantile,
            median=0.9 * quantile,
            rung=np.zeros(quantile.shape, dtype=np.int8),
            label=np.ones(quantile.shape, dtype=np.int32),
            labels=(MISSING, "ets"),
        )
        config = make_config(
            classes=dict.fromkeys(case.demand, "main"),
            waits={name: f"{5 * wait}m" for name, wait in case.waits.items()},
            capacity={
                "prefill_tokens_per_s": 10,
                "decode_tokens_per_s": 5,
                "target_utilization": 0.5,
                "combine": case.combine,
            },
            role=case.role,
        )
        grid, history = Grid(now, STEP, quantile.shape[2]), idle_before(case.demand)
        return known, schedule_deadlines(config, known, grid, history=history, in_force=None)

    return made


@st.composite
def fleets(draw):
    """One or two classes that may wait beside one that may not, in and out drawn apart."""
    steps, both = draw(st.integers(1, 14)), draw(st.booleans())
    waits = {"batch": draw(st.integers(2, 6))} | ({"papers": draw(st.integers(2, 6))} if both else {})
    rows = st.lists(rates, min_size=steps, max_size=steps)
    demand = {name: [draw(rows), draw(rows)] for name in ("chat", *waits)}
    combine, role = draw(st.sampled_from(["max", "sum"])), draw(st.sampled_from(["unified", "decode"]))
    return SimpleNamespace(waits=waits, demand=demand, combine=combine, role=role, steps=steps)


def _required(figures: Figures, case) -> np.ndarray:
    load = figures.quantile.sum(axis=0) / np.array([[10], [5]]) / 0.5
    return load.sum(axis=0) if _one_term(case) else load.max(axis=0)


def _one_term(case) -> bool:
    """A decode pool has a prefill pool beside it, and the replicas of both count."""
    return case.combine == "sum" or case.role == "decode"


def _least_peak(case) -> float:
    """The least peak of required replicas over all ways to do each step's work of each class in time."""
    steps = case.steps
    cohorts = [(n, t, s) for n, w in case.waits.items() for t in range(steps) for s in range(t, min(t + w, steps))]
    weight = np.array([1 / 5, 1 / 2.5])
    terms = [[0, 1]] if _one_term(case) else [[0], [1]]
    chat = np.array(case.demand["chat"]) * weight[:, None]
    limits = np.concatenate([-chat[term].sum(axis=0) for term in terms])
    upper, equal = lil_matrix((len(limits), len(cohorts) + 1)), {}
    upper[:, -1] = -1
    for at, (name, came, done) in enumerate(cohorts):
        work = np.array(case.demand[name])[:, came] * weight
        for place, term in enumerate(terms):
            upper[place * steps + done, at] = work[term].sum()
        equal.setdefault((name, came), []).append(at)
    whole = lil_matrix((len(equal), len(cohorts) + 1))
    for row, places in enumerate(equal.values()):
        whole[row, places] = 1
    cost = np.zeros(len(cohorts) + 1)
    cost[-1] = 1
    found = linprog(
        cost, A_ub=upper.tocsr(), b_ub=limits, A_eq=whole.tocsr(), b_eq=np.ones(len(equal)), bounds=(0, None)
    )
    assert found.success
    return found.fun


few = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(fleets())
def test_every_class_is_served_between_its_arrivals_and_its_deadlines(scheduled, case):
    known, made = scheduled(case)
    for name in case.demand:
        at = known.classes.index(name)
        wait = case.waits.get(name, 1)
        for before, after in ((known.quantile[at], made.quantile[at]), (known.median[at], made.median[at])):
            came, done = before.cumsum(axis=1), after.cumsum(axis=1)
            due = np.concatenate([np.zeros((2, wait - 1)), came], axis=1)[:, : case.steps]
            due[:, -1] = came[:, -1]
            assert (done <= came + 1e-6).all()
            assert (done >= due - 1e-6).all()
            assert done[:, -1] == pytest.approx(came[:, -1])
    assert made.quantile.min() >= -1e-9
    assert (made.median <= made.quantile + 1e-6).all()


@few
@given(fleets())
def test_the_peak_is_that_of_a_linear_programme(scheduled, case):
    """Exact where the load is one term and one class may wait. Two classes are levelled in turn; where the greater of
    two terms decides the mix of work is found by trial: near, for mixes drawn at random from step to step too."""
    _, made = scheduled(case)
    peak, least = _required(made, case).max(), _least_peak(case)
    assert peak >= least - 1e-6
    one_term = _one_term(case)
    if one_term and len(case.waits) == 1:
        assert peak == pytest.approx(least, abs=1e-6)
    else:
        assert peak <= (1.02 if one_term else 1.25) * least + 1e-6


@few
@given(fleets())
def test_tokens_in_and_out_of_a_step_are_done_together(scheduled, case):
    """With as many tokens in as out of every step, as many are done of both."""
    for name in case.demand:
        case.demand[name][1] = case.demand[name][0]
    _, made = scheduled(case)
    assert made.quantile[:, 0] == pytest.approx(made.quantile[:, 1])


def test_a_day_of_two_terms_is_within_a_percent_of_the_linear_programme(scheduled):
    """Interactive work by day that binds on tokens in, and work that may wait an hour and binds on tokens out."""
    rng, hours = np.random.default_rng(5), np.arange(96) / 4
    wave = 1 + np.sin(2 * np.pi * (hours - 9) / 24)
    chat = np.array([60 * wave, 15 * wave]) * rng.lognormal(0, 0.1, 96)
    batch = np.array([[10.0], [12.0]]) * rng.lognormal(0, 1, 96) * rng.lognormal(0, 0.1, (2, 96))
    demand = {"batch": batch.tolist(), "chat": chat.tolist()}
    case = SimpleNamespace(waits={"batch": 12}, demand=demand, combine="max", role="unified", steps=96)
    known, made = scheduled(case)
    least = _least_peak(case)
    assert _required(made, case).max() <= 1.01 * least
    assert least < 0.8 * _required(known, case).max()


def test_the_same_is_planned_twice(scheduled):
    rng = np.random.default_rng(3)
    demand = {name: rng.uniform(0, 90, (2, 40)).tolist() for name in ("batch", "chat", "papers")}
    case = SimpleNamespace(waits={"batch": 4, "papers": 9}, demand=demand, combine="max", role="unified", steps=40)
    first, second = (scheduled(case)[1] for _ in "12")
    assert np.array_equal(first.quantile, second.quantile)
