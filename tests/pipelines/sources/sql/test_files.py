"""Queries over files: what is read, and what each fault gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from floorcast.errors import DataError
from floorcast.source import SqlSource
from pipelines.sources.chunk import Chunk
from pipelines.sources.sql.database import rows_between

T0 = datetime(2026, 11, 3, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
LOGS = "SELECT * FROM read_parquet('logs/*.parquet')"
WHERE = "WHERE t >= $start AND t < $end"

Make = Callable[..., SqlSource]
Read = Callable[..., list[Chunk]]
Write = Callable[..., Path]


def test_paths_are_relative_to_the_configuration_whatever_the_current_folder(
    source: Make, read: Read, write: Write, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write([(T0 + n * MINUTE, 5, 1, "a") for n in range(20)])
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    [chunk] = read(source(), T0, T0 + HOUR)
    assert chunk.demand["requests"].sum() == 15


def test_csv_and_json_are_read_too(source: Make, read: Read, tmp_path: Path) -> None:
    rows = [(T0 + n * MINUTE, 5, 1) for n in range(10)]
    (tmp_path / "a.csv").write_text("t,i,o,k\n" + "".join(f"{t:%F %T},{i},{o},a\n" for t, i, o in rows))
    lines = [{"t": f"{t + 10 * MINUTE:%FT%TZ}", "usage": {"i": i, "o": o}, "k": "b"} for t, i, o in rows]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    query = (
        "SELECT t::TIMESTAMPTZ AS t, i, o, k FROM read_csv('a.csv') WHERE t >= $start AND t < $end UNION ALL "
        f"SELECT t::TIMESTAMPTZ AS t, usage.i, usage.o, k FROM read_json('b.jsonl') {WHERE}"
    )
    [chunk] = read(source(query=query), T0, T0 + HOUR)
    assert dict(chunk.demand.group_by("workload_class").agg(pl.col("tokens_in").sum()).rows()) == {
        "chat": 50.0,
        "code": 25.0,
    }


def test_parameters_are_put_in_only_where_they_are_syntax(source: Make) -> None:
    query = """SELECT '$start it''s' AS "$end", /* $end */ t -- $start
        FROM x WHERE t >= $start AND t < $end AND u < $ending ; \n"""
    relation = rows_between(source(query=query), T0, T0 + HOUR)
    start, end = "TIMESTAMPTZ '2026-11-03T00:00:00+00:00'", "TIMESTAMPTZ '2026-11-03T01:00:00+00:00'"
    assert (
        relation
        == "(\n"
        + query.strip(" ;\n").replace("t >= $start AND t < $end AND", f"t >= {start} AND t < {end} AND")
        + "\n) AS requests"
    )


FAULTS = {
    "syntax": (f"SELECT * FORM read_parquet('logs/*.parquet') {WHERE}", "syntax error at or near"),
    "no files": (f"SELECT * FROM read_parquet('nothing/*.parquet') {WHERE}", "No files found"),
    "no such table": (f"SELECT * FROM spend {WHERE}", "spend does not exist"),
    "a variable of the program": (f"SELECT * FROM rows {WHERE}", "rows does not exist"),
    "no such column": (
        "SELECT * FROM read_parquet('logs/*.parquet') WHERE ts >= $start AND ts < $end",
        '"ts" not found',
    ),
    "column not given": (f"SELECT t, i AS tokens, o, k FROM read_parquet('logs/*.parquet') {WHERE}", "no column `i`"),
    "a folder on the net": (f"SELECT * FROM read_parquet('https://example.invalid/a.parquet') {WHERE}", "httpfs"),
    "two statements": (f"SELECT 1) q; DROP TABLE x; SELECT * FROM (SELECT 1 {WHERE}", "not one SELECT"),
    "copy": (f"COPY (SELECT * FROM read_parquet('logs/*.parquet') {WHERE}) TO 'out.csv'", "syntax error"),
    "attach": (f"ATTACH 'x.duckdb' /* {WHERE} */", "syntax error"),
    "a file that is cut off": (f"SELECT * FROM read_parquet('cut.parquet') {WHERE}", "cut.parquet"),
    "times that cannot be compared": (
        "SELECT * FROM read_parquet('logs/*.parquet') WHERE i >= $start AND i < $end",
        "type",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_query_says_what_is_wrong_and_nothing_is_read_or_written(
    fault: str, source: Make, read: Read, write: Write, tmp_path: Path
) -> None:
    whole = write([(T0 + n * MINUTE, 5, 1, "a") for n in range(20)]).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    query, words = FAULTS[fault]
    with pytest.raises(DataError, match=words) as caught:
        read(source(query=query), T0, T0 + HOUR)
    assert caught.value.where == "source gateway"
    assert caught.value.remedy
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.parquet", "logs"]


def test_no_rows_give_no_chunk_rather_than_zeros(source: Make, read: Read, write: Write) -> None:
    write([])
    assert read(source(), T0, T0 + HOUR) == []
    write([(T0 - 40 * 24 * HOUR, 5, 1, "a")])
    assert read(source(), T0, T0 + HOUR) == []
