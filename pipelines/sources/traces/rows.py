"""Import of traces whose rows are single requests or sums: parse, judge, aggregate."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl

from floorcast.errors import DataError
from floorcast.source import TraceSource
from pipelines.sources.traces.files import (
    SAMPLE,
    Scan,
    TraceFile,
    connection,
    find_files,
    literal,
    microseconds,
    not_readable,
    scan_file,
)
from pipelines.sources.traces.layout import Layout, class_sql, layout_of, time_sql
from pipelines.sources.traces.result import MAX_REJECTS_KEPT, Rejects, TraceImport, check_reject_share
from pipelines.sources.traces.steps import Steps, interval_steps, request_steps

ORDER_TOLERANCE = timedelta(minutes=5)
"""How far a row may lie behind an earlier one in a format that promises order."""

_PAST_UNTIL = "past_until"
_REASONS = (
    _PAST_UNTIL,
    "malformed_row",
    "unparsable_time",
    "unknown_class",
    "missing_tokens",
    "negative_tokens",
    "absurd_tokens",
    "missing_requests",
    "time_out_of_order",
    "duplicate",
)
_RAW_LENGTH = 500
_EARLIEST = microseconds(datetime(2000, 1, 1, tzinfo=UTC))
_LATEST = microseconds(datetime(2100, 1, 1, tzinfo=UTC))
_USABLE = "SELECT rowid AS id, * FROM data WHERE reason IS NULL"
_SAME_TIME = f"FROM ({_USABLE}) QUALIFY t = lag(t) OVER () OR t = lead(t) OVER ()"
"""Neighbours of one time: a few rows to sort instead of all."""


def import_rows(
    source: TraceSource, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read Azure, BurstGPT, Mooncake and generic files. Raises as `import_trace` says."""
    layout = layout_of(source, step=step, classes=classes)
    files = find_files(source.path, base=base, kind=layout.kind, key="path")
    with connection() as con:
        _create_table(con, sorted({*layout.mapping.values(), *layout.named}))
        found = [
            _load(con, file, number, layout=layout, max_tokens=source.max_tokens, until=until)
            for number, file in enumerate(files)
        ]
        if layout.ordered:
            for number in range(len(files)):
                _reject_out_of_order(con, number)
        if layout.row_interval is not None:
            # By the class as written: two of its values that are mapped to one class add up.
            _reject_duplicates(con, key="class_key, t", among=_USABLE)
        elif layout.exact_clock:
            _reject_duplicates(con, key="file, t, tokens_in, tokens_out", among=_SAME_TIME)
        rejects = Rejects.of(source, [*found, _late_rejects(con, files)])
        counts = dict(con.execute("SELECT reason::VARCHAR, count(*) FROM data GROUP BY ALL").fetchall())
        used, past_until = counts.pop(None, 0), counts.pop(_PAST_UNTIL, 0)
        read = used + past_until + sum(counts.values())
        where = str(files[0].path) if len(files) == 1 else f"{source.path} ({len(files)} files)"
        if not read:
            raise DataError("has a header but no rows", where=where, remedy="export the trace again")
        check_reject_share(
            source, rejected=counts, examples=rejects.examples, rows_considered=read - past_until, where=where
        )
        steps = _steps(con, source, layout, step=step, until=until if past_until else None, where=where)
    return TraceImport(
        demand=steps.demand,
        rejects=rejects.frame,
        rejected=counts,
        examples=rejects.examples,
        rows_read=read,
        rows_used=used,
        rows_past_until=past_until,
        first_time=steps.first_time,
        last_time=steps.last_time,
        incomplete_step=steps.incomplete_step,
    )


def _steps(
    con: duckdb.DuckDBPyConnection,
    source: TraceSource,
    layout: Layout,
    *,
    step: timedelta,
    until: datetime | None,
    where: str,
) -> Steps:
    if layout.row_interval is not None:
        return interval_steps(con, step=step, interval=layout.row_interval, source=source.name)
    return request_steps(con, step=step, classes=layout.named, observed_until=until, source=source.name, where=where)


def _create_table(con: duckdb.DuckDBPyConnection, classes: list[str]) -> None:
    con.execute(f"CREATE TYPE reason AS ENUM ({', '.join(map(literal, _REASONS))})")
    con.execute(f"CREATE TYPE workload_class AS ENUM ({', '.join(map(literal, classes))})")
    con.execute(
        "CREATE TABLE data (file USMALLINT, t BIGINT, tokens_in DOUBLE, tokens_out DOUBLE, requests DOUBLE, "
        "class workload_class, class_key UBIGINT, reason reason)"
    )


