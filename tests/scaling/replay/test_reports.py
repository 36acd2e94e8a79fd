"""Baselines, elasticity, fronts, and demand as a replay takes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from floorcast.columns import DEMAND, conform
from floorcast.errors import DataError
from scaling.replay.baselines import last_value, managed, seasonal_naive, static_mean, static_peak
from scaling.replay.elasticity import elasticity
from scaling.replay.front import cost_at, front
from scaling.replay.traffic import from_demand, from_requests

START = datetime(2026, 11, 2, tzinfo=UTC)


def test_static_floors_are_the_peak_and_the_mean():
    required = np.array([1.0, 4.2, 2.0])
    assert static_peak(required).tolist() == [5] * 3
    assert static_mean(required).tolist() == [3] * 3


def test_last_value_asks_for_what_the_window_before_took():
    """10 % more: 2.2, 4.4, 1.1."""
    assert last_value(np.array([2.0, 4.0, 1.0, 9.0]), margin=0.1).tolist() == [0, 3, 5, 2]


def test_seasonal_naive_asks_for_the_most_around_a_season_ago():
    required = np.array([1.0, 5.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    assert seasonal_naive(required, season=4, ahead=1, margin=0.0).tolist() == [0, 0, 0, 0, 5, 5, 3, 3]


def test_managed_floors_are_hourly_from_days_before_and_come_five_minutes_early():
    """Windows of 5 minutes. On the first day 3 replicas from 9 to 10, else 1; the same hours a day later, at once after
    a refresh at 24:00, and from 8:55 on."""
    day = np.ones(288)
    day[9 * 12 : 10 * 12] = 3
    floors = managed(np.concatenate([day, day]), window_s=300, margin=0.0)
    assert (floors[:288] == 0).all()
    second = floors[288:]
    assert second[9 * 12 - 2 : 9 * 12].tolist() == [1, 3]
    assert second[10 * 12 - 1 : 10 * 12 + 1].tolist() == [3, 1]


@pytest.mark.parametrize("later", [40, 300, 600])
def test_no_baseline_sees_what_is_to_come(later):
    rng = np.random.default_rng(1)
    required = rng.uniform(0, 20, 288 * 3)
    changed = required.copy()
    changed[later:] = rng.uniform(0, 20, len(required) - later)
    for floors in (
        lambda r: last_value(r, margin=0.1),
        lambda r: seasonal_naive(r, season=288, ahead=3, margin=0.1),
        lambda r: managed(r, window_s=300, margin=0.1),
    ):
        assert floors(required)[: later + 1].tolist() == floors(changed)[: later + 1].tolist()


def test_elasticity_by_hand():
    """d 2 4 4 0 (which counts as 1), s 2 2 5 1. Under: 2/4 once in four, 12.5 %, a quarter of the time. Over: 1/4 once,
    6.25 %, a quarter. Moves of s: 0 + -; of d: + 0 -: unlike in two of three."""
    found = elasticity(demand=np.array([2.0, 4, 4, 0]), supply=np.array([2.0, 2, 5, 1]))
    assert found.theta_u == pytest.approx(12.5)
    assert found.theta_o == pytest.approx(6.25)
    assert (found.tau_u, found.tau_o) == (25, 25)
    assert found.instability == pytest.approx(200 / 3)


FIGURES = pl.DataFrame(
    {
        "policy": ["a", "a", "a", "b", "b"],
        "lane": ["a1", "a2", "a3", "b1", "b2"],
        "gpu_hours": [10.0, 20.0, 30.0, 15.0, 30.0],
        "on_time_share": [0.90, 0.98, 1.0, 0.97, 0.99],
    }
)


def test_the_front_leaves_out_what_is_dearer_and_no_better():
    """b2 costs what a3 costs and is later."""
    marked = front(FIGURES)
    assert marked.filter("on_front")["lane"].sort().to_list() == ["a1", "a2", "a3", "b1"]
    assert marked["lane"].to_list() == ["a1", "a2", "a3", "b1", "b2"]


def test_cost_at_a_share_is_read_off_each_policys_own_front():
    """a reaches 99 % half of the way from 20 to 30; b at 30; none of b reaches 99.5 %."""
    assert cost_at(FIGURES, 0.99)["gpu_hours"].to_list() == pytest.approx([25.0, 30.0])
    assert cost_at(FIGURES, 0.995)["gpu_hours"].to_list() == [pytest.approx(27.5), None]


def test_requests_fall_into_the_step_of_their_arrival():
    traffic = from_requests(
        [0.0, 9.9, 10.0, 35.0, -1.0],
        [1, 2, 3, 9, 9],
        [5, 5, 5, 9, 9],
        start=START,
        steps=3,
        step_s=10.0,
        max_wait_s=10.0,
    )
    (stream,) = traffic.streams
    assert stream.tokens_in.tolist() == [3, 3, 0]
    assert stream.tokens_out.tolist() == [10, 5, 0]
    assert stream.requests.tolist() == [2, 1, 0]


def demand(rows):
    """(workload_class, step, tokens_in, peak tokens in per s, observed_fraction)"""
    return conform(
        pl.DataFrame(
            [
                {
                    "workload_class": name,
                    "step_start": START + step * timedelta(minutes=5),
                    "tokens_in": tokens,
                    "tokens_out": tokens / 2,
                    "requests": None,
                    "peak_tokens_in_per_s": peak,
                    "peak_tokens_out_per_s": None,
                    "observed_fraction": observed,
                    "source": "test",
                }
                for name, step, tokens, peak, observed in rows
            ],
            schema_overrides={"requests": pl.Float64, "peak_tokens_out_per_s": pl.Float64},
        ),
        DEMAND,
    )


def stream_of(frame, classes=("chat",), steps=3, **given):
    return from_demand(
        frame,
        classes=classes,
        start=START,
        end=START + steps * timedelta(minutes=5),
        step=timedelta(minutes=5),
        seed=0,
        name="main",
        step_s=10.0,
        max_wait_s=10.0,
        **given,
    )


def test_stored_steps_keep_their_tokens_and_their_busiest_minute():
    """3,000 tokens within five minutes of which one had 20 a second, 1,200: the other four share 1,800."""
    stream = stream_of(demand([("chat", step, 3000.0, 20.0, 1.0) for step in range(3)]))
    assert stream.tokens_in.sum() == pytest.approx(9000)
    minutes = stream.tokens_in.reshape(3, 5, 6).sum(axis=2)
    assert np.sort(minutes, axis=1).tolist() == [[450, 450, 450, 450, 1200]] * 3
    assert stream.tokens_out.reshape(-1, 6).sum(axis=1).tolist() == pytest.approx([300] * 15)
    assert stream.requests.sum() == pytest.approx(9000 * 1.5 / 1000)


def test_what_was_not_observed_is_bridged_and_what_was_in_part_counts_at_its_rate():
    stream = stream_of(demand([("chat", 0, 1000.0, 0.0, 1.0), ("chat", 2, 1500.0, 0.0, 0.5)]))
    assert stream.tokens_in.reshape(3, 30).sum(axis=1).tolist() == pytest.approx([1000, 2000, 3000])


def test_classes_of_a_pool_add_up():
    rows = [("chat", step, 1000.0, 0.0, 1.0) for step in range(3)] + [("agent", 1, 500.0, 0.0, 1.0)]
    stream = stream_of(demand(rows), classes=("chat", "agent"))
    assert stream.tokens_in.sum() == pytest.approx(3000 + 3 * 500)


def test_a_class_without_demand_is_told():
    with pytest.raises(DataError, match="class agent"):
        stream_of(demand([("chat", 0, 1.0, 0.0, 1.0)]), classes=("agent",))
