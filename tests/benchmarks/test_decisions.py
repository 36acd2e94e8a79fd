"""The decisions benchmark on made traffic, small enough to check by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.decisions.__main__ import summarise, summary_of
from benchmarks.decisions.data import (
    MEAN_REPLICAS,
    Minutes,
    demo_minutes,
    is_on_off,
    load_of,
    pool_of,
    read_minutes,
    read_trace,
)
from benchmarks.decisions.judge import with_pick
from benchmarks.decisions.policies import Lane, Variant, late, live_rate, others_floors, run, task_of
from benchmarks.decisions.table import render
from benchmarks.decisions.tuned import Tuned, gate
from benchmarks.forecast.data import Pair
from scaling.tuning.outcomes import Outcome

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


def test_the_outage_of_the_demo_fleet_is_bridged() -> None:
    """Fifty minutes of zeros on a workday's afternoon of all classes, within the last days."""
    made = demo_minutes(days=5)
    assert {one.name for one in made} >= {"demo/chat", "demo/batch"}
    assert all(len(one.tokens_in) == 5 * DAY for one in made)
    assert (np.sum([one.tokens_in for one in made], axis=0) > 0).all()


def test_single_requests_are_kept_by_the_second(tmp_path: Path) -> None:
    """Two requests in the first second, one at 61.5 s; the third minute is not whole and left out. At 20 replicas on
    average, half of them prefill, the prompts of 100, 200 and 300 tokens in two minutes take 10 replicas."""
    path = tmp_path / "hour.csv"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,100,10"]
    lines += [
        "2023-11-16 18:17:04.0319600,200,20",
        "2023-11-16 18:18:05.4800000,300,30",
        "2023-11-16 18:19:04.5,400,40",
    ]
    path.write_text("\r\n".join(lines), encoding="utf-8")
    made = read_trace(path)
    np.testing.assert_array_equal(made.requests, [2, 1])
    np.testing.assert_array_equal(made.tokens_in, [300, 300])
    task = task_of(made, pool_of(made, startup_s=60), start=START, max_wait_s=10)
    second = task.traffic(1, 2)
    assert second.steps == 60
    assert second.streams[0].tokens_out[[0, 1]].tolist() == [0, 30]
    # No day before: nothing is expected.
    assert np.isnan(task.expected[0.9]).all()


def test_a_recording_that_ends_within_a_window_has_floors_of_others() -> None:
    made = Minutes("made", *np.full((3, 25), 10.0))
    task = task_of(made, pool_of(made, startup_s=600), start=START, max_wait_s=10)
    assert others_floors(task, utilization=1.0, margin=0.0)["last_value"][10:25].tolist() == [MEAN_REPLICAS] * 15


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


def test_live_rates_are_of_the_minutes_before(steady) -> None:
    noon = DAY // 2
    low, high = steady.load[0], steady.load[noon]
    live = live_rate(steady.load, 3)
    assert live[noon : noon + 4] == pytest.approx([low, (2 * low + high) / 3, (low + 2 * high) / 3, high])
    assert np.isnan(live[0])


def test_metrics_tell_of_a_rate_as_late_as_they_are_old() -> None:
    told = late(np.array([0.0, 8.0, 8.0, 16.0]), 0.625)
    np.testing.assert_allclose(told, [np.nan, 3.0, 8.0, 11.0])


def test_what_is_expected_sees_only_the_past(steady) -> None:
    changed = task_of(steady.minutes, steady.pool, start=START, max_wait_s=10)
    changed.load[DAY + 100 :] = 1.0
    known, told = slice(None, DAY + 101), slice(DAY, None)
    before, after = steady.expected[0.9], changed.expected[0.9]
    np.testing.assert_array_equal(before[known], after[known])
    assert (before[told] != after[told]).any()


def test_floors_of_others_see_only_the_past(steady) -> None:
    changed = task_of(steady.minutes, steady.pool, start=START, max_wait_s=10)
    changed.load[DAY + 100 :] = 1.0
    for name, floors in others_floors(steady, utilization=0.8, margin=0.1).items():
        other = others_floors(changed, utilization=0.8, margin=0.1)[name]
        np.testing.assert_array_equal(floors[: DAY + 100], other[: DAY + 100], err_msg=name)