def _load(
    con: duckdb.DuckDBPyConnection,
    file: TraceFile,
    number: int,
    *,
    layout: Layout,
    max_tokens: int,
    until: datetime | None,
) -> pl.DataFrame:
    """Append a file to `data`, a row for every row, and hand back those that could not be parsed.

    A quote that does not close can swallow the rest of a CSV, so a fault in a strict scan means to read it again.
    """
    try:
        for strict in (True, False):
            scan = scan_file(con, file, layout.columns, strict=strict)
            numeric = _numeric_times(con, scan, layout)
            parsed = _parse_sql(scan, layout, numeric=numeric, max_tokens=max_tokens, until=until)
            _forget_unsplit(con)
            con.execute(
                f"INSERT INTO data SELECT {number}, t, tokens_in, tokens_out, requests, class, class_key, reason "
                f"FROM ({parsed})"
            )
            unsplit = _unsplit(con, file)
            if unsplit.is_empty() or not scan.strict:
                break
            con.execute(f"DELETE FROM data WHERE file = {number}")
        bad = con.execute(
            f"SELECT count(*) FROM data WHERE file = {number} AND reason <> '{_PAST_UNTIL}'"
        ).fetchall() != [(0,)]
        con.execute(f"INSERT INTO data (file, reason) SELECT {number}, 'malformed_row' FROM range({unsplit.height})")
        unparsed = _unparsed(con, parsed, file) if bad else unsplit.clear()
    except duckdb.Error as error:
        raise not_readable(file.path, file.kind, error) from None
    return pl.concat([unsplit, unparsed])


def _numeric_times(con: duckdb.DuckDBPyConnection, scan: Scan, layout: Layout) -> bool:
    """Whether more of a file's first times make sense as numbers than as timestamps."""
    number, stamp = (time_sql("value", scan.types[0], layout, numeric=numeric) for numeric in (True, False))
    plausible = f"BETWEEN {_EARLIEST} AND {_LATEST}"
    [(more,)] = con.execute(
        f"SELECT count(*) FILTER ({number} {plausible}) > count(*) FILTER ({stamp} {plausible}) "
        f"FROM (SELECT {scan.values[0]} AS value FROM {scan.relation} LIMIT {SAMPLE})"
    ).fetchall()
    return bool(more)


def _parse_sql(scan: Scan, layout: Layout, *, numeric: bool, max_tokens: int, until: datetime | None) -> str:
    """Query of a row for every row of a file: t, tokens_in, tokens_out, requests, class, class_key (the class as
    written), reason (null: fine), raw."""
    names = ("tokens_in", "tokens_out", *(("requests",) if layout.requests_position is not None else ()))
    positions = (1, 2, *(() if layout.requests_position is None else (layout.requests_position,)))
    numbers = [
        f"TRY_CAST({scan.values[position]} AS DOUBLE) AS {name}"
        for name, position in zip(names, positions, strict=True)
    ]
    if layout.requests_position is None:
        numbers.append(f"{'NULL' if layout.row_interval is not None else '1'}::DOUBLE AS requests")
    value = "NULL" if layout.class_position is None else scan.values[layout.class_position]
    class_key = "NULL" if layout.row_interval is None else f"hash({value})"
    interval_us = 0 if layout.row_interval is None else microseconds(layout.row_interval)
    limit = max_tokens * (layout.row_interval.total_seconds() if layout.row_interval is not None else 1)
    past = "false" if until is None else f"t >= {microseconds(until) - max(interval_us - 1, 0)}"
    bad_requests = (
        "NOT coalesce(requests BETWEEN 0 AND 1e15, false)" if layout.requests_position is not None else "false"
    )
    earliest = _EARLIEST
    if layout.start_us is not None and numeric:
        earliest = max(earliest, layout.start_us)
    return f"""
        SELECT t, tokens_in, tokens_out, requests, class::workload_class AS class, class_key, raw, CASE
            WHEN t BETWEEN {earliest} AND {_LATEST} AND tokens_in BETWEEN 0 AND {limit}
                AND tokens_out BETWEEN 0 AND {limit} AND class IS NOT NULL
                AND NOT (malformed OR {past} OR {bad_requests}) THEN NULL
            WHEN malformed THEN 'malformed_row'
            WHEN NOT coalesce(t BETWEEN {earliest} AND {_LATEST}, false) THEN 'unparsable_time'
            WHEN {past} THEN '{_PAST_UNTIL}'
            WHEN class IS NULL THEN 'unknown_class'
            WHEN tokens_in IS NULL OR tokens_out IS NULL OR isnan(tokens_in) OR isnan(tokens_out) THEN 'missing_tokens'
            WHEN tokens_in < 0 OR tokens_out < 0 THEN 'negative_tokens'
            WHEN tokens_in > {limit} OR tokens_out > {limit} THEN 'absurd_tokens'
            ELSE 'missing_requests' END::reason AS reason
        FROM (
            SELECT {time_sql(scan.values[0], scan.types[0], layout, numeric=numeric)} AS t, {", ".join(numbers)},
                {class_sql(value, layout)} AS class,
                {class_key}::UBIGINT AS class_key, {scan.malformed} AS malformed, {scan.raw} AS raw
            FROM {scan.relation})"""


