"""Backfills, late data and what they mark: of a trace, and of requests that a query reads chunk by chunk."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from floorcast.errors import ConfigError, DataError, NotFoundError
from pipelines.project import load_project
from pipelines.stages.ingest import ingest
from pipelines.stages.reading import Interval
from store.connection import open_store
from store.demand import read_demand
from store.forecasts import forecasts_on_changed_data
from store.reopened import read_reopened
from store.watermarks import read_watermark

HOUR, STEP, DAY = timedelta(hours=1), timedelta(minutes=5), timedelta(days=1)
T0 = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 2
NOW = T0 + DAYS * DAY + timedelta(minutes=2)

SQL = """\
sources:
  - name: gateway
    kind: sql
    query: SELECT * FROM read_parquet('rows.parquet') WHERE time >= $start AND time < $end
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}
    classes: {chat: chat, agent: agent}
    chunk: 12h
    history: 2d
pools:
  pool:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 5000, decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [pool]}
  agent: {pools: [pool]}
"""


@pytest.fixture(scope="session")
def requests():
    """Two days and two minutes of two classes, a request of each about every half minute."""
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.uniform(0, (NOW - T0).total_seconds() - 1, 12_000))
    return pl.DataFrame(
        {
            "time": [T0 + timedelta(seconds=float(s)) for s in seconds],
            "class": rng.choice(["chat", "agent"], seconds.size),
            "tokens_in": rng.integers(1, 5000, seconds.size),
            "tokens_out": rng.integers(1, 900, seconds.size),
        }
    )


@pytest.fixture
def gateway(tmp_path, requests):
    (tmp_path / "floorcast.yaml").write_text(SQL)
    requests.write_parquet(tmp_path / "rows.parquet")
    return load_project(tmp_path / "floorcast.yaml", environment={})


def stored(project, **span):
    with open_store(project.store_path) as store:
        return read_demand(store, **span)


def outside(demand, span):
    return demand.filter((pl.col("step_start") < span.start) | (pl.col("step_start") >= span.end))


def marks(project):
    with open_store(project.store_path) as store:
        return set(read_reopened(store).select("workload_class", "step_start").rows())


def doubled(requests, first, last):
    """Chat's prompts twice as long from first to before last."""
    inside = pl.col("time").is_between(first, last, closed="left") & (pl.col("class") == "chat")
    return requests.with_columns(tokens_in=pl.when(inside).then(2 * pl.col("tokens_in")).otherwise("tokens_in"))


def test_a_backfill_replaces_its_interval_and_nothing_else(gateway, requests):
    """Not on the edges of chunks. The whole history has changed; only the interval is read again."""
    ingest(gateway, NOW)
    before = stored(gateway)
    doubled(requests, T0, NOW).write_parquet(gateway.base / "rows.parquet")
    span = Interval(start=T0 + 29 * HOUR + STEP, end=T0 + 40 * HOUR - STEP)
    result = ingest(gateway, NOW, interval=span)
    after = stored(gateway)
    assert outside(after, span).equals(outside(before, span))
    chat, other = (frame.filter(~outside_of(span), workload_class="chat") for frame in (after, before))
    assert (chat["tokens_in"] == 2 * other["tokens_in"]).all()
    assert chat["tokens_out"].equals(other["tokens_out"])
    steps = (span.end - span.start) // STEP
    assert chat.height == result.sources[0].reopened_steps == steps
    assert marks(gateway) == {("chat", span.start + n * STEP) for n in range(steps)}
    assert ingest(gateway, NOW, interval=span).sources[0].reopened_steps == 0
    assert stored(gateway).equals(after)


def outside_of(span):
    return (pl.col("step_start") < span.start) | (pl.col("step_start") >= span.end)


def test_a_backfill_of_a_trace_also_takes_away_what_the_trace_no_longer_has(project, now, trace):
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
    assert after.filter(~outside_of(span))["workload_class"].value_counts().sort("workload_class").rows() == [
        ("agent", 10), ("chat", 4), ("code", 10),
    ]  # fmt: skip


