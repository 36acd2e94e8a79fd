"""Each format by hand: small files whose steps can be added up on paper."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from floorcast.columns import DEMAND, REJECTS

Run = Callable[..., Any]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:15.0000000,100,10\r\n"
    "2023-11-16 18:17:59.9999999,200,20\r\n"
    "2023-11-16 18:19:00.0000000+00:00,60,6\r\n"
    "2023-11-16 18:20:30.0000000,999,99"
)


def minute(text: str) -> datetime:
    return datetime.fromisoformat(f"2023-11-16 {text}").replace(tzinfo=UTC)


def rows(demand: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return demand.select(columns).rows()


def test_azure_requests_become_steps_with_idle_ones_and_a_partial_first(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_bytes(AZURE.encode())
    result = run(format="azure", path="a.csv", **{"class": "code"})
    assert dict(result.demand.schema) == dict(DEMAND)
    assert dict(result.rejects.schema) == dict(REJECTS)
    assert rows(result.demand, "step_start", "tokens_in", "tokens_out", "requests", "observed_fraction") == [
        (minute("18:17"), 300.0, 30.0, 2.0, 0.75),
        (minute("18:18"), 0.0, 0.0, 0.0, 1.0),
        (minute("18:19"), 60.0, 6.0, 1.0, 1.0),
    ]
    assert rows(result.demand, "peak_tokens_in_per_s", "peak_tokens_out_per_s", "source")[0] == (5.0, 0.5, "trace")
    assert (result.rows_read, result.rows_used, result.rejected) == (4, 4, {})
    assert result.incomplete_step == minute("18:20")
    assert (result.first_time, result.last_time) == (minute("18:17:15"), minute("18:20:30"))


def test_peak_is_the_largest_minute_of_a_longer_step(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text(
        "t,i,o\n2026-01-01T00:00:00Z,60,6\n2026-01-01T00:01:00Z,300,3\n2026-01-01T00:05:00Z,1,1\n"
    )
    result = run(
        format="generic",
        path="a.csv",
        step=timedelta(minutes=5),
        columns={"time": "t", "tokens_in": "i", "tokens_out": "o"},
        **{"class": "code"},
    )
    assert rows(result.demand, "tokens_in", "peak_tokens_in_per_s", "peak_tokens_out_per_s") == [(360.0, 5.0, 0.1)]


def test_until_hides_later_rows_and_completes_a_step_that_ends_on_it(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_bytes(AZURE.encode())
    exact = run(format="azure", path="a.csv", until=minute("18:19"), **{"class": "code"})
    assert rows(exact.demand, "step_start", "tokens_in") == [(minute("18:17"), 300.0), (minute("18:18"), 0.0)]
    assert (exact.rows_past_until, exact.incomplete_step) == (2, None)
    inside = run(format="azure", path="a.csv", until=minute("18:19:30"), **{"class": "code"})
    assert inside.demand.equals(exact.demand)
    assert inside.incomplete_step == minute("18:19")
    before = run(format="azure", path="a.csv", until=minute("18:00"), **{"class": "code"})
    assert (before.demand.height, before.rows_past_until, before.first_time) == (0, 4, None)


def test_until_beyond_the_trace_does_not_invent_idle_steps(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_bytes(AZURE.encode())
    result = run(format="azure", path="a.csv", until=minute("20:00"), **{"class": "code"})
    assert result.demand["step_start"].max() == minute("18:19")


def test_a_pattern_reads_several_files(tmp_path: Path, run: Run) -> None:
    first, second = AZURE.splitlines()[:3], AZURE.splitlines()[3:]
    (tmp_path / "x_1.csv").write_text("\n".join(first))
    (tmp_path / "x_2.csv").write_text("\n".join([first[0], *second]))
    (tmp_path / "whole.csv").write_bytes(AZURE.encode())
    parts = run(format="azure", path="x_*.csv", **{"class": "code"})
    assert parts.demand.equals(run(format="azure", path="whole.csv", **{"class": "code"}).demand)


def test_a_name_with_pattern_characters_is_a_name(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a[1]*.csv").write_bytes(AZURE.encode())
    assert run(format="azure", path="a[1]*.csv", **{"class": "code"}).rows_read == 4


NEW = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
OLD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


@pytest.mark.parametrize(("header", "extra"), [(NEW, "s,1.5,"), (OLD, "")], ids=["new", "old"])
def test_burstgpt_maps_models_and_counts_failures_as_demand(tmp_path: Path, run: Run, header: str, extra: str) -> None:
    lines = [
        f"0,{extra}ChatGPT,100,10,110,Conversation log",
        f"30.5,{extra}GPT-4,40,0,40,API log",
        f"60,{extra}GPT-4,1,1,2,API log",
    ]
    (tmp_path / "b.csv").write_text(header + "\n".join(lines))
    keys = {"format": "burstgpt", "path": "b.csv", "start": "2026-11-01T00:00:00+08:00"}
    result = run(**keys, classes={"ChatGPT": "chat", "*": "code"})
    start = datetime(2026, 10, 31, 16, tzinfo=UTC)
    assert rows(result.demand, "workload_class", "step_start", "tokens_in", "tokens_out", "requests") == [
        ("chat", start, 100.0, 10.0, 1.0),
        ("code", start, 40.0, 0.0, 1.0),
    ]
    assert rows(run(**keys, **{"class": "chat"}).demand, "tokens_in", "requests") == [(140.0, 2.0)]


def test_mooncake_counts_milliseconds_from_start(tmp_path: Path, run: Run) -> None:
    (tmp_path / "m.jsonl").write_text(
        '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [0, 1]}\n'
        '{"timestamp": 59999, "input_length": 20, "output_length": 2, "hash_ids": []}\n\n'
        '{"timestamp": 60000, "input_length": 30, "output_length": 3, "hash_ids": [5]}\n'
    )
    result = run(format="mooncake", path="m.jsonl", start="2026-11-01T00:00:00Z", **{"class": "code"})
    assert rows(result.demand, "step_start", "tokens_in", "tokens_out", "observed_fraction") == [
        (datetime(2026, 11, 1, tzinfo=UTC), 30.0, 3.0, 1.0)
    ]
    assert result.incomplete_step == datetime(2026, 11, 1, 0, 1, tzinfo=UTC)


GENERIC = {"columns": {"time": "at", "tokens_in": "In", "tokens_out": "out tokens", "class": "kind"}}
TABLE = 'kind,at,note,In,out tokens\ncode,{0},"a, b",10,1\nchat,{1},"two\nlines",20,2\ncode,{2},,30,3\n'


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-01 00:00:00", "2026-01-01 00:00:59.5", "2026-01-01 00:01:00"),
        ("2026-01-01T01:00:00+01:00", "2026-01-01T01:00:59+01:00", "2026-01-01T00:01:00Z"),
        ("1767225600", "1767225659.5", "1767225660"),
        ("1767225600000", "1767225659500", "1767225660000"),
    ],
    ids=["naive", "zones", "seconds", "milliseconds"],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zst", ".tsv"])
def test_generic_csv(tmp_path: Path, run: Run, times: tuple[str, ...], suffix: str) -> None:
    text = TABLE.format(*times)
    path = tmp_path / f"g{suffix}"
    if suffix == ".csv.zst":
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(text.encode())
    else:
        if suffix == ".tsv":
            text = text.replace('"a, b"', "a").replace(",", "\t")
        path.write_bytes(gzip.compress(text.encode()) if suffix == ".csv.gz" else text.encode())
    result = run(format="generic", path=path.name, **GENERIC)
    assert rows(result.demand, "workload_class", "step_start", "tokens_in", "tokens_out") == [
        ("chat", datetime(2026, 1, 1, tzinfo=UTC), 20.0, 2.0),
        ("code", datetime(2026, 1, 1, tzinfo=UTC), 10.0, 1.0),
    ]
    assert result.rejected == {}


@pytest.mark.parametrize("dtype", [pl.String, pl.Datetime("us"), pl.Datetime("ns", "Europe/Berlin"), pl.Int64])
def test_generic_parquet_of_any_time_type(tmp_path: Path, run: Run, dtype: pl.DataType) -> None:
    utc = pl.Series([datetime(2026, 1, 1, 0, m, tzinfo=UTC) for m in (0, 0, 1)]).dt.replace_time_zone(None)
    if dtype == pl.String:
        at = utc.dt.to_string("%Y-%m-%d %H:%M:%S")
    elif dtype == pl.Int64:
        at = utc.dt.epoch("ms")
    elif dtype.time_zone:
        at = utc.cast(pl.Datetime("ns")).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    else:
        at = utc
    frame = pl.DataFrame({"at": at, "In": [1, 2, 3], "out tokens": [1.0, 2.0, 3.0], "kind": ["code"] * 3})
    frame.write_parquet(tmp_path / "g.parquet")
    result = run(format="generic", path="g.parquet", **GENERIC)
    assert rows(result.demand, "workload_class", "step_start", "tokens_in", "tokens_out") == [
        ("code", datetime(2026, 1, 1, tzinfo=UTC), 3.0, 3.0)
    ]


def test_generic_numbers_count_seconds_from_start(tmp_path: Path, run: Run) -> None:
    (tmp_path / "g.ndjson").write_text(
        '{"at": 90, "In": 7, "out tokens": 1, "kind": "code"}\n{"at": 120, "In": 1, "out tokens": 1, "kind": "code"}'
    )
    result = run(format="generic", path="g.ndjson", start="2026-01-01", **GENERIC)
    assert rows(result.demand, "step_start", "tokens_in", "observed_fraction") == [
        (datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 7.0, 0.5)
    ]


SUMS = {
    "format": "generic",
    "path": "s.csv",
    "step": timedelta(minutes=5),
    "row_interval": "1m",
    "columns": {"time": "t", "tokens_in": "i", "tokens_out": "o", "class": "c", "requests": "n"},
}


def test_sums_know_what_was_observed(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T00:0{m}:00Z,code,{60 * (m + 1)},6,3" for m in range(5)]
    lines += ["2026-01-01T00:06:00Z,code,60,6,1", "2026-01-01T00:09:00Z,code,0,0,0"]
    lines += ["2026-01-01T00:01:00Z,chat,6,6,1", "2026-01-01T00:10:00Z,chat,1,1,1"]
    (tmp_path / "s.csv").write_text("t,c,i,o,n\n" + "\n".join(lines))
    result = run(**SUMS)
    names = ("workload_class", "tokens_in", "requests", "peak_tokens_in_per_s", "observed_fraction")
    assert rows(result.demand, *names) == [
        ("chat", 6.0, 1.0, 0.1, 0.2),
        ("code", 900.0, 15.0, 5.0, 1.0),
        ("code", 60.0, 1.0, 1.0, 0.4),
    ]
    assert result.incomplete_step == datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def test_sums_of_two_values_mapped_to_one_class_add_up(tmp_path: Path, run: Run) -> None:
    """Two models served as one class: neither is a duplicate of the other, and each minute was observed once."""
    lines = [f"2026-01-01T00:0{m}:00Z,{model},60,6,3" for m in range(5) for model in ("llama-a", "llama-b")]
    (tmp_path / "s.csv").write_text("t,c,i,o,n\n" + "\n".join(lines))
    result = run(**SUMS, classes={"llama-a": "chat", "*": "chat"})
    assert result.rejected == {}
    names = ("workload_class", "tokens_in", "requests", "peak_tokens_in_per_s", "observed_fraction")
    assert rows(result.demand, *names) == [("chat", 600.0, 30.0, 2.0, 1.0)]


def test_a_sum_is_known_only_when_its_interval_is_over(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T00:{m:02}:00Z,code,60,6,3" for m in range(12)]
    (tmp_path / "s.csv").write_text("t,c,i,o,n\n" + "\n".join(lines))
    assert run(**SUMS, until=datetime(2026, 1, 1, 0, 10, tzinfo=UTC)).demand.height == 2
    early = run(**SUMS, until=datetime(2026, 1, 1, 0, 9, 59, tzinfo=UTC))
    assert (early.demand.height, early.rows_past_until) == (1, 3)


def test_requests_of_sums_without_their_column_are_unknown_not_zero(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T00:0{m}:00Z,code,60,6" for m in range(5)]
    (tmp_path / "s.csv").write_text("t,c,i,o\n" + "\n".join(lines))
    columns = {key: value for key, value in SUMS["columns"].items() if key != "requests"}
    assert rows(run(**SUMS | {"columns": columns}).demand, "tokens_in", "requests") == [(300.0, None)]