def _forget_unsplit(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("DROP TABLE IF EXISTS reject_errors")
    con.execute("DROP TABLE IF EXISTS reject_scans")


def _unsplit(con: duckdb.DuckDBPyConnection, file: TraceFile) -> pl.DataFrame:
    """The lines that the CSV reader gave up on."""
    if file.kind == "parquet":
        return Rejects.none()
    header = 1 if file.kind == "csv" else 0
    found: pl.DataFrame = con.sql(
        f"SELECT {literal(file.path.name)} AS file, line::BIGINT - {header} AS row_number, 'malformed_row' AS reason, "
        f"trim(left(any_value(csv_line), {_RAW_LENGTH}), e'\\r\\n') || ' (' || lower(any_value(error_type::VARCHAR)) "
        "|| ')' AS raw FROM reject_errors GROUP BY line ORDER BY line"
    ).pl()
    return found


def _unparsed(con: duckdb.DuckDBPyConnection, parsed: str, file: TraceFile) -> pl.DataFrame:
    """Second scan of a file, for the text of its rejected rows."""
    _forget_unsplit(con)
    found: pl.DataFrame = con.sql(
        f"SELECT {literal(file.path.name)} AS file, row_number, reason::VARCHAR AS reason, "
        f"left(raw, {_RAW_LENGTH}) AS raw FROM (SELECT row_number() OVER () AS row_number, * FROM ({parsed})) "
        f"WHERE reason <> '{_PAST_UNTIL}' "
        f"QUALIFY row_number() OVER (PARTITION BY reason ORDER BY row_number) <= {MAX_REJECTS_KEPT} ORDER BY row_number"
    ).pl()
    return found


def _reject_out_of_order(con: duckdb.DuckDBPyConnection, file: int) -> None:
    """Mark the rows of a file that are far ahead of both rows after them, then those far behind what is left.

    In this order, since one time far in the future would otherwise condemn every row after it.
    """
    tolerance = microseconds(ORDER_TOLERANCE)
    usable = f"{_USABLE} AND file = {file}"
    for condition in (
        f"SELECT id, t > lead(t, 1) OVER () + {tolerance} AND t > lead(t, 2) OVER () + {tolerance} AS wrong",
        f"SELECT id, t < max(t) OVER (ROWS UNBOUNDED PRECEDING) - {tolerance} AS wrong",
    ):
        con.execute(
            f"UPDATE data SET reason = 'time_out_of_order' "
            f"WHERE rowid IN (SELECT id FROM ({condition} FROM ({usable})) WHERE wrong)"
        )


def _reject_duplicates(con: duckdb.DuckDBPyConnection, *, key: str, among: str) -> None:
    """Mark all but the first of the rows with the same key."""
    con.execute(
        f"UPDATE data SET reason = 'duplicate' WHERE rowid IN (SELECT id FROM ({among}) "
        f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY id) > 1)"
    )


def _late_rejects(con: duckdb.DuckDBPyConnection, files: list[TraceFile]) -> pl.DataFrame:
    """The rows that were fine by themselves, as parsed."""
    names = " ".join(f"WHEN {number} THEN {literal(file.path.name)}" for number, file in enumerate(files))
    found: pl.DataFrame = con.sql(
        f"SELECT CASE file {names} END AS file, data.rowid - first_id + 1 AS row_number, reason::VARCHAR AS reason, "
        "concat_ws(',', make_timestamp(t), class, tokens_in, tokens_out) AS raw "
        "FROM data JOIN (SELECT file, min(rowid) AS first_id FROM data GROUP BY file) USING (file) "
        "WHERE reason IN ('time_out_of_order', 'duplicate') "
        f"QUALIFY row_number() OVER (PARTITION BY reason ORDER BY data.rowid) <= {MAX_REJECTS_KEPT} ORDER BY ALL"
    ).pl()
    return found
