"""Backfills: of a trace, and of requests that a query reads chunk by chunk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from floorcast.errors import ConfigError, DataError, NotFoundError
from pipelines.project import load_project
from pipelines.stages.ingest import ingest
from pipelines.stages.reading import Interval
from store.connection import open_store
from store.watermarks import read_watermark

HOUR, STEP, DAY = timedelta(hours=1), timedelta(minutes=5), timedelta(days=1)
T0 = datetime(2026, 11, 1, tzinfo=UTC)
NOW = T0 + 2 * DAY + timedelta(minutes=2)


def inside(span):
    return pl.col("step_start").is_between(span.start, span.end, closed="left")


def outside(demand, span):
    return demand.filter(~inside(span))


def doubled(requests, first, last):
    """Chat's prompts twice as long from first to before last."""
    changed = pl.col("time").is_between(first, last, closed="left") & (pl.col("class") == "chat")
    return requests.with_columns(tokens_in=pl.when(changed).then(2 * pl.col("tokens_in")).otherwise("tokens_in"))


def test_a_backfill_replaces_its_interval_and_nothing_else(gateway, requests, stored, marks):
    """Not on the edges of chunks. The whole history has changed; only the interval is read again."""
    ingest(gateway, NOW)
    before = stored(gateway)
    doubled(requests, T0, NOW).write_parquet(gateway.base / "rows.parquet")
    span = Interval(start=T0 + 29 * HOUR + STEP, end=T0 + 40 * HOUR - STEP)
    result = ingest(gateway, NOW, interval=span)
    after = stored(gateway)
    assert outside(after, span).equals(outside(before, span))
    chat, other = (frame.filter(inside(span), workload_class="chat") for frame in (after, before))
    assert (chat["tokens_in"] == 2 * other["tokens_in"]).all()
    assert chat["tokens_out"].equals(other["tokens_out"])
    steps = (span.end - span.start) // STEP
    assert chat.height == result.sources[0].reopened_steps == steps
    assert marks(gateway) == {("chat", span.start + n * STEP) for n in range(steps)}
    assert ingest(gateway, NOW, interval=span).sources[0].reopened_steps == 0
    assert stored(gateway).equals(after)


def test_a_backfill_of_a_trace_also_takes_away_what_the_trace_no_longer_has(project, now, trace, stored):
    ingest(project, now)
    before = stored(project)
    gone = (pl.col("class") == "chat") & (pl.col("time") < now - 24 * HOUR)
    trace.filter(~gone).write_parquet(project.base / "trace.parquet")
    assert ingest(project, now).sources[0].reopened_steps == 0
    assert stored(project).equals(before)
    span = Interval(start=now - 30 * HOUR, end=now - 20 * HOUR)
    assert ingest(project, now, interval=span).sources[0].reopened_steps == 6
    after = stored(project)
    assert outside(after, span).equals(outside(before, span))
    assert after.filter(inside(span))["workload_class"].value_counts().sort("workload_class").rows() == [
        ("agent", 10), ("chat", 4), ("code", 10),
    ]  # fmt: skip


def test_a_backfill_leaves_the_watermark_where_it_is(gateway, stored):
    early, late = NOW - 30 * HOUR, Interval(start=T0, end=T0 + 4 * HOUR)
    ingest(gateway, NOW, interval=late)
    with open_store(gateway.store_path) as store:
        assert read_watermark(store, "gateway") is None
    ingest(gateway, early)
    with open_store(gateway.store_path) as store:
        mark = read_watermark(store, "gateway")
    for span in (late, Interval(start=NOW - 2 * HOUR - timedelta(minutes=2), end=NOW - HOUR - timedelta(minutes=2))):
        ingest(gateway, NOW, interval=span)
        with open_store(gateway.store_path) as store:
            assert read_watermark(store, "gateway") == mark
    ingest(gateway, NOW)
    whole = stored(gateway)
    gateway.store_path.unlink()
    ingest(gateway, NOW)
    assert stored(gateway).equals(whole), "the time between was not skipped"


def test_the_rows_of_a_backfill_are_those_in_its_interval(project, now):
    """Three classes' sums of five minutes."""
    ingest(project, now)
    result = ingest(project, now, interval=Interval(start=now - 3 * HOUR, end=now))
    assert result.summary.startswith("108 rows of 1 source into 9 steps from ")


