"""Counters into minutes and steps, by hand."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND
from pipelines.sources.prometheus.counters import MINUTES, SAMPLES, intervals, per_minute, seen_until, to_demand

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Points = list[tuple[float, float]]


def series(points: Points, *, counter: int = 1, number: int | None = None, name: str = "chat") -> pl.DataFrame:
    """A series of seconds after START and value."""
    rows = [
        (name, "tokens_in", counter, counter if number is None else number, round((START.timestamp() + t) * 1000), v)
        for t, v in points
    ]
    return pl.DataFrame(rows, schema=dict(SAMPLES), orient="row")


def line(first: float, last: float, *, value: float = 0, per_s: float = 1, every: float = 15) -> Points:
    """Samples of a steady counter from `first` to `last`."""
    return [(first + every * k, value + per_s * every * k) for k in range(int((last - first) // every) + 1)]


def minutes(*frames: pl.DataFrame, last: int = 10, name: str = "chat") -> dict[int, tuple[float, float]]:
    """Count and observed share by minute after START."""
    found = per_minute(
        pl.concat(frames), start=START, end=START + last * MINUTE, scrape_interval=timedelta(seconds=15)
    ).filter(pl.col("workload_class") == name)
    base = round(START.timestamp()) // 60
    return {m - base: (round(c, 6), round(o, 6)) for m, c, o in found.select("minute", "count", "observed").rows()}


def test_increments_fall_into_minutes_in_proportion_to_time() -> None:
    """+100 between 0:50 and 1:05: 66.67 in the first minute, 33.33 in the second."""
    found = minutes(series([(50, 1000), (65, 1100), (70, 1100)]))
    assert found[0] == (pytest.approx(66.666667), pytest.approx(1 / 6, abs=1e-6))
    assert found[1] == (pytest.approx(33.333333), pytest.approx(1 / 6, abs=1e-6))


def test_the_first_sample_of_history_is_only_a_reference() -> None:
    assert minutes(series(line(0, 60, value=1e9))) == {0: (60, 1)}


def test_a_counter_that_stands_still_is_observed_idle() -> None:
    assert minutes(series(line(0, 120, value=7, per_s=0))) == {0: (0, 1), 1: (0, 1)}


def test_no_samples_are_no_minutes() -> None:
    assert minutes(series([])) == {}
    assert minutes(series([(30, 5)])) == {}
    assert per_minute(
        series([]), start=START, end=START + MINUTE, scrape_interval=timedelta(seconds=15)
    ).schema == pl.Schema(MINUTES)


def test_after_a_reset_the_new_value_is_the_increment() -> None:
    """60 tokens by 1:00, then begun anew: 9 by 1:15, 15 more by 1:30."""
    assert minutes(series([*line(0, 60), (75, 9), (90, 24)])) == {0: (60, 1), 1: (24, 0.5)}


def test_a_value_that_falls_by_a_rounding_stands_still() -> None:
    """Kept as a little less than 30.1 the second time; as a count from zero it would be 30.1 more."""
    assert minutes(series([*line(0, 30), (45, 30.1), (60, 30.1 - 2e-14)])) == {0: (30.1, 1)}


def test_a_new_replica_counts_from_zero_in_the_interval_before_it_was_seen() -> None:
    old, new = series(line(0, 240)), series(line(120, 240, value=12), counter=2)
    assert minutes(old, new) == {0: (60, 1), 1: (72, 1), 2: (120, 1), 3: (120, 1)}


def test_a_new_replica_first_seen_late_is_counted_once_in_the_interval_before_it_was_seen() -> None:
    """Begun at 1:30 and unseen until 2:15, when it had counted 45: the 30 of the second minute are told in the third,
    which reads 30 too much, and the sum is the 240 + 150 of both replicas."""
    found = minutes(series(line(0, 240)), series(line(135, 240, value=45), counter=2))
    assert found == {0: (60, 1), 1: (60, 1), 2: (60 + 45 + 45, 1), 3: (120, 1)}
    assert sum(count for count, _ in found.values()) == 240 + 150


def test_a_new_replica_of_an_idle_class_is_vouched_for_by_the_others() -> None:
    other, new = series(line(0, 240), name="code"), series(line(120, 240, value=12), counter=2)
    assert minutes(other, new) == {1: (12, 0.25), 2: (60, 1), 3: (60, 1)}


def test_replicas_first_seen_after_a_silence_may_be_of_any_age() -> None:
    """All scraping stops at 2:00 and goes on at 6:00, a few seconds apart; the counter new by then is a reference."""
    back = [(t, v) for t, v in line(0, 480) if t <= 120 or t >= 360]
    new = series(line(364, 480, value=30), counter=2)
    found = minutes(series(back), new)
    assert found[6] == (60 + 56, 1)
    assert sorted(found) == [0, 1, 6, 7]


def test_an_old_counter_that_comes_into_view_is_only_a_reference() -> None:
    """A billion tokens in 15 s is more than any replica was ever seen to count."""
    seen, hidden = series(line(0, 300)), series(line(120, 300, value=1e9), counter=2)
    assert minutes(seen, hidden) == {0: (60, 1), 1: (60, 1), 2: (120, 1), 3: (120, 1), 4: (120, 1)}


def test_an_old_counter_of_a_quiet_class_is_not_new_to_what_a_busy_one_counts() -> None:
    """150,000 tokens are a minute of the busy class."""
    busy, quiet = series(line(0, 300, per_s=2600)), series(line(120, 300, value=150_000), name="quiet", counter=2)
    assert minutes(busy, quiet, name="quiet") == {2: (60, 1), 3: (60, 1), 4: (60, 1)}


def test_an_old_counter_that_stands_still_counted_nothing() -> None:
    busy, idle = series(line(0, 300, per_s=2600)), series(line(120, 240, value=5000, per_s=0), name="idle", counter=2)
    assert minutes(busy, idle, name="idle") == {2: (0, 1), 3: (0, 1)}


def test_of_a_counter_seen_once_nothing_is_known() -> None:
    busy, once = series(line(0, 300, per_s=2600)), series([(120, 5000)], name="once", counter=2)
    assert minutes(busy, once, name="once") == {}


def test_an_idle_replica_that_begins_anew_counts_from_zero() -> None:
    """It stood at 9000, begins anew at 1:15, serves one request of 30 tokens and is idle again."""
    idle = [*line(0, 60, value=9000, per_s=0), *line(75, 180, value=30, per_s=0)]
    assert minutes(series(line(0, 300), counter=2, name="busy"), series(idle)) == {0: (0, 1), 1: (30, 1), 2: (0, 1)}
    flat = [*line(0, 60, value=9000, per_s=0), *line(75, 180, per_s=0)]
    assert minutes(series(flat)) == {0: (0, 1), 1: (0, 1), 2: (0, 1)}


def test_a_small_step_back_of_a_quiet_class_is_not_a_count_from_zero_beside_a_busy_one() -> None:
    back = [*line(0, 60, value=30_000), (75, 30_059), (90, 30_074), *line(105, 120, value=30_089)]
    assert minutes(series(line(0, 120, per_s=2600), counter=2, name="busy"), series(back)) == {
        0: (60, 1),
        1: (45, 0.75),
    }


def test_a_small_step_back_is_not_a_count_from_zero() -> None:
    """A server that mixes two scrapers' samples may step back by one; that span is unobserved, not a billion."""
    found = minutes(series([*line(0, 60, value=1e9), (75, 1e9 + 59), (90, 1e9 + 74), *line(105, 120, value=1e9 + 89)]))
    assert found == {0: (60, 1), 1: (45, 0.75)}


