"""Chunks of a query are what one import of all its rows gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from floorcast.errors import ConfigError, DataError
from floorcast.source import SqlSource, TraceSource
from pipelines.sources.chunk import Chunk
from pipelines.sources.sql import import_sql
from pipelines.sources.traces import import_trace

T0 = datetime(2026, 11, 3, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
STEP = 5 * MINUTE

Make = Callable[..., SqlSource]
Read = Callable[..., list[Chunk]]
Whole = Callable[[list[Chunk]], pl.DataFrame]
Write = Callable[..., Path]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moments=st.lists(st.tuples(st.integers(0, 4 * 3600 - 1), st.integers(0, 999), st.sampled_from("ab")), max_size=30),
    late=st.integers(0, 3600),
    chunk=st.sampled_from(["35m", "1h", "1d"]),
    cut=st.integers(1, 4 * 12),
)
def test_chunks_are_what_one_trace_of_all_rows_gives(
    source: Make,
    read: Read,
    whole: Whole,
    write: Write,
    tmp_path: Path,
    moments: list[tuple[int, int, str]],
    late: int,
    chunk: str,
    cut: int,
) -> None:
    """Wherever queries begin and end, and where the import is resumed from any point before its watermark."""
    rows = [(T0 + second * SECOND, tokens, 2 * tokens, k) for second, tokens, k in moments]
    write(rows)
    end = T0 + 4 * HOUR + late * SECOND
    chunks = read(source(chunk=chunk), T0 - HOUR, end)
    if not rows:
        assert chunks == []
        return
    trace = TraceSource.model_validate(
        {"name": "gateway", "kind": "trace", "format": "generic", "path": "logs/a.parquet"}
        | source().model_dump(include={"columns", "classes"})
    )
    expected = import_trace(trace, step=STEP, classes=["chat", "code"], until=None, base=tmp_path).demand
    assert_frame_equal(whole(chunks), expected)
    assert all(before.end == after.start for before, after in pairwise(chunks))
    again = read(source(chunk=chunk), T0 + cut * STEP, end)
    kept = whole(chunks).filter(pl.col("step_start") < (again[0].start if again else end))
    assert_frame_equal(pl.concat([kept, whole(again)]).sort("workload_class", "step_start"), expected)


def test_idle_steps_between_rows_are_zeros_and_after_the_last_row_there_is_nothing(
    source: Make, read: Read, whole: Whole, write: Write
) -> None:
    write([(T0 + 30 * SECOND, 7, 1, "a"), (T0 + 50 * HOUR, 9, 2, "b")])
    found = whole(read(source(), T0, T0 + 90 * HOUR))
    assert found["step_start"].max() == T0 + 50 * HOUR - STEP
    assert found.height == 2 * 50 * 12
    assert found["tokens_in"].sum() == 7
    first = found.filter(step_start=T0)
    assert dict(first.select("workload_class", "tokens_in").rows()) == {"chat": 7.0, "code": 0.0}
    assert first["observed_fraction"].to_list() == [0.9, 0.9]
    assert found.filter(pl.col("step_start") > T0)["observed_fraction"].unique().to_list() == [1.0]


def test_an_idle_stretch_at_the_end_becomes_zeros_once_a_later_row_is_there(
    source: Make, read: Read, write: Write
) -> None:
    write([(T0, 7, 1, "a"), (T0 + 6 * MINUTE, 7, 1, "a")])
    [chunk] = read(source(), T0, T0 + 3 * HOUR)
    assert (chunk.start, chunk.end) == (T0, T0 + STEP)
    write([(T0 + 2 * HOUR, 7, 1, "a")], "b.parquet")
    [later] = read(source(), chunk.end, T0 + 3 * HOUR)
    assert (later.start, later.end) == (chunk.end, T0 + 2 * HOUR)
    assert later.demand.filter(workload_class="chat")["tokens_in"].to_list() == [7.0] + [0.0] * 22


def test_steps_before_the_first_row_read_are_observed_if_the_source_was_there_before(
    source: Make, read: Read, write: Write
) -> None:
    write([(T0 - 26 * HOUR, 7, 1, "a"), (T0 + 2 * MINUTE, 7, 1, "a"), (T0 + 7 * MINUTE, 7, 1, "a")])
    [known] = read(source(), T0 - STEP, T0 + HOUR)
    assert known.demand.filter(workload_class="chat").select("tokens_in", "observed_fraction").rows() == [
        (0.0, 1.0),
        (7.0, 1.0),
    ]
    [new] = read(source(history="1d"), T0 - STEP, T0 + HOUR)
    assert new.demand.filter(workload_class="chat").select("tokens_in", "observed_fraction").rows() == [(7.0, 0.6)]


def test_nothing_from_the_present_on_is_read_but_rows_ahead_of_it_are_counted(
    source: Make, read: Read, write: Write
) -> None:
    write([(T0 + n * MINUTE, 1, 1, "a") for n in range(60)])
    [chunk] = read(source(), T0, T0 + 12 * MINUTE)
    assert (chunk.end, chunk.demand["requests"].sum()) == (T0 + 10 * MINUTE, 10)
    assert (chunk.ahead, chunk.newest_ahead) == (47, T0 + 59 * MINUTE)


def test_rows_that_cannot_be_used_are_rejected_with_their_reason_as_those_of_a_trace(
    source: Make, read: Read, write: Write
) -> None:
    good = [(T0 + n * MINUTE, "5", "1", "a") for n in range(60)]
    bad = [
        (T0, None, "1", "a"),
        (T0, "-1", "1", "a"),
        (T0, "many", "1", "a"),
        (T0, "5", "99999999", "a"),
        (T0, "5", "1", "z"),
        (T0, "5", "1", None),
    ]
    write(good + bad, schema={"i": pl.String, "o": pl.String})
    [chunk] = read(source(max_reject_share=0.5), T0, T0 + HOUR)
    assert chunk.rejected == {"missing_tokens": 2, "negative_tokens": 1, "absurd_tokens": 1, "unknown_class": 2}
    assert chunk.rejects.height == 6
    assert chunk.samples == 66
    assert "rows-from-2026-11-03T00:00:00Z.parquet row 62" in chunk.examples["negative_tokens"]
    assert chunk.demand["requests"].sum() == 55
    with pytest.raises(DataError, match=r"6 of 66 rows \(9.1%\) cannot be used") as caught:
        read(source(), T0, T0 + HOUR)
    assert caught.value.where == "source gateway"


def test_times_without_a_zone_are_utc(source: Make, read: Read, whole: Whole, write: Write) -> None:
    rows = [(T0 + n * MINUTE, 5, 1, "a") for n in range(20)]
    write(rows)
    aware = whole(read(source(), T0, T0 + HOUR))
    write([(t.replace(tzinfo=None), *rest) for t, *rest in rows], schema={"t": pl.Datetime("us")})
    assert_frame_equal(whole(read(source(), T0, T0 + HOUR)), aware)


@pytest.mark.parametrize("chunk", ["1h", "30m"])
@pytest.mark.parametrize(
    ("query", "outside"),
    [
        ("SELECT * FROM read_parquet('logs/*.parquet') WHERE t < $end OR t < $start", "before [$]start"),
        ("SELECT * FROM read_parquet('logs/*.parquet') WHERE t BETWEEN $start AND $end", "at or after [$]end"),
    ],
)
def test_rows_outside_of_the_interval_asked_for_are_refused(
    source: Make, read: Read, write: Write, query: str, outside: str, chunk: str
) -> None:
    """Whether the files are asked once or for each chunk; the day after the present is asked for, too."""
    edges = [T0 + 2 * HOUR, T0 + 26 * HOUR + MINUTE]
    write([(t, 5, 1, "a") for t in [*(T0 + n * MINUTE for n in range(120)), *edges]])
    with pytest.raises(DataError, match=outside):
        read(source(query=query, chunk=chunk), T0 + HOUR, T0 + 2 * HOUR)


def call(source: SqlSource, base: Path, **keys: Any) -> Iterator[Chunk]:
    return import_sql(source, classes=["chat", "code"], step=STEP, base=base, **keys)


@pytest.mark.parametrize("times", ["of a type", "as text"])
def test_files_are_read_once_for_all_chunks(
    source: Make, whole: Whole, write: Write, tmp_path: Path, times: str
) -> None:
    """They may be gone then. Text is compared by the query alone, chunk by chunk."""
    rows = [(T0 + n * MINUTE, 5, 1, "ab"[n % 2]) for n in range(300)]
    text = times == "as text"
    file = write(
        [(f"{t:%F %T}+00", *rest) if text else (t, *rest) for t, *rest in rows], schema={"t": pl.String} if text else {}
    )
    query = "SELECT * FROM read_parquet('logs/*.parquet') WHERE t::TIMESTAMPTZ >= $start AND t::TIMESTAMPTZ < $end"
    expected = whole(list(call(source(query=query), tmp_path, start=T0, end=T0 + 5 * HOUR)))
    assert expected["requests"].sum() == 295
    chunks = call(source(query=query, chunk="1h"), tmp_path, start=T0, end=T0 + 5 * HOUR)
    first = next(chunks)
    if not text:
        file.unlink()
    assert_frame_equal(whole([first, *chunks]), expected)


def test_of_a_backfill_before_the_first_row_nothing_later_is_read(source: Make, write: Write, tmp_path: Path) -> None:
    write([(T0 + n * HOUR, 5, 1, "a") for n in range(5)])
    seen: list[Any] = []
    span = {"start": T0 - 9 * HOUR, "stop": T0 - 7 * HOUR, "end": T0 + 4 * HOUR}
    assert list(call(source(chunk="1h"), tmp_path, progress=lambda *told: seen.append(told), **span)) == []
    assert seen == [(1, 13), (2, 13)]
    found = list(call(source(chunk="1h"), tmp_path, **span | {"start": T0 + STEP, "stop": T0 + 2 * STEP}))
    assert found[0].start == T0 + STEP, "there was a row before: what follows tells what was idle"


def test_progress_is_told_of_every_query(source: Make, write: Write, tmp_path: Path) -> None:
    write([(T0 + n * HOUR, 5, 1, "a") for n in range(5)])
    seen: list[Any] = []
    chunks = import_sql(
        source(chunk="1h"),
        classes=["chat", "code"],
        step=STEP,
        start=T0,
        end=T0 + 5 * HOUR - MINUTE,
        base=tmp_path,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert len(list(chunks)) == 4
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_class_that_is_not_configured_is_refused_before_anything_is_read(source: Make, read: Read) -> None:
    with pytest.raises(ConfigError, match="class chatt is not configured"):
        read(source(classes={"a": "chatt"}), T0, T0 + HOUR)
