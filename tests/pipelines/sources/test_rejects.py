"""Bad rows are counted, kept and never vanish; files that are not what they should be are named."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from floorcast.errors import ConfigError, DataError

Run = Callable[..., Any]
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:17:{0:02}.0000000,100,10\n"
AZURE = {"format": "azure", "path": "a.csv", "class": "code"}
GENERIC = {"format": "generic", "path": "a.csv", "columns": {"time": "t", "tokens_in": "i", "tokens_out": "o"}}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("yesterday,1,2", "unparsable_time"),
        (",1,2", "unparsable_time"),
        ("1923-11-16 18:17:03,1,2", "unparsable_time"),
        ("2023-11-16 18:17:30,,2", "missing_tokens"),
        ("2023-11-16 18:17:30,nan,2", "missing_tokens"),
        ("2023-11-16 18:17:30,many,2", "missing_tokens"),
        ("2023-11-16 18:17:30,5", "missing_tokens"),
        ('2023-11-16 18:17:30,"5', "missing_tokens"),
        ("2023-11-16 18:17:30,1,-2", "negative_tokens"),
        ("2023-11-16 18:17:30,1,10000001", "absurd_tokens"),
        ("2023-11-16 18:17:30,inf,2", "absurd_tokens"),
        ("2023-11-16 18:17:30,1,2,3", "malformed_row"),
        ("2023-11-16 12:00:00,1,2", "time_out_of_order"),
        ("2033-11-16 12:00:00,1,2", "time_out_of_order"),
        ("2023-11-16 18:17:29.0000000,100,10", "duplicate"),
    ],
)
def test_each_reason(tmp_path: Path, run: Run, row: str, reason: str) -> None:
    good = [GOOD.format(second) for second in range(60)]
    (tmp_path / "a.csv").write_text(
        HEADER + "".join(good[:30]) + row + "\n" + "".join(good[30:]) + "2023-11-16 18:18:00,1,1"
    )
    result = run(**AZURE, max_reject_share=0.1)
    assert result.rejected == {reason: 1}
    assert result.rejects.select("source", "file", "row_number", "reason").rows() == [("trace", "a.csv", 31, reason)]
    assert result.examples[reason].startswith("a.csv row 31: ")
    assert result.demand.select("tokens_in", "requests").rows() == [(6000.0, 60.0)]
    assert (result.rows_read, result.rows_used) == (62, 61)


def test_tokens_that_are_no_number_far_into_a_file_cost_that_row_alone(tmp_path: Path, run: Run) -> None:
    """What was read before it is not there twice, and the files beside it keep their numbers of rows."""
    rows = [
        f"2023-11-16 {h:02}:{m:02}:{s:02}.9999999,100,10\n" for h in range(12) for m in range(60) for s in range(60)
    ]
    rows[40_000] = rows[40_000].replace("100", "many")
    for name, part in (("1.csv", ["yesterday,1,2\n", *rows[:9]]), ("2.csv", rows[9:]), ("3.csv", ["x,1,2\n"])):
        (tmp_path / name).write_text(HEADER + "".join(part))
    result = run(**AZURE | {"path": "*.csv"})
    assert result.rejects.select("file", "row_number", "reason", "raw").sort("file").rows() == [
        ("1.csv", 1, "unparsable_time", "yesterday,1,2"),
        ("2.csv", 39_992, "missing_tokens", "2023-11-16 11:06:40.9999999,many,10"),
        ("3.csv", 1, "unparsable_time", "x,1,2"),
    ]
    assert (result.rows_read, result.rows_used) == (43_202, 43_199)
    assert result.demand["tokens_in"].sum() == 100 * (43_199 - 60)  # less the minute that the trace ends in


def test_a_column_of_tokens_that_is_the_class_too_is_compared_as_written(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T08:00:0{s}Z,{tokens},1" for s, tokens in enumerate((5, 7))]
    (tmp_path / "a.csv").write_text("t,i,o\n" + "\n".join([*lines, "2026-01-01T08:01:00Z,5,1"]))
    columns = GENERIC["columns"] | {"class": "i"}
    result = run(**GENERIC | {"columns": columns}, classes={"5": "code", "*": "chat"})
    assert result.demand.select("workload_class", "tokens_in").rows() == [("chat", 7.0), ("code", 5.0)]


def test_undecodable_and_endless_lines_are_malformed_rows(tmp_path: Path, run: Run) -> None:
    bad = b"2023-11-16 18:17:30,\xff\xfe,1\n" + b"x" * 2_500_000 + b",1,2\n"
    (tmp_path / "a.csv").write_bytes((HEADER + GOOD.format(1)).encode() + bad + GOOD.format(59).encode())
    result = run(**AZURE, max_reject_share=0.9)
    assert result.rejected == {"malformed_row": 2}
    assert result.rejects["row_number"].to_list() == [2, 3]
    assert (result.rows_read, result.rows_used) == (4, 2)


def test_rows_slightly_out_of_order_are_used(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "".join(GOOD.format(s) for s in (5, 3, 40, 1)) + "2023-11-16 18:18:00,1,1")
    result = run(**AZURE)
    assert result.rejected == {}
    assert result.demand["requests"].to_list() == [4.0]


def test_one_time_in_the_future_does_not_condemn_the_rows_after_it(tmp_path: Path, run: Run) -> None:
    text = GOOD.format(0) + "2099-01-01 00:00:00,1,1\n" + "".join(GOOD.format(s) for s in range(1, 60))
    (tmp_path / "a.csv").write_text(HEADER + text)
    assert run(**AZURE, max_reject_share=0.1).rejected == {"time_out_of_order": 1}


def test_generic_files_promise_no_order_and_equal_requests_are_two(tmp_path: Path, run: Run) -> None:
    lines = ["2026-01-01T09:00:30Z,1,1", "2026-01-01T08:00:00Z,5,1", "2026-01-01T08:00:00Z,5,1"]
    (tmp_path / "a.csv").write_text("t,i,o\n" + "\n".join(lines))
    result = run(**GENERIC, **{"class": "code"})
    assert result.rejected == {}
    assert result.demand["tokens_in"][0] == 10.0
    assert result.demand.height == 60


def test_a_sum_given_twice_counts_once(tmp_path: Path, run: Run) -> None:
    lines = ["2026-01-01T08:00:00Z,5,1", "2026-01-01T08:00:00Z,7,1", "2026-01-01T08:01:00Z,1,1"]
    (tmp_path / "a.csv").write_text("t,i,o\n" + "\n".join(lines))
    result = run(**GENERIC, **{"class": "code"}, row_interval="1m", max_reject_share=0.5)
    assert result.rejected == {"duplicate": 1}
    assert result.demand["tokens_in"].to_list() == [5.0, 1.0]


def test_counts_of_requests_that_are_no_counts(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T08:0{m}:00Z,5,1,{n}" for m, n in enumerate(("3", "", "-1", "nan"))]
    (tmp_path / "a.csv").write_text("t,i,o,n\n" + "\n".join(lines))
    columns = GENERIC["columns"] | {"requests": "n"}
    result = run(**GENERIC | {"columns": columns}, **{"class": "code"}, row_interval="1m", max_reject_share=1)
    assert result.rejected == {"missing_requests": 3}


def test_unmapped_values_are_unknown_classes(tmp_path: Path, run: Run) -> None:
    lines = [f"2026-01-01T08:00:0{s}Z,5,1,{kind}" for s, kind in enumerate(("Code", "chat", "", "chat"))]
    (tmp_path / "a.csv").write_text("t,i,o,k\n" + "\n".join([*lines, "2026-01-01T08:01:00Z,1,1,chat"]))
    keys = GENERIC | {"columns": GENERIC["columns"] | {"class": "k"}, "max_reject_share": 0.5}
    assert run(**keys).rejected == {"unknown_class": 2}
    mapped = run(**keys, classes={"Code": "code", "chat": "chat"})
    assert mapped.rejected == {"unknown_class": 1}
    assert mapped.demand["workload_class"].to_list() == ["chat", "code"]
    assert run(**keys, classes={"Code": "code", "*": "chat"}).rejected == {}


@pytest.mark.parametrize("stray", [(10,), (10, 30)], ids=["one", "two"])
def test_quotes_that_do_not_close_swallow_nothing(tmp_path: Path, run: Run, stray: tuple[int, ...]) -> None:
    lines = [f"2026-01-01T08:00:{s:02}Z,5,1,{chr(34) if s in stray else ''}note" for s in range(50)]
    (tmp_path / "a.csv").write_text("t,i,o,n\n" + "\n".join([*lines, "2026-01-01T08:01:00Z,1,1,"]))
    result = run(**GENERIC, **{"class": "code"})
    assert (result.rows_read, result.rows_used) == (51, 51)
    assert result.demand["requests"].to_list() == [50.0]


def test_bad_json_lines_are_malformed(tmp_path: Path, run: Run) -> None:
    good = '{"timestamp": 1, "input_length": 5, "output_length": 1}\n'
    bad = '{"timestamp": 2, "input\n[1, 2]\n{"timestamp": 3, "input_length": {"a": 1}, "output_length": 2}\nnull\n'
    (tmp_path / "m.jsonl").write_text(good + bad + good.replace("1,", "70000,", 1))
    result = run(format="mooncake", path="m.jsonl", start="2026-11-01", max_reject_share=0.9, **{"class": "code"})
    assert (result.rows_read, result.rows_used) == (6, 2)
    assert result.rejected == {"malformed_row": 1, "unparsable_time": 2, "missing_tokens": 1}


def test_too_many_bad_rows_fail_with_counts_examples_and_remedy(tmp_path: Path, run: Run) -> None:
    rows = "".join(GOOD.format(s) for s in range(10)) + "x,1,2\ny,1,2\n2023-11-16 18:17:30,1,-2\n"
    (tmp_path / "a.csv").write_text(HEADER + rows)
    with pytest.raises(DataError) as caught:
        run(**AZURE)
    text = str(caught.value)
    assert "3 of 13 rows (23.1%)" in text
    assert "unparsable_time: 2, e.g. a.csv row 11: x,1,2" in text
    assert "negative_tokens: 1, e.g. a.csv row 13" in text
    assert "remedy: write times as" in text
    assert run(**AZURE, max_reject_share="25%").rows_used == 10


def test_rejects_kept_are_bounded_but_all_are_counted(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text(HEADER + GOOD.format(1) + "x,1,2\n" * 12_000)
    result = run(**AZURE, max_reject_share=1)
    assert (result.rejected, result.rejects.height) == ({"unparsable_time": 12_000}, 10_000)


def _zstd(path: Path, data: bytes) -> None:
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(data)


def _bad_files(folder: Path) -> None:
    good = (HEADER + "".join(GOOD.format(s % 60) for s in range(9000))).encode()
    (folder / "trace_code.csv").write_bytes(good)
    (folder / "empty.csv").write_bytes(b"")
    (folder / "blank.csv").write_bytes(b"\n\n")
    (folder / "header.csv").write_text(HEADER)
    (folder / "other.csv").write_text("TIME_STAMP,ContextTokens,Output\n1,2,3\n")
    (folder / "garbage.csv").write_bytes(bytes(range(256)) * 20)
    (folder / "text.csv.gz").write_bytes(good)
    (folder / "packed.csv").write_bytes(gzip.compress(good))
    (folder / "cut.csv.gz").write_bytes(gzip.compress(good)[:-2000])
    _zstd(folder / "whole.csv.zst", good)
    (folder / "cut.csv.zst").write_bytes((folder / "whole.csv.zst").read_bytes()[:-100])
    pl.DataFrame({"TIMESTAMP": ["x"]}).write_parquet(folder / "real.parquet")
    (folder / "table.csv").write_bytes((folder / "real.parquet").read_bytes())
    (folder / "cut.parquet").write_bytes((folder / "real.parquet").read_bytes()[:-20])
    (folder / "text.parquet").write_bytes(good)
    (folder / "text.jsonl").write_bytes(good)
    (folder / "folder").mkdir()


@pytest.mark.parametrize(
    ("path", "what", "remedy"),
    [
        ("trace_cod.csv", "no such file", "did you mean .*trace_code.csv"),
        ("zz", "no such file", "holds blank.csv, cut.csv.gz"),
        ("nowhere/a.csv", "no such file", "does not exist either"),
        ("nothing_*.csv", "no such file", "correct `path`|did you mean"),
        ("folder", "is a folder", r"folder/\*.csv"),
        ("empty.csv", "the file is empty", "export"),
        ("blank.csv", "holds no text", "export"),
        ("header.csv", "has a header but no rows", "export"),
        (
            "other.csv",
            r"lacks the columns `TIMESTAMP` \(nearest: `TIME_STAMP`\), `GeneratedTokens`",
            "correct `format`",
        ),
        ("garbage.csv", "binary", "UTF-8"),
        ("text.csv.gz", "promises gzip but the content is uncompressed", "suffix"),
        ("packed.csv", "content is gzip", "suffix"),
        ("cut.csv.gz", "cannot be read as csv: .*GZIP", "whole"),
        ("cut.csv.zst", "cannot be read as zstd: Truncated", "whole"),
        ("table.csv", "content is parquet", "suffix"),
        ("cut.parquet", "cannot be read as parquet", "whole"),
        ("text.parquet", "promises parquet", "suffix"),
        ("real.parquet", "lacks the columns `ContextTokens`", "correct"),
        ("text.jsonl", "not JSON objects", "one JSON object a line"),
    ],
)
def test_files_that_are_not_what_they_should_be(tmp_path: Path, run: Run, path: str, what: str, remedy: str) -> None:
    _bad_files(tmp_path)
    with pytest.raises(DataError, match=what) as caught:
        run(**AZURE | {"path": path})
    assert str(tmp_path) in caught.value.where or path in caught.value.where
    assert re.search(remedy, caught.value.remedy)


def test_rows_implausibly_far_apart_are_not_filled_with_idle_steps(tmp_path: Path, run: Run) -> None:
    (tmp_path / "a.csv").write_text("t,i,o\n2001-01-01T08:00:00Z,5,1\n2099-01-01T08:00:00Z,7,1\n")
    with pytest.raises(DataError, match="lie between 2001-01-01T08:00:00Z and 2099-01-01T08:00:00Z"):
        run(**GENERIC, **{"class": "code"})


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        (AZURE | {"class": "coed"}, "class coed is not configured.*\n.*did you mean code"),
        (AZURE | {"row_interval": "1m"}, "one row a request"),
        (GENERIC, "nothing says which class"),
        (GENERIC | {"class": "code", "row_interval": "7m"}, "not a whole number of row intervals of 7m"),
        (GENERIC | {"class": "code", "row_interval": "0s"}, "not a whole number"),
        ({"format": "burstgpt", "path": "a.csv", "start": "2026-01-01"}, "nothing says which class"),
        (
            GENERIC | {"class": "code", "columns": GENERIC["columns"] | {"requests": "n"}},
            "counts of requests belong to rows that are sums",
        ),
    ],
)
def test_settings_that_contradict(tmp_path: Path, run: Run, keys: dict[str, Any], match: str) -> None:
    (tmp_path / "a.csv").write_text(HEADER)
    with pytest.raises(ConfigError, match=match) as caught:
        run(**keys)
    assert caught.value.where.startswith("sources.trace.")


def test_a_line_that_is_no_row_counts_in_the_numbers_of_the_rows_after_it(tmp_path: Path, run: Run) -> None:
    rows = [GOOD.format(1).encode(), b"2023-11-16 18:17:30,\xff\xfe,1\n", b"yesterday,1,2\n", GOOD.format(59).encode()]
    (tmp_path / "a.csv").write_bytes(HEADER.encode() + b"".join([*rows, rows[3]]))
    result = run(**AZURE, max_reject_share=0.9)
    found = dict(result.rejects.select("row_number", "reason").rows())
    assert found == {2: "malformed_row", 3: "unparsable_time", 5: "duplicate"}