def test_a_replica_that_ends_counts_nothing_after_its_last_sample() -> None:
    found = minutes(series(line(0, 300)), series(line(0, 120), counter=2))
    assert found == {0: (120, 1), 1: (120, 1), 2: (60, 1), 3: (60, 1), 4: (60, 1)}


def test_a_missed_scrape_is_bridged_and_a_long_silence_is_not() -> None:
    """Four intervals are bridged; five are a gap."""
    assert minutes(series([(0, 0), (60, 60), (75, 75)])) == {0: (60, 1), 1: (15, 0.25)}
    assert minutes(series([*line(0, 60), (135, 999), (150, 1014)])) == {0: (60, 1), 2: (15, 0.25)}


def test_slower_scrapes_than_configured_are_no_gaps() -> None:
    assert minutes(series(line(0, 480, every=120))) == dict.fromkeys(range(8), (60, 1))


@pytest.mark.parametrize("every", [30, 60, 120])
def test_each_replica_has_an_interval_of_its_own(every: float) -> None:
    """One scraped every 15 seconds beside one scraped more slowly, of its own class or of another."""
    fast, slow = series(line(-600, 1080)), series(line(-585, 1095, every=every), counter=2)
    assert minutes(fast, slow) == dict.fromkeys(range(10), (120, 1))
    other = series(line(-585, 1095, every=every), name="slow", counter=2)
    assert minutes(fast, other, name="slow") == minutes(fast, other) == dict.fromkeys(range(10), (60, 1))


