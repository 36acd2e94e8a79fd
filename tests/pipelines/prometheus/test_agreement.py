"""Token totals from real servers against the truth, fault by fault."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.sources.prometheus import Chunk, import_prometheus

pytestmark = pytest.mark.server

STEP = timedelta(minutes=5)
HOUR = timedelta(hours=1)
METRICS = ("tokens_in", "tokens_out", "requests")

COUNTERS, GAPS = "What counters go through", "What is not there"
FAULTS = {
    "undisturbed": (0.5, 2),
    "two resets": (2, 2.2),
    "churn": (4, 5.2),
    "rename by rollout": (8, 8.5),
    "second scraper": (10, 14),
    "metric renamed by rollout": (28, 28.5),
    "old and new name at once": (30, 32),
    "old counter comes into view": (40, 41),
}


SILENCE, UNSEEN = "all scrapes stop for 20 minutes", "one of seven replicas is not scraped for 12 minutes"
IDLE, ABSENT = "no traffic: counters stand still", "no series match the class"
NUMBERLESS, WEIRD = "values NaN and Inf", "a label with quotes, a backslash, braces and a line end"


@pytest.fixture(scope="session", params=["prometheus", "victoria_metrics"])
def demand(request: pytest.FixtureRequest, world: Any, classes: Any, make_source: Any) -> pl.DataFrame:
    """All that a server holds."""
    source = make_source(request.getfixturevalue(request.param), chunk="6h")
    end = world.end + timedelta(minutes=1)
    chunks = list(import_prometheus(source, classes=classes, step=STEP, start=world.start, end=end))
    return pl.concat([chunk.demand for chunk in chunks])


def _compared(demand: pl.DataFrame, world: Any, name: str, metric: str) -> pl.DataFrame:
    ours = demand.filter(pl.col("workload_class") == name).with_columns(read=metric)
    hours = (pl.col("step_start") - world.start).dt.total_seconds() / 3600
    return ours.join(world.steps(name, metric), on="step_start", how="full", coalesce=True).with_columns(hours=hours)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_step_agrees_with_the_truth(
    demand: pl.DataFrame, world: Any, fault: str, fault_table: Any, request: pytest.FixtureRequest
) -> None:
    low, high = FAULTS[fault]
    worst = 0.0
    for metric in METRICS:
        steps = _compared(demand, world, "chat", metric).filter(pl.col("hours").is_between(low, high, closed="left"))
        error = ((steps["read"] - steps["truth"]) / steps["truth"]).abs()
        assert steps["read"].null_count() == 0
        assert error.max() < 0.01
        assert steps["observed_fraction"].to_list() == [1.0] * steps.height
        worst = max(worst, error.max())
    server = {"prometheus": "Prometheus", "victoria_metrics": "VictoriaMetrics"}[request.node.callspec.params["demand"]]
    fault_table.saw(COUNTERS, f"{fault}, {server}", f"no 5-minute step is off by more than {worst:.2%}", "")


@pytest.mark.parametrize("metric", METRICS)
def test_a_constant_rate_is_read_exactly_through_a_rename_in_place(
    demand: pl.DataFrame, world: Any, metric: str
) -> None:
    steps = _compared(demand, world, "steady", metric)
    # Beside the edges of history and the great gap, nothing is ambiguous.
    whole = steps.filter(pl.col("observed_fraction") == 1)
    assert whole.height == 569
    assert ((whole["read"] - whole["truth"]).abs() < 1e-6).all()
    if metric != "requests":
        assert whole[f"peak_{metric}_per_s"].to_list() == pytest.approx([whole["truth"][0] / 300] * whole.height)


def test_replicas_scraped_at_different_intervals_are_all_read(demand: pl.DataFrame, world: Any) -> None:
    """A constant rate, over scrapes every 15, 60 and 120 seconds with jitter: off only beside the gap and the edges."""
    for metric in METRICS:
        steps = _compared(demand, world, "mixed", metric)
        whole = steps.filter(pl.col("observed_fraction") == 1)
        assert whole.height == 569
        assert ((whole["read"] - whole["truth"]).abs() < 1e-6).all()


def test_two_days_add_up(demand: pl.DataFrame, world: Any) -> None:
    """Over all steps observed whole, through every fault, within a tenth of a percent."""
    for metric in METRICS:
        steps = _compared(demand, world, "chat", metric).filter(pl.col("observed_fraction") == 1)
        assert steps.height > 560
        assert steps["read"].sum() == pytest.approx(steps["truth"].sum(), rel=1e-3)


def test_a_silence_of_all_scrapes_is_missing_and_what_is_left_of_its_edges_scales(
    demand: pl.DataFrame, world: Any, fault_table: Any
) -> None:
    """Samples stop at 34:07:30 and go on at 34:27:30."""
    for name in ("chat", "steady"):
        steps = _compared(demand, world, name, "tokens_in").filter(pl.col("hours").is_between(34, 34.49))
        shares = zip(steps["hours"], steps["observed_fraction"], strict=True)
        fractions = {round((hours - 34) * 60): share for hours, share in shares}
        assert fractions[0] == 1
        assert 0.3 < fractions[5] < 0.7
        assert (fractions[10], fractions[15], fractions[20]) == (None, None, None)
        assert 0.3 < fractions[25] < 0.7
        edges = steps.filter(pl.col("observed_fraction") < 1)
        scaled = edges["read"] / edges["observed_fraction"]
        assert scaled.to_list() == pytest.approx(edges["truth"].to_list(), rel=0.03)
    idle = demand.filter(
        pl.col("workload_class") == "idle", pl.col("step_start") == world.start + timedelta(hours=34.25)
    )
    assert idle.is_empty()
    happens = "no rows; the steps at its edges keep the share that was observed, whose rate is off by less than 3%"
    fault_table.saw(GAPS, SILENCE, happens, "`floorcast check` lists the gap; findings name it")


def test_one_replica_out_of_sight_lowers_the_fraction_not_the_rate(
    demand: pl.DataFrame, world: Any, fault_table: Any
) -> None:
    """From 42:03 to 42:15 one of seven replicas is not scraped."""
    steps = _compared(demand, world, "chat", "tokens_out").filter(pl.col("hours").is_between(42.05, 42.24))
    assert steps["observed_fraction"].to_list() == pytest.approx([6 / 7] * 2, abs=0.01)
    scaled = steps["read"] / steps["observed_fraction"]
    assert scaled.to_list() == pytest.approx(steps["truth"].to_list(), rel=0.05)
    fault_table.saw(GAPS, UNSEEN, "`observed_fraction` falls to 6/7; the rate is off by less than 5%", "")


def test_an_idle_class_is_zero_and_an_absent_one_is_missing(demand: pl.DataFrame, fault_table: Any) -> None:
    idle = demand.filter(pl.col("workload_class") == "idle")
    assert idle.height > 565
    assert idle.select("tokens_in", "tokens_out", "requests").sum().row(0) == (0, 0, 0)
    assert (idle["observed_fraction"] > 0).all()
    assert demand.filter(pl.col("workload_class").is_in(["nan", "absent"])).is_empty()
    fault_table.saw(GAPS, IDLE, "rows of zeros: the one case in which zero is stored", "")
    fault_table.saw(GAPS, ABSENT, "no rows", "`floorcast check` says so, with the labels it asked for")
    fault_table.saw(GAPS, NUMBERLESS, "left out as if not scraped; no rows", "")


def test_a_class_of_any_name_is_data(demand: pl.DataFrame, world: Any, fault_table: Any) -> None:
    """Quotes, a backslash, braces and a line end in the label's value; first seen at hour 44."""
    steps = _compared(demand, world, "weird", "tokens_in").filter(pl.col("read").is_not_null())
    whole = steps.filter(pl.col("observed_fraction") == 1)
    assert whole.height == 46
    assert ((whole["read"] - whole["truth"]).abs() < 1e-6).all()
    fault_table.saw(GAPS, WEIRD, "quoted: read exactly", "")