def test_the_requests_of_a_backfill_are_those_in_its_interval(recorder, requests):
    ingest(recorder, NOW)
    span = Interval(start=T0 + 22 * HOUR, end=T0 + 25 * HOUR)
    rows = requests.filter(pl.col("time").is_between(span.start, span.end, closed="left")).height
    assert ingest(recorder, NOW, interval=span).sources[0].rows == rows < 1000


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (2 * HOUR, 2 * HOUR, "ends before it begins"),
        (3 * HOUR, 2 * HOUR, "ends before it begins"),
        (2 * DAY, 2 * DAY + STEP, "after the last complete step.*\n.*end it at 2026-11-03T00:00:00Z"),
        (2 * HOUR + STEP / 2, 3 * HOUR + STEP / 5, "on steps\n.*from 2026-11-01T02:00:00Z to 2026-11-01T03:05:00Z"),
    ],
    ids=["empty", "reversed", "future", "misaligned"],
)
def test_an_interval_that_cannot_be_is_refused_with_one_that_can(gateway, start, end, said):
    with pytest.raises(ConfigError, match=said):
        ingest(gateway, NOW, interval=Interval(start=T0 + start, end=T0 + end))
    assert not gateway.store_path.exists()


def test_a_source_that_is_not_configured_is_not_found(gateway):
    with pytest.raises(NotFoundError, match="no source gatway") as raised:
        ingest(gateway, NOW, only="gatway")
    assert "gateway" in raised.value.remedy


def test_one_source_read_alone_may_not_take_another_ones_steps(project, now, trace, stored):
    trace.filter(pl.col("class") != "chat").write_parquet(project.base / "trace.parquet")
    trace.filter(pl.col("class") == "chat").write_parquet(project.base / "chat.parquet")
    text = project.file.read_text()
    begin, end = text.index("  - name: history"), text.index("pools:")
    second = text[begin:end].replace("history", "second").replace("trace.parquet", "chat.parquet")
    project = with_source(project, second)
    ingest(project, now)
    trace.write_parquet(project.base / "chat.parquet")
    before = stored(project)
    for interval in (None, Interval(start=now - 9 * HOUR, end=now)):
        with pytest.raises(DataError, match="sources history and second both give class agent"):
            ingest(project, now, only="second", interval=interval)
    assert stored(project).equals(before)


def with_source(project, source):
    text = project.file.read_text()
    project.file.write_text(text.replace("\npools:\n", f"\n{source}pools:\n", 1))
    return load_project(project.file, environment=os.environ)


def wait_for_writes(path, writes, process):
    """Until the database file was written so many times, or the process has ended."""
    seen = path.stat().st_mtime_ns
    while writes and process.poll() is None:
        time.sleep(0.005)
        newest = path.stat().st_mtime_ns
        writes -= newest != seen
        seen = newest


def test_a_backfill_killed_at_any_moment_is_run_again(gateway, requests, stored, marks):
    """Of the source's rows, half of them are new; a killed backfill leaves each step as it was or as it will be."""
    ingest(gateway, NOW)
    before = stored(gateway)
    doubled(requests, T0, NOW).write_parquet(gateway.base / "rows.parquet")
    span = Interval(start=T0 + 5 * HOUR, end=T0 + 47 * HOUR)
    steps = (span.end - span.start) // STEP
    command = [
        Path(sys.executable).with_name("floorcast"), "ingest", "--config", gateway.file, "--now", NOW.isoformat(),
        "--from", span.start.isoformat(), "--to", span.end.isoformat(),
    ]  # fmt: skip
    moments, changed = random.Random(4), []
    for writes in (4, 3, 7):  # two or three for the record of the run, and for each of four chunks
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_writes(gateway.store_path, writes, process)
        time.sleep(moments.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = stored(gateway)
        changed.append((after["tokens_in"] != before["tokens_in"]).sum())
        assert outside(after, span).equals(outside(before, span))
    assert any(0 < number < steps for number in changed), "one was killed midway"
    assert changed == sorted(changed)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("backfill: ")
    assert (stored(gateway)["tokens_in"] != before["tokens_in"]).sum() == steps
    assert marks(gateway) == {("chat", span.start + n * STEP) for n in range(steps)}
