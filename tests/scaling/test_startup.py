"""The p90 of observed starts, and what it changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import DEMAND, STARTUPS, conform, empty
from floorcast.replica import StartupMeasure
from floorcast.types import FloorWindow, Reason
from scaling.explain import explain
from scaling.floors import plan
from scaling.startup import measured_startups, quantile

NOW = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
MEASURE = {"source": "prod", "at_least": 20}


def started(seconds, *, at=NOW - timedelta(days=2), pool="main", seen=None, restarts=0):
    """Pods asked for at a time, each ready after so many seconds; None: not yet, seen until `seen`."""
    rows = [
        {"pool": pool, "pod": f"p-{place}-{at:%d%H%M}", "created_at": at, "restarts": restarts}
        | {"ready_at": None if one is None else at + timedelta(seconds=one), "seen_at": seen or at}
        for place, one in enumerate(seconds)
    ]
    return conform(pl.DataFrame(rows, schema=dict(STARTUPS)), STARTUPS)


@pytest.fixture
def measuring(make_config):
    """A configuration with one pool, p90 4m30s as configured, that measures its starts."""

    def make(**measure):
        config = make_config()
        pool = config.pools["main"]
        startup = pool.startup.model_copy(update={"measure": StartupMeasure(**MEASURE | measure)})
        return config.model_copy(update={"pools": {"main": pool.model_copy(update={"startup": startup})}})

    return make


@pytest.fixture
def measured(measuring):
    """`measured(startups, now)`: the pool's startup."""
    return lambda startups, *, now=NOW, **measure: (
        measured_startups(measuring(**measure), startups, now=now).pools["main"].startup
    )


def test_the_p90_is_the_first_time_at_which_nine_in_ten_were_ready_rounded_up(measured):
    # 18 of 20 within 200 s: the 18th is 200 s, up to 210.
    startup = measured(started([100] * 17 + [200, 300, 400]))
    assert startup.p90 == timedelta(seconds=210)
    assert (startup.measured.starts, startup.measured.since) == (20, NOW - timedelta(days=2))


def test_with_too_few_starts_the_configured_p90_stands(measured):
    assert measured(started([100] * 19)).p90 == timedelta(seconds=270)
    assert measured(started([100] * 19)).measured is None
    assert measured(started([100] * 19), at_least=19).p90 == timedelta(seconds=120)


def test_starts_older_than_the_window_and_of_other_pools_do_not_count(measured):
    old = started([500] * 20, at=NOW - timedelta(days=15))
    assert measured(old).measured is None
    assert measured(pl.concat([old, started([100] * 20)])).p90 == timedelta(seconds=120)
    assert measured(started([100] * 20, pool="other")).measured is None


def test_a_pod_that_is_not_ready_yet_counts_as_at_least_its_age(measured):
    # 20 at 100 s, and 5 still starting since 600 s: 20 of 25 are 80 % by 100 s, and no later end is known: 600 s.
    waiting = started([None] * 5, at=NOW - timedelta(seconds=600), seen=NOW)
    assert measured(pl.concat([started([100] * 20), waiting])).p90 == timedelta(seconds=600)
    gone = started([None] * 5, at=NOW - timedelta(hours=3), seen=NOW - timedelta(hours=3) + timedelta(seconds=40))
    assert measured(pl.concat([started([100] * 20), gone])).p90 == timedelta(seconds=120)


def test_a_crash_loop_is_no_start(measured):
    looping = started([None] * 5, at=NOW - timedelta(hours=5), seen=NOW, restarts=40)
    assert measured(pl.concat([started([100] * 20), looping])).p90 == timedelta(seconds=120)
    # One that came up after a crash did take that long.
    assert measured(started([100] * 17 + [400] * 3, restarts=1)).p90 == timedelta(seconds=420)


def test_what_comes_after_now_is_not_seen(measured):
    later = started([100] * 20, at=NOW - timedelta(seconds=50))
    assert measured(later).measured is None
    assert measured(pl.concat([started([100] * 20), later])).p90 == timedelta(seconds=120)


def test_it_rises_at_once_and_falls_at_the_next_days_beginning(measured):
    slow = started([400] * 20, at=NOW - timedelta(hours=1))
    assert measured(pl.concat([started([100] * 20), slow])).p90 == timedelta(seconds=420)
    quick = started([100] * 300, at=NOW - timedelta(hours=1))
    both = pl.concat([started([400] * 20), quick])
    assert measured(both).p90 == timedelta(seconds=420)
    assert measured(both, now=NOW + timedelta(hours=16)).p90 == timedelta(seconds=120)


def test_the_lead_stays_within_the_horizon(measuring):
    found = measured_startups(measuring(), started([7200] * 20), now=NOW)
    assert found.lead("main") < found.horizon


def test_a_floor_says_what_its_lead_was_measured_from(measuring, make_forecasts):
    config = measured_startups(measuring(), started([600] * 20), now=NOW)
    made = plan(
        config, now=NOW, forecasts=make_forecasts({"chat": [100.0] * 16}), history=empty(DEMAND), published=None
    )
    row = made.floors.row(0, named=True)
    reason = Reason.model_validate_json(row["reason"])
    assert reason.lead_s == 600 + 300 + 30
    window = FloorWindow(start=NOW, end=NOW + timedelta(minutes=5), min_replicas=row["min_replicas"], reason=reason)
    told = "startup p90 10m (measured from 20 starts since 2026-11-28) + publication 5m + apply 30s = 15m30s"
    assert told in explain(window, pool_name="main", pool=config.pools["main"])


@given(st.lists(st.tuples(st.floats(1, 1e4), st.booleans()), min_size=1, max_size=30))
def test_the_product_limit_estimate_agrees_with_one_worked_step_by_step(starts):
    """At each end the share still starting is multiplied by 1 - ended / at risk."""
    seconds, censored = np.array([s for s, _ in starts]), np.array([c for _, c in starts])
    still, expected = 1.0, float(seconds.max())
    for at in sorted({s for s, c in starts if not c}):
        still *= 1 - np.sum((seconds == at) & ~censored) / np.sum(seconds >= at)
        if still <= 0.1 + 1e-9:
            expected = at
            break
    assert quantile(seconds, censored) == pytest.approx(expected)


@given(st.lists(st.floats(1, 1e4), min_size=20, max_size=40), st.integers(0, 10))
def test_pods_that_are_still_starting_never_lower_it(seconds, waiting):
    known = np.array(seconds)
    more = np.concatenate([known, np.full(waiting, known.max())])
    flags = np.concatenate([np.zeros(len(known), bool), np.ones(waiting, bool)])
    assert quantile(more, flags) >= quantile(known, np.zeros(len(known), bool)) - 1e-9
