"""Publications one after another from the same forecasts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, empty
from scaling.floors import plan

STEP = timedelta(minutes=5)
NO_HISTORY = empty(DEMAND)
SHAPE = {"step_down": 0.1, "every": "10m", "dwell": "15m", "hysteresis": 0.05}


@pytest.fixture(scope="session")
def publications(make_config, make_forecasts, make_schedule, now):
    """The floors of the horizon in each of `count` publications, a step apart, of one and the same demand."""

    def published(rates, *, count, shape, before=None, age=timedelta()):
        config = make_config(shape=shape, bounds={"min": 1, "max": 1000})
        schedule, made = before and make_schedule(before, start=now - STEP), []
        for at in (now + k * STEP for k in range(count)):
            forecasts = make_forecasts({"chat": rates}, start=now, cutoff=at - age)
            floors = plan(config, now=at, forecasts=forecasts, history=NO_HISTORY, published=schedule).floors
            made.append(floors["min_replicas"].to_list())
            schedule = make_schedule(made[-1], start=at)
        return made

    return published


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rates=st.lists(st.integers(0, 900).map(float), min_size=24, max_size=24),
    before=st.none() | st.lists(st.integers(0, 100), min_size=13, max_size=13),
    shape=st.fixed_dictionaries(
        {
            "step_down": st.integers(1, 20) | st.sampled_from([0.1, 0.5]),
            "every": st.sampled_from(["5m", "10m", "17m"]),
            "dwell": st.sampled_from(["0s", "15m", "22m"]),
            "hysteresis": st.sampled_from([0, 0.05, 0.5]),
        }
    ),
    age=st.sampled_from([timedelta(0), timedelta(hours=2)]),
)
def test_planned_again_from_the_same_forecasts_a_floor_stays_what_was_published(
    publications, rates, before, shape, age
):
    """Whatever was published before the first of them, and be the forecasts fresh or old."""
    first, *later = publications(rates, count=4, shape=shape, before=before, age=age)
    for k, floors in enumerate(later, start=1):
        assert floors[: len(first) - k] == first[k:]


def test_a_floor_follows_a_slow_descent_through_many_publications(publications):
    """Demand falls by 1.4 replicas a step, from 100. A dwell of three steps lags 3 x 1.4 behind, hysteresis adds 5 % at
    most, and a step-down of 10 % in ten minutes is faster than that."""
    rates = [1000 - 14.0 * step for step in range(60)]
    due = [floors[0] for floors in publications(rates, count=45, shape=SHAPE)]
    assert all(floor <= 1.05 * rate / 10 + 3 * 1.4 + 1 for floor, rate in zip(due, rates, strict=False))
