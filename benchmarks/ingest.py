"""A request trace into steps, against DuckDB's own scan and group-by of the same file."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import duckdb

from benchmarks.report import parser, peak_memory_gib, write
from floorcast.source import TraceSource
from pipelines.sources import import_trace

STEP = timedelta(minutes=5)
RUNS = 5


def make_trace(path: Path, rows: int) -> None:
    """An Azure-format CSV: a week of requests in order, with the format's seven-digit fractions."""
    microseconds = 7 * 86400 * 1_000_000 // rows
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"""COPY (
                SELECT strftime(TIMESTAMP '2024-05-10' + to_microseconds(i * {microseconds}), '%Y-%m-%d %H:%M:%S.%f')
                       || '0' AS "TIMESTAMP",
                       (100 + random() * 4000)::INTEGER AS "ContextTokens",
                       (1 + random() * 300)::INTEGER AS "GeneratedTokens"
                FROM range({rows}) t(i) ORDER BY i
            ) TO '{path}' (HEADER, DELIMITER ',')"""
        )


def scan(path: Path) -> None:
    """The alternative: what DuckDB alone needs for the sums, without checks, peaks or rejected rows.

    It finds the types by itself and reads on all cores.
    """
    with duckdb.connect() as connection:
        connection.execute(
            f"""SELECT time_bucket(INTERVAL '5 minutes', "TIMESTAMP"), count(*), sum("ContextTokens"),
                       sum("GeneratedTokens")
                FROM read_csv('{path}') GROUP BY 1"""
        ).fetchall()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of all cores together."""
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu_began


def main() -> None:
    arguments = parser("ingest", __doc__ or "")
    arguments.add_argument("--rows", type=int, default=20_000_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        make_trace(path, given.rows)
        source = TraceSource.model_validate(
            {"name": "trace", "kind": "trace", "format": "azure", "path": str(path), "class": "code"}
        )
        alone, ours = [], []
        for _ in range(RUNS):  # in turns, so that other work on the machine disturbs both
            alone.append(timed(lambda: scan(path)))
            ours.append(timed(lambda: import_trace(source, step=STEP, classes=["code"], until=None, base=Path(folder))))
        size = path.stat().st_size
    seconds, cpu_seconds = (min(values) for values in zip(*ours, strict=True))
    duckdb_seconds, duckdb_cpu_seconds = (min(values) for values in zip(*alone, strict=True))
    write(
        "ingest",
        summary={
            "ratio": seconds / duckdb_seconds,
            "cpu_ratio": cpu_seconds / duckdb_cpu_seconds,
            "peak_memory_gib": peak_memory_gib(),
        },
        detail={
            "rows": given.rows,
            "file_mib": size // 2**20,
            "seconds": seconds,
            "duckdb_seconds": duckdb_seconds,
            "cpu_seconds": cpu_seconds,
            "duckdb_cpu_seconds": duckdb_cpu_seconds,
        },
        out=given.json,
    )


if __name__ == "__main__":
    main()