def test_cut_anywhere_an_import_goes_on_to_the_very_same_steps(
    prometheus: str, world: Any, classes: Any, make_source: Any
) -> None:
    """Any number of chunks, then the rest from where they ended: what one run reads, to the last bit."""
    source = make_source(prometheus, chunk="6h")

    def read(start: datetime) -> Iterator[Chunk]:
        end = world.end + timedelta(minutes=1)
        return import_prometheus(source, classes=classes, step=STEP, start=start, end=end)

    whole = list(read(world.start))
    for taken in (1, 6):
        before = list(islice(read(world.start), taken))
        chunks = [*before, *read(before[-1].end)]
        assert [(c.start, c.end) for c in chunks] == [(c.start, c.end) for c in whole]
        for ours, theirs in zip(chunks, whole, strict=True):
            assert_frame_equal(ours.demand, theirs.demand, check_exact=True)


@pytest.mark.parametrize("chunk", ["37m", "2h"])
def test_the_size_of_chunks_hardly_matters(
    prometheus: str, world: Any, classes: Any, make_source: Any, chunk: str
) -> None:
    """Through resets, churn and a rollout: no increment is lost or told twice at an edge."""
    low, high = world.start + 2 * HOUR, world.start + 9 * HOUR

    def read(size: str) -> pl.DataFrame:
        source = make_source(prometheus, chunk=size)
        chunks = import_prometheus(source, classes=classes, step=STEP, start=low, end=high)
        return pl.concat([one.demand for one in chunks]).sort("workload_class", "step_start")

    ours, whole = read(chunk), read("24h")
    assert ours["tokens_in"].to_list() == pytest.approx(whole["tokens_in"].to_list())
    assert ours["observed_fraction"].to_list() == pytest.approx(whole["observed_fraction"].to_list())


def test_the_page_of_faults_holds_no_others(fault_table: Any) -> None:
    servers = ("Prometheus", "VictoriaMetrics")
    fault_table.holds_only(COUNTERS, [f"{fault}, {server}" for server in servers for fault in FAULTS])
    fault_table.holds_only(GAPS, [SILENCE, UNSEEN, IDLE, ABSENT, NUMBERLESS, WEIRD])