def test_a_slow_replica_that_is_new_counts_from_zero_in_an_interval_of_its_own() -> None:
    """First seen at 2:00 having counted 90; most of its class is scraped every 15 seconds."""
    old, new = series(line(-600, 1080)), series(line(120, 1080, value=90, every=90), counter=2)
    assert minutes(old, new)[0] == (60 + 30, 1)
    assert minutes(old, new)[1] == (120, 1)


def test_a_replica_seen_twice_is_taken_to_be_scraped_as_its_class_is() -> None:
    """200 seconds between its samples are a gap where others are scraped every 15 seconds, of a class of 60 none."""
    lone = series([(0, 0), (200, 200)], counter=2)
    assert minutes(series(line(0, 600)), lone)[1] == (60, 0.5)
    assert minutes(series(line(0, 600, every=60)), lone)[1] == (120, 1)
    assert minutes(series(line(0, 600), name="other"), lone) == {}


def test_intervals_are_medians_within_bounds() -> None:
    missed = [point for point in line(0, 600) if point[0] not in (30, 45, 60, 300)]
    numbers = [
        series(missed, counter=1),
        series(line(0, 600, every=5), counter=2),
        series(line(0, 6000, every=1000), counter=3),
        series([(0, 0), (1, 1)], counter=4, name="other"),
    ]
    found = intervals(pl.concat(numbers), scrape_interval=timedelta(seconds=10))
    assert dict(found.rows()) == {1: 15_000, 2: 10_000, 3: 300_000, 4: 10_000}


def test_seen_until_is_the_end_of_the_replica_scraped_longest_ago_of_those_that_are() -> None:
    """One ended a minute ago; the slow one, last scraped 70 seconds ago, will be again."""
    ended, first, last = (
        series(line(0, 240), counter=1),
        series(line(2, 302), counter=2),
        series(line(5, 305), counter=3),
    )
    slow = series(line(-365, 235, every=120), counter=4)
    fifteen = timedelta(seconds=15)
    assert seen_until(pl.concat([ended, first, last]), scrape_interval=fifteen) == (START.timestamp() + 302) * 1000
    assert seen_until(pl.concat([ended, slow, last]), scrape_interval=fifteen) == (START.timestamp() + 235) * 1000
    assert seen_until(series([]), scrape_interval=fifteen) is None


def test_a_replica_out_of_sight_lowers_the_observed_share() -> None:
    """Two replicas, one unseen from 1:00 to 5:00: half of the traffic is known."""
    lost = [(t, v) for t, v in line(0, 480) if t <= 60 or t >= 300]
    found = minutes(series(line(0, 480)), series(lost, counter=2))
    assert found[0] == found[5] == (120, 1)
    assert {found[m] for m in (1, 2, 3, 4)} == {(60, 0.5)}


def test_a_rollout_hands_over_within_a_minute() -> None:
    """One replica ends at 1:30, its successor is first seen at 1:45, having counted 10."""
    found = minutes(series(line(0, 90)), series(line(105, 240, value=10), counter=2))
    assert found == {0: (60, 1), 1: (55, 1), 2: (60, 1), 3: (60, 1)}


def test_copies_of_a_counter_count_once() -> None:
    """The second scraper is off by four seconds and slower; its values are never added."""
    one = series(line(0, 300), number=1)
    two = series(line(34, 300, value=34, every=30), number=2)
    assert minutes(one, two) == minutes(one)


def test_where_one_copy_has_a_hole_the_other_fills_it() -> None:
    one = series([(t, v) for t, v in line(0, 480) if t <= 120 or t >= 300], number=1)
    two = series(line(4, 480, value=4), number=2)
    assert minutes(one, two) == dict.fromkeys(range(8), (60, 1))


def test_a_counter_goes_on_under_a_new_name() -> None:
    """The value goes on, or the process began anew: either way no increment is lost or told twice."""
    before = series(line(0, 120), number=1)
    on = series(line(135, 240, value=135), number=2)
    assert minutes(before, on) == dict.fromkeys(range(4), (60, 1))
    anew = series(line(135, 240, value=5), number=2)
    assert minutes(before, anew)[2] == (5 + 45, 1)


STEP = 5 * MINUTE