def test_the_forecast_starts_replicas_before_noon_and_target_tracking_after(steady) -> None:
    lanes = [Lane("any", variant, 0.9) for variant in (Variant(600.0), Variant(600.0, level=0.9))]
    result = run(steady, lanes, first=DAY, last=2 * DAY)
    ready = result.paths().filter(pl.col("time") == pl.lit(START) + pl.duration(minutes=DAY + DAY // 2))["ready"]
    reactive, ahead = ready.to_list()
    assert reactive < steady.load.max() <= ahead
    late = 1 - result.figures["on_time_share"]
    assert late[1] == pytest.approx(0, abs=1e-6)
    assert late[0] > 0.005


def tuned(hours: list[list[float]], on_time: list[list[float]], *, level: float = 0.0) -> Tuned:
    """Settings by days; 100 tokens come each day."""
    outcomes = tuple(
        Outcome(np.array(cost), np.array(kept), np.full(len(cost), 100.0))
        for cost, kept in zip(hours, on_time, strict=True)
    )
    return Tuned(Variant(600.0, level=level), np.linspace(1, 0.5, len(hours)), outcomes)


def opened(forecast: Tuned, overlay: Tuned) -> bool:
    return gate(forecast, overlay, np.random.default_rng(0)).opened


def test_the_gate_opens_where_the_forecast_is_cheaper_on_any_days() -> None:
    overlay = tuned([[10.0] * 6], [[100.0] * 6])
    assert opened(tuned([[9.0] * 6], [[100.0] * 6]), overlay)
    assert not opened(tuned([[9.9] * 6], [[100.0] * 6]), overlay)


def test_the_gate_stays_closed_where_one_day_makes_the_difference() -> None:
    overlay = tuned([[10.0] * 6], [[100.0] * 6])
    # 53.5 for 60: cheaper by a tenth, of a day that a third of all draws of six do not have: (5/6)^6 = 0.33. Those cost
    # 1.03; at 1.01 no more than a gain of a tenth may.
    assert not opened(tuned([[2.0] + [10.3] * 5], [[100.0] * 6]), overlay)
    assert opened(tuned([[2.0] + [10.1] * 5], [[100.0] * 6]), overlay)


def test_the_gate_opens_where_only_the_forecast_keeps_the_promise() -> None:
    late, kept = tuned([[10.0] * 6], [[98.0] * 6]), tuned([[30.0] * 6], [[100.0] * 6])
    assert opened(kept, late)
    assert not opened(late, kept)
    assert not opened(late, late)


def test_the_utilization_is_the_highest_that_kept_the_promise() -> None:
    assert tuned([[8.0], [9.0], [10.0]], [[98.0], [99.5], [100.0]]).utilization == 0.75


def test_floorcast_is_to_the_row_what_the_gate_picked() -> None:
    rows = pl.DataFrame({"policy": ["overlay", "overlay", "forecast"], "gpu_hours": [3.0, 2.0, 1.0]})
    added = with_pick(rows, "overlay")[rows.height :]
    assert added["policy"].to_list() == ["floorcast", "floorcast"]
    assert added.drop("policy").equals(rows[:2].drop("policy"))


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


def row(name: str, *, group: str = "traces", startup_s: float = 600.0, gap: float | None = 0.5) -> dict[str, object]:
    costs = dict.fromkeys(("overlay", "forecast", "floorcast", "last_value", "seasonal_naive", "managed"))
    ratio = None if gap is None else 1 - gap / 2
    told = {"class": name, "gate": "open", "gate_ratio": 0.9, "gap_closed": gap, "cost_ratio": ratio}
    return costs | told | {"group": group, "startup_s": startup_s}


def test_figures_of_further_startups_and_groups_are_told_apart() -> None:
    rows = [row("a"), row("a", group="demo", gap=0.1), row("a", startup_s=1200.0, gap=0.7)]
    found = summary_of(rows)
    assert found["gap_closed_mean"] == 0.5
    assert found["demo_startup_600_gap_closed_mean"] == 0.1
    assert found["startup_1200_gap_closed_mean"] == 0.7


def test_the_page_has_a_table_for_each_startup_and_a_dash_where_nothing_keeps_the_promise() -> None:
    page = render([row("a"), row("b", gap=None), row("a", startup_s=1200.0, gap=0.7)])
    assert "--startup 600 --startup 1200 --json" in page
    assert "## Startup 10 minutes: traces" in page
    assert "| b | open | 0.900 | - | - | - | - | - | - | - | - |" in page
    assert "| mean of 1, worst ratio |  |  |  |  |  |  |  |  | **0.500** | **0.750** |" in page
    assert "## Startup 20 minutes: traces" in page


def test_a_class_with_idle_windows_is_on_and_off() -> None:
    on = np.where(np.arange(DAY) % 100 < 80, 5.0, 0.0)
    assert is_on_off(Minutes("made", on, on, on))
    assert not is_on_off(Minutes("made", on + 1, on + 1, on + 1))


def test_floors_of_work_that_may_wait_are_levelled_over_the_wait(steady) -> None:
    waiting = task_of(steady.minutes, steady.pool, start=START, max_wait_s=900)
    at_once, levelled = steady.expected[0.9][:, 0], waiting.expected[0.9][:, 0]
    noon = DAY + DAY // 2
    # 14 minutes, one less than the wait: each is the mean of those up to it.
    assert levelled[noon] == pytest.approx(at_once[noon - 13 : noon + 1].mean())
    assert np.nanmax(levelled) <= np.nanmax(at_once) + 1e-9
