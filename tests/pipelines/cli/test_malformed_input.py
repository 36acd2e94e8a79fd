"""Traces, databases and outputs that cannot be used: each is named with a remedy, and nothing stored or published
moves."""

from __future__ import annotations

import gzip
import subprocess
import sys

import duckdb
import pytest

NOW = ("--now", "2026-11-16T09:00")
HEADER = "time,class,tokens_in,tokens_out,requests\n"
ROW = "2026-11-16T08:{:02}:00Z,chat,{},200,3\n"
INGEST = ("ingest",)


def case(name, change, code, says, words=("plan",)):
    """`change` says which texts of the configuration to replace, or damages its folder; `says` is to be named."""
    return pytest.param(change, code, says, words, id=name)


def source(name, content):
    """Another trace file, given as bytes, text or rows of tokens in."""

    def change(folder):
        file = folder / "floorcast.yaml"
        file.write_text(file.read_text().replace("path: trace.parquet", f"path: {name}"))
        rows = "".join(ROW.format(5 * (row % 12), each) for row, each in enumerate(content))
        data = content if isinstance(content, bytes) else (HEADER + rows).encode()
        (folder / name).write_bytes(data)

    return change


def truncated_parquet(folder):
    file = folder / "trace.parquet"
    file.write_bytes(file.read_bytes()[:5000])


def newer_database(folder):
    with duckdb.connect(str(folder / "floorcast.duckdb")) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (999, 'from_the_future', 'x', now())")


def foreign_database(folder):
    (folder / "floorcast.duckdb").unlink()
    with duckdb.connect(str(folder / "floorcast.duckdb")) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")


def corrupt_database(folder):
    file = folder / "floorcast.duckdb"
    content = file.read_bytes()
    file.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def database_as_folder(folder):
    (folder / "floorcast.duckdb").unlink()
    (folder / "floorcast.duckdb").mkdir()


CASES = [
    case(
        "missing_trace",
        {"trace.parquet": "trase.parquet"},
        3,
        ("no such file", "trase.parquet", "did you mean", "trace.parquet?"),
        INGEST,
    ),
    case("folder_as_trace", {"trace.parquet": "published"}, 3, ("is a folder", "*.csv"), INGEST),
    case(
        "missing_columns",
        source("t.csv", b"when,tokens_in,tokens_out\n1,2,3\n"),
        3,
        ("lacks the columns", "`time`", "`class`", "it has `when`"),
        INGEST,
    ),
    case("binary_garbage", source("t.csv", bytes(range(256)) * 20), 3, ("t.csv",), INGEST),
    case(
        "truncated_gzip",
        source("t.csv.gz", gzip.compress((HEADER + ROW.format(0, 1) * 5000).encode())[:120]),
        3,
        ("t.csv.gz",),
        INGEST,
    ),
    case("truncated_parquet", truncated_parquet, 3, ("trace.parquet",), INGEST),
    case("csv_named_parquet", source("t.parquet", (HEADER + ROW.format(0, 1)).encode()), 3, ("t.parquet",), INGEST),
    case("empty_trace", source("t.csv", b""), 3, ("t.csv", "export the trace again"), INGEST),
    case("header_only", source("t.csv", HEADER.encode()), 3, ("has a header but no rows",), INGEST),
    case(
        "negative_tokens",
        source("t.csv", [-7] * 40),
        3,
        ("40 of 40 rows (100.0%)", "negative_tokens: 40, e.g. t.csv row 1", "max_reject_share"),
        INGEST,
    ),
    case("nan_tokens", source("t.csv", ["NaN"] * 40), 3, ("missing_tokens: 40", "hold numbers"), INGEST),
    case(
        "a_few_bad_rows_too_many",
        source("t.csv", [10] * 6 + ["many"] * 6),
        3,
        ("6 of 12 rows (50.0%)", "missing_tokens: 6, e.g. t.csv row 7"),
        INGEST,
    ),
    case(
        "unparsable_times",
        source("t.csv", (HEADER + "lunchtime,chat,1,2,3\n" * 9).encode()),
        3,
        ("unparsable_time: 9", "2026-11-30T08:55:00Z"),
        INGEST,
    ),
    case("newer_database", newer_database, 4, ("migration 999", "upgrade floorcast", "left untouched")),
    case("foreign_database", foreign_database, 4, ("floorcast did not make (invoices)", "floorcast's own")),
    case("corrupt_database", corrupt_database, 4, ("floorcast.duckdb", "backup")),
    case(
        "text_as_database",
        lambda folder: (folder / "floorcast.duckdb").write_text("hello" * 99),
        4,
        ("not a DuckDB database",),
    ),
    case("folder_as_database", database_as_folder, 4, ("not a file", "store.path")),
    case(
        "output_is_a_file",
        {"mode: advisory": "output: {dir: trace.parquet}"},
        6,
        ("trace.parquet", "output.dir"),
        ("publish",),
    ),
]


@pytest.mark.parametrize(("change", "code", "says", "words"), CASES)
def test_a_fault_is_named_and_nothing_moves(refused, change, code, says, words):
    refused(change, *words, code=code, says=says)


def test_a_parquet_file_that_is_named_csv_says_so(main, published, swap):
    csv = published.base / "trace.csv"
    (published.base / "trace.parquet").rename(csv)
    swap(published.base, "trace.parquet", "trace.csv")
    ran = main("ingest", *NOW, cwd=published.base)
    assert ran.code == 3
    assert "trace.csv" in ran.err
    assert "parquet" in ran.err
    assert "remedy:" in ran.err


def test_a_database_in_use_names_who_holds_it(main, published, swap, bytes_of):
    """Another process has it open for longer than is waited for; nothing is published over it."""
    script = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(published.store_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    before = bytes_of(published.output)
    swap(published.base, "horizon: 12h", "horizon: 12h\nstore: {wait: 2s}")
    try:
        assert holder.stdout.readline() == b"open\n"
        ran = main("publish", *NOW, cwd=published.base)
    finally:
        holder.communicate()
    assert ran.code == 4
    assert f"in use by process {holder.pid} (" in ran.err
    assert "remedy: wait for it to finish or stop it" in ran.err
    assert "Traceback" not in ran.err
    assert bytes_of(published.output) == before
