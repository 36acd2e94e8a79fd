"""Rows that a source no longer has: what is stored of them stays, and is told; a correction is one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.errors import DataError
from pipelines.stages.ingest import ingest
from pipelines.stages.reading import Interval
from store.connection import open_store

HOUR, STEP, DAY = timedelta(hours=1), timedelta(minutes=5), timedelta(days=1)
T0 = datetime(2026, 11, 1, tzinfo=UTC)
NOW = T0 + 2 * DAY + timedelta(minutes=2)
LOST = Interval(start=T0 + 20 * HOUR, end=T0 + 30 * HOUR)


def test_a_source_that_no_longer_holds_the_interval_takes_nothing_away(project, now, trace, stored, marks):
    ingest(project, now)
    before = stored(project)
    trace.filter(pl.col("time") >= now - 48 * HOUR).write_parquet(project.base / "trace.parquet")
    span = Interval(start=now - 100 * HOUR, end=now - 90 * HOUR)
    with pytest.raises(DataError, match=r"source history: holds nothing from .* where 30 steps of it are stored"):
        ingest(project, now, interval=span)
    assert stored(project).equals(before)
    assert marks(project) == set()


@pytest.mark.parametrize(
    ("start", "end"),
    [(22 * HOUR, 25 * HOUR), (25 * HOUR, 25 * HOUR + STEP), (18 * HOUR, 33 * HOUR), (19 * HOUR, 21 * HOUR)],
    ids=["inside", "one step", "around", "across an edge"],
)
def test_lost_rows_with_others_on_either_side_are_not_idle_time(recorder, requests, start, end, stored):
    ingest(recorder, NOW)
    before = stored(recorder)
    requests.filter(~pl.col("time").is_between(LOST.start, LOST.end)).write_parquet(recorder.base / "rows.parquet")
    with pytest.raises(DataError, match=r"source gateway: holds nothing from .* to .* are stored"):
        ingest(recorder, NOW, interval=Interval(start=T0 + start, end=T0 + end))
    lost = stored(recorder, start=LOST.start, end=LOST.end)
    assert lost.equals(before.filter(pl.col("step_start").is_between(LOST.start, LOST.end, closed="left")))
    assert stored(recorder).equals(before)


def test_fewer_rows_and_a_few_silent_steps_are_a_correction(recorder, requests, stored):
    ingest(recorder, NOW)
    agent = (pl.col("class") == "agent") & pl.col("time").is_between(LOST.start, LOST.end)
    brief = pl.col("time").is_between(T0 + 25 * HOUR, T0 + 25 * HOUR + 2 * STEP)
    requests.filter(~agent & ~brief).write_parquet(recorder.base / "rows.parquet")
    ingest(recorder, NOW, interval=LOST)
    found = stored(recorder, start=LOST.start, end=LOST.end).group_by("workload_class").agg(pl.col("tokens_in") > 0)
    assert {name: sum(busy) for name, busy in found.rows()} == {"agent": 0, "chat": 10 * 12 - 2}


def test_zeros_that_are_stored_may_be_read_again(recorder, requests):
    """An outage's, say: nothing is lost."""
    requests.filter(~pl.col("time").is_between(LOST.start, LOST.end)).write_parquet(recorder.base / "rows.parquet")
    ingest(recorder, NOW)
    result = ingest(recorder, NOW, interval=Interval(start=T0 + 22 * HOUR, end=T0 + 25 * HOUR))
    assert (result.sources[0].steps, result.sources[0].reopened_steps) == (72, 0)


def test_a_trace_read_again_without_a_day_keeps_and_tells_it(recorder, requests, stored):
    """So does a query that reads the time again, but it goes on from its watermark."""
    ingest(recorder, NOW)
    before = stored(recorder)
    with open_store(recorder.store_path) as store:
        store.execute("DELETE FROM watermarks")
    requests.filter(~pl.col("time").is_between(LOST.start, LOST.end)).write_parquet(recorder.base / "rows.parquet")
    result = ingest(recorder, NOW)
    assert stored(recorder).equals(before)
    assert result.sources[0].kept_steps == 10 * 12 * 2
    assert "240 stored steps kept that their source no longer has, 1 finding" in result.summary