def test_a_backfill_leaves_the_watermark_where_it_is(gateway):
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


def test_a_source_that_no_longer_holds_the_interval_takes_nothing_away(project, now, trace):
    ingest(project, now)
    before = stored(project)
    trace.filter(pl.col("time") >= now - 48 * HOUR).write_parquet(project.base / "trace.parquet")
    span = Interval(start=now - 100 * HOUR, end=now - 90 * HOUR)
    with pytest.raises(DataError, match=r"source history: holds nothing from .* where 30 steps of it are stored"):
        ingest(project, now, interval=span)
    assert stored(project).equals(before)
    assert marks(project) == set()


def test_the_rows_of_a_backfill_are_those_in_its_interval(project, now):
    """Three classes' sums of five minutes."""
    ingest(project, now)
    result = ingest(project, now, interval=Interval(start=now - 3 * HOUR, end=now))
    assert result.summary.startswith("108 rows of 1 source into 9 steps from ")


TRACE = """\
sources:
  - name: gateway
    kind: trace
    format: generic
    path: rows.parquet
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}
    classes: {chat: chat, agent: agent}
"""


@pytest.fixture(params=["sql", "trace"])
def recorder(gateway, request):
    """Requests, by a query and as a trace: what has no row between others is idle."""
    if request.param == "trace":
        text = gateway.file.read_text()
        gateway.file.write_text(TRACE + text[text.index("pools:") :])
    return load_project(gateway.file, environment={})


def test_the_requests_of_a_backfill_are_those_in_its_interval(recorder, requests):
    ingest(recorder, NOW)
    span = Interval(start=T0 + 22 * HOUR, end=T0 + 25 * HOUR)
    rows = requests.filter(pl.col("time").is_between(span.start, span.end, closed="left")).height
    assert ingest(recorder, NOW, interval=span).sources[0].rows == rows < 1000


LOST = Interval(start=T0 + 20 * HOUR, end=T0 + 30 * HOUR)


@pytest.mark.parametrize(
    ("start", "end"),
    [(22 * HOUR, 25 * HOUR), (25 * HOUR, 25 * HOUR + STEP), (18 * HOUR, 33 * HOUR), (19 * HOUR, 21 * HOUR)],
    ids=["inside", "one step", "around", "across an edge"],
)
def test_lost_rows_with_others_on_either_side_are_not_idle_time(recorder, requests, start, end):
    ingest(recorder, NOW)
    before = stored(recorder)
    requests.filter(~pl.col("time").is_between(LOST.start, LOST.end)).write_parquet(recorder.base / "rows.parquet")
    with pytest.raises(DataError, match=r"source gateway: holds nothing from .* to .* are stored"):
        ingest(recorder, NOW, interval=Interval(start=T0 + start, end=T0 + end))
    lost = stored(recorder, start=LOST.start, end=LOST.end)
    assert lost.equals(before.filter(pl.col("step_start").is_between(LOST.start, LOST.end, closed="left")))
    assert stored(recorder).equals(before)


def test_fewer_rows_and_a_few_silent_steps_are_a_correction(recorder, requests):
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


def test_a_trace_read_again_without_a_day_keeps_and_tells_it(recorder, requests):
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


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        (2 * HOUR, 2 * HOUR, "ends before it begins"),
        (3 * HOUR, 2 * HOUR, "ends before it begins"),
        (DAYS * DAY, DAYS * DAY + STEP, "after the last complete step.*\n.*end it at 2026-11-03T00:00:00Z"),
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


def test_one_source_read_alone_may_not_take_another_ones_steps(project, now, trace):
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


