"""A request trace into steps, against DuckDB's own scan and group-by of the same file."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import duckdb

from benchmarks.report import fastest, parser, peak_memory_gib, write
from floorcast.source import TraceSource
from pipelines.sources import import_trace

STEP = timedelta(minutes=5)


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
    """The alternative: what DuckDB alone needs for the sums, without checks, peaks or rejected rows."""
    with duckdb.connect() as connection:
        connection.execute(
            f"""SELECT time_bucket(INTERVAL '5 minutes', "TIMESTAMP"), count(*), sum("ContextTokens"),
                       sum("GeneratedTokens")
                FROM read_csv('{path}', header = true, columns = {{
                    'TIMESTAMP': 'TIMESTAMP', 'ContextTokens': 'BIGINT', 'GeneratedTokens': 'BIGINT'}})
                GROUP BY 1"""
        ).fetchall()


def main() -> None:
    arguments = parser("ingest", __doc__ or "")
    arguments.add_argument("--rows", type=int, default=4_000_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        make_trace(path, given.rows)
        source = TraceSource.model_validate(
            {"name": "trace", "kind": "trace", "format": "azure", "path": str(path), "class": "code"}
        )
        alone = fastest(lambda: scan(path))
        ours = fastest(lambda: import_trace(source, step=STEP, classes=["code"], until=None, base=Path(folder)))
        size = path.stat().st_size
    write(
        "ingest",
        summary={"ratio": ours / alone, "peak_memory_gib": peak_memory_gib()},
        detail={"rows": given.rows, "file_mib": size // 2**20, "seconds": ours, "duckdb_seconds": alone},
        out=given.json,
    )


if __name__ == "__main__":
    main()