def steps(found: dict[str, list[tuple[float, float]]]) -> pl.DataFrame:
    """Demand from count and observed by minute of each metric."""
    base = round(START.timestamp()) // 60
    rows = [
        ("chat", metric, base + m, count, observed)
        for metric, values in found.items()
        for m, (count, observed) in enumerate(values)
        if observed
    ]
    return to_demand(pl.DataFrame(rows, schema=dict(MINUTES), orient="row"), step=STEP, source="prod")


def test_steps_sum_minutes_and_keep_the_peak() -> None:
    demand = steps(
        {
            "tokens_in": [(60, 1), (120, 1), (30, 0.5), (0, 0.0), (60, 1)],
            "tokens_out": [(6, 1), (0, 1), (0, 1), (0, 1), (0, 1)],
            "requests": [(1, 1)] * 5,
        }
    )
    assert demand.schema == pl.Schema(DEMAND)
    # All counts are of the 0.7 that tokens in were observed for.
    expected = ("chat", START, 270, 4.2, 3.5, 2, 0.1, 0.7, "prod")
    assert demand.row(0)[:2] == expected[:2]
    assert demand.row(0)[2:-1] == pytest.approx(expected[2:-1])


def test_a_metric_that_was_observed_for_longer_keeps_its_rate() -> None:
    """100 prompt tokens a second, seen whole; 50 generated ones, of which half of the time is seen."""
    demand = steps({"tokens_in": [(6000, 1)] * 5, "tokens_out": [(3000, 1), (3000, 1), (1500, 0.5)]})
    [row] = demand.to_dicts()
    observed_s = 300 * row["observed_fraction"]
    assert row["observed_fraction"] == pytest.approx(0.5)
    assert (row["tokens_in"] / observed_s, row["tokens_out"] / observed_s) == pytest.approx((100, 50))
    assert (row["peak_tokens_in_per_s"], row["peak_tokens_out_per_s"]) == pytest.approx((100, 50))


def test_a_peak_is_not_taken_from_a_sliver_of_a_minute() -> None:
    """One second observed with 30 tokens is no minute of 30 tokens a second; the step's mean is the least."""
    demand = steps({"tokens_in": [(60, 1), (30, 1 / 60)], "tokens_out": [(0, 1), (0, 1)]})
    assert demand["peak_tokens_in_per_s"].item() == pytest.approx(90 / 61)


def test_a_step_needs_tokens_in_and_out_but_not_requests() -> None:
    demand = steps({"tokens_in": [(60, 1)] * 10, "tokens_out": [(6, 1)] * 5})
    assert demand.select("step_start", "requests").rows() == [(START, None)]
    assert steps({"tokens_in": [(60, 1)]}).is_empty()
    assert steps({}).schema == pl.Schema(DEMAND)


@st.composite
def histories(draw: st.DrawFn) -> list[Points]:
    """Replicas scraped from the very start, with resets, jitter and missed scrapes."""
    replicas = []
    for _ in range(draw(st.integers(1, 4))):
        t, value = draw(st.floats(0, 14)), 1000.0
        points = [(t, value)]
        for increment, reset, missed in draw(
            st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.integers(0, 6)), min_size=4, max_size=20)
        ):
            t += 15 * max(missed - 3, 1) + draw(st.floats(-1, 1))
            value = float(increment) if reset and value > increment else value + increment
            points.append((round(t, 3), value))
        replicas.append(points)
    return replicas


def _total(replicas: list[Points]) -> float:
    """The increments, pair by pair."""
    spans = [
        (b[0] - a[0], a[1], b[1], 4 * max(15.0, _interval(points))) for points in replicas for a, b in pairwise(points)
    ]
    near = [span for span in spans if span[0] <= span[3]]
    fastest = max(((after - before) / width for width, before, after, _ in near if after >= before), default=-1.0)
    return sum(
        after - before if after >= before else after
        for _, before, after, limit in near
        if after >= before or after <= fastest * limit
    )


def _interval(points: Points) -> float:
    return statistics.median_low(b[0] - a[0] for a, b in pairwise(points))


@settings(deadline=None)
@given(histories())
def test_minutes_add_up_to_the_increments(replicas: list[Points]) -> None:
    found = minutes(*(series(points, counter=k) for k, points in enumerate(replicas)), last=25)
    assert all(count >= 0 and 0 < observed <= 1 for count, observed in found.values())
    assert sum(count for count, _ in found.values()) == pytest.approx(_total(replicas), abs=1e-3)
