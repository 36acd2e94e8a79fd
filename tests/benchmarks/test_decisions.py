"""The decisions benchmark on made traffic, small enough to check by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from benchmarks.decisions.__main__ import summarise
from benchmarks.decisions.data import MEAN_REPLICAS, Minutes, load_of, pool_of, read_minutes
from benchmarks.decisions.policies import Lane, Variant, others_floors, run, task_of
from benchmarks.forecast.data import Pair

START = datetime(2026, 11, 1, tzinfo=UTC)
DAY = 1440


def test_minutes_are_drawn_around_each_windows_rate(pair: Pair) -> None:
    by_name = {one.name: one for one in read_minutes(pair, seed=3)}
    rates = pl.read_parquet(pair.rates).filter(pl.col("client") == 3)["requests_per_s"].to_numpy()
    drawn = by_name["made/client-3"].requests.reshape(-1, 10).mean(axis=1)
    heard = rates > 0
    # Ten minutes of 60 r requests with variance 60 r: the mean is off by sqrt(6 r), within five of these.
    assert (np.abs(drawn - 60 * rates)[heard] < 5 * np.sqrt(6 * rates[heard])).all()
    # The two windows in which every client reads 0 are bridged.
    assert (drawn[~heard] > 0).all()
    np.testing.assert_allclose(by_name["made/client-3"].tokens_in, by_name["made/client-3"].requests * 130)
    parts = sum(one.requests for name, one in by_name.items() if name != "made/all")
    np.testing.assert_allclose(parts, by_name["made/all"].requests)


def test_the_same_seed_draws_the_same(pair: Pair) -> None:
    first, again, other = (read_minutes(pair, seed=seed)[0].requests for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.fixture
def steady():
    """Two days of a load of 20 replicas, and 40 from noon on of both."""
    rate = np.where(np.arange(2 * DAY) % DAY < DAY // 2, 1.0, 2.0) * 600
    minutes = Minutes("made", rate, rate * 100, rate * 10)
    return task_of(minutes, pool_of(minutes, startup_s=600), start=START, max_wait_s=10)


def test_a_class_takes_twenty_replicas_at_its_mean(steady) -> None:
    assert steady.load.mean() == pytest.approx(MEAN_REPLICAS)
    assert load_of(steady.minutes, steady.pool)[0] == pytest.approx(MEAN_REPLICAS / 1.5)


def test_live_rates_are_of_the_three_minutes_before(steady) -> None:
    noon = DAY // 2
    low, high = steady.load[0], steady.load[noon]
    assert steady.live[noon : noon + 4] == pytest.approx([low, (2 * low + high) / 3, (low + 2 * high) / 3, high])
    assert np.isnan(steady.live[0])


def test_floors_of_others_see_only_the_past(steady) -> None:
    changed = task_of(steady.minutes, steady.pool, start=START, max_wait_s=10)
    changed.load[DAY + 100 :] = 1.0
    for name, floors in others_floors(steady, utilization=0.8, margin=0.1).items():
        other = others_floors(changed, utilization=0.8, margin=0.1)[name]
        np.testing.assert_array_equal(floors[: DAY + 100], other[: DAY + 100], err_msg=name)


def test_lookahead_starts_replicas_before_noon_and_target_tracking_after(steady) -> None:
    variants = Variant(600.0), Variant(600.0, lookahead="clock", level=0.9)
    lanes = [Lane("any", variant, 0.9) for variant in variants]
    result = run(steady, lanes, first=DAY, last=2 * DAY)
    ready = result.paths().filter(pl.col("time") == pl.lit(START) + pl.duration(minutes=DAY + DAY // 2))["ready"]
    reactive, ahead = ready.to_list()
    assert reactive < steady.load.max() <= ahead
    late = 1 - result.figures["on_time_share"]
    assert late[1] == pytest.approx(0, abs=1e-6)
    assert late[0] > 0.005


def test_the_summary_counts_feasible_classes_and_open_gates() -> None:
    rows = [
        {"gap_closed": 0.5, "cost_ratio": 0.8, "gate": "open"},
        {"gap_closed": 0.0, "cost_ratio": 1.0, "gate": "closed"},
        {"gap_closed": None, "cost_ratio": None, "gate": "open"},
    ]
    assert summarise(rows) == {
        "gap_closed_mean": 0.25,
        "gap_closed_gate_open": 0.5,
        "worst_cost_ratio": 1.0,
        "classes_feasible": 2.0,
    }