def test_late_rows_reopen_their_steps_and_are_told(gateway, requests):
    """Those of the last quarter of an hour before the watermark; a gap that is filled counts as changed."""
    late = (pl.col("time") >= NOW - 12 * timedelta(minutes=1)) & (pl.col("class") == "chat")
    requests.filter(~late | (pl.col("time") >= NOW - timedelta(minutes=2))).write_parquet(gateway.base / "rows.parquet")
    ingest(gateway, NOW)
    requests.write_parquet(gateway.base / "rows.parquet")
    result = ingest(gateway, NOW)
    assert result.sources[0].reopened_steps == 2
    assert "2 stored steps changed" in result.summary
    end = T0 + DAYS * DAY
    assert marks(gateway) == {("chat", end - 2 * STEP), ("chat", end - STEP)}
    undisturbed = stored(gateway)
    gateway.store_path.unlink()
    ingest(gateway, NOW)
    assert stored(gateway).equals(undisturbed)


def outdated(project, at, **keys):
    with open_store(project.store_path) as store:
        return forecasts_on_changed_data(store, at=at, look_back=42 * DAY, **keys)


def test_a_forecast_is_marked_until_it_is_made_again(published, live, now, trace):
    """Only that of the class whose steps before the cutoff changed after it was made."""
    assert outdated(published, now).is_empty()
    changed = pl.col("time").is_between(now - 3 * HOUR, now - HOUR, closed="left") & (pl.col("class") == "chat")
    trace.with_columns(
        tokens_in=pl.when(changed).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")
    ).write_parquet(published.base / "trace.parquet")
    result = live(published, now, "ingest")["ingest"].result
    assert result.outdated_forecasts == 2
    assert "2 stored steps changed since 2 newest forecasts" in result.summary
    row = {
        "workload_class": "chat",
        "cutoff": now,
        "steps": 2,
        "first_step": now - 3 * HOUR,
        "last_step": now - 2 * HOUR,
    }
    assert outdated(published, now).drop("metric").unique().to_dicts() == [row]
    live(published, now + HOUR, "ingest", "forecast")
    assert outdated(published, now + HOUR).is_empty(), "the newest was made from what is stored"
    assert set(outdated(published, now + HOUR, since=now - HOUR)["cutoff"]) == {now}, "the one before is still marked"
    live(published, now, "forecast")
    assert outdated(published, now + HOUR, since=now - HOUR).is_empty()


def test_steps_before_what_a_forecast_looks_back_on_do_not_mark_it(published, live, now, trace):
    old = pl.col("time") < now - 200 * HOUR
    trace.with_columns(tokens_in=pl.when(old).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")).write_parquet(
        published.base / "trace.parquet"
    )
    live(published, now, "ingest")
    with open_store(published.store_path) as store:
        assert forecasts_on_changed_data(store, at=now, look_back=200 * HOUR).is_empty()
        assert forecasts_on_changed_data(store, at=now, look_back=202 * HOUR)["steps"].to_list() == [2] * 6


def test_a_forecast_whose_rerun_was_killed_stays_marked(published, live, now, trace):
    """The run has begun anew, after the change; the forecast is still the old one."""
    changed = pl.col("time") == now - HOUR
    trace.with_columns(
        tokens_in=pl.when(changed).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")
    ).write_parquet(published.base / "trace.parquet")
    live(published, now, "ingest")
    with open_store(published.store_path) as store, store.transaction():
        store.execute(
            "UPDATE runs SET status = 'running', started_at = now() + INTERVAL 1 HOUR, finished_at = NULL "
            "WHERE kind = 'forecast'"
        )
    assert outdated(published, now).height == 6


def wait_for_writes(path, writes, process):
    """Until the database file was written so many times, or the process has ended."""
    seen = path.stat().st_mtime_ns
    while writes and process.poll() is None:
        time.sleep(0.005)
        newest = path.stat().st_mtime_ns
        writes -= newest != seen
        seen = newest


def test_a_backfill_killed_at_any_moment_is_run_again(gateway, requests):
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
