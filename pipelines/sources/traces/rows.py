"""Import of traces whose rows are single requests or sums: parse, judge, aggregate."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
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
from pipelines.sources.traces.layout import STAMPS, Layout, class_sql, layout_of, time_sql
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


@dataclass(frozen=True)
class _Loaded:
    """A file in the table `parsed`: its rows are those from `first` to `last` there."""

    file: TraceFile
    scan: Scan
    earliest: int
    """microseconds since 1970 of the first time that can be meant"""
    first: int
    last: int
    unsplit: pl.DataFrame
    """the lines that are no rows"""

    @property
    def rows(self) -> str:
        return f"id BETWEEN {self.first} AND {self.last}"

    @property
    def usable(self) -> str:
        return f"FROM data WHERE reason IS NULL AND {self.rows}"


def import_rows(
    source: TraceSource, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read Azure, BurstGPT, Mooncake and generic files. Raises as `import_trace` says."""
    layout = layout_of(source, step=step, classes=classes)
    files = find_files(source.path, base=base, kind=layout.kind, key="path")
    with connection() as con:
        _create_table(con, layout)
        loaded: list[_Loaded] = []
        for file in files:
            loaded.append(_load(con, file, layout, after=loaded[-1].last if loaded else -1))
        _create_view(con, layout)
        found = [_judge(con, part, layout, max_tokens=source.max_tokens, until=until) for part in loaded]
        for part in loaded if layout.ordered else []:
            unordered, repeated = _neighbours(con, part)
            if unordered:
                _reject_out_of_order(con, part)
            if layout.exact_clock and (unordered or repeated):
                # Neighbours of one time: a few rows to sort instead of all.
                same_time = f"{part.usable} QUALIFY t = lag(t) OVER () OR t = lead(t) OVER ()"
                _reject_duplicates(con, key="t, tokens_in, tokens_out", among=same_time)
        if layout.row_interval is not None:
            # By the class as written: two of its values that are mapped to one class add up.
            _reject_duplicates(con, key="class_key, t", among="FROM data WHERE reason IS NULL")
        counts = dict(
            con.execute("SELECT reason::VARCHAR, count(*) FROM data WHERE reason IS NOT NULL GROUP BY ALL").fetchall()
        )
        [(used,)] = con.execute("SELECT count(*) FROM data WHERE reason IS NULL").fetchall()
        past_until = counts.pop(_PAST_UNTIL, 0)
        if unsplit := sum(part.unsplit.height for part in loaded):
            counts["malformed_row"] = counts.get("malformed_row", 0) + unsplit
        read = used + past_until + sum(counts.values())
        rejects = Rejects.of(source, [*found, *(_late_rejects(con, part) for part in loaded)])
        where = str(files[0].path) if len(files) == 1 else f"{source.path} ({len(files)} files)"
        if not read:
            raise DataError("has a header but no rows", where=where, remedy="export the trace again")
        check_reject_share(
            source, rejected=counts, examples=rejects.examples, rows_considered=read - past_until, where=where
        )
        steps = _steps(con, source, layout, step=step, until=until if past_until else None, where=where)
        rows_apart = None if layout.row_interval is None else _apart(con)
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
        rows_apart=rows_apart,
    )


def _apart(con: duckdb.DuckDBPyConnection) -> timedelta | None:
    """The tenth percentile: intervals without a row move it as little as a row that is out of place does."""
    [(apart,)] = con.execute(
        "SELECT quantile_disc(apart, 0.1) FROM (SELECT t - lag(t) OVER (PARTITION BY class_key ORDER BY t) AS apart "
        "FROM data WHERE reason IS NULL)"
    ).fetchall()
    return None if apart is None else timedelta(microseconds=apart)


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


def _create_table(con: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """`parsed` holds what differs from row to row: tens of millions of them are written and read again."""
    con.execute(f"CREATE TYPE reason AS ENUM ({', '.join(map(literal, _REASONS))})")
    classes = sorted({*layout.mapping.values(), *layout.named})
    con.execute(f"CREATE TYPE workload_class AS ENUM ({', '.join(map(literal, classes))})")
    by_class = ", class workload_class" if layout.class_position is not None else ""
    sums = ", requests DOUBLE, class_key UBIGINT" if layout.row_interval is not None else ""
    con.execute(
        f"CREATE TABLE parsed (t BIGINT, tokens_in DOUBLE, tokens_out DOUBLE, malformed BOOLEAN{by_class}{sums})"
    )


def _create_view(con: duckdb.DuckDBPyConnection, layout: Layout) -> None:
    """`data`: a row for every row read, its class, and why it is not used (null: it is)."""
    con.execute("ALTER TABLE parsed ADD COLUMN reason reason")
    by_class = "class" if layout.class_position is not None else f"{class_sql('NULL', layout)}::workload_class AS class"
    sums = ", requests, class_key" if layout.row_interval is not None else ""
    con.execute(
        f"CREATE VIEW data AS SELECT rowid AS id, t, tokens_in, tokens_out, malformed, {by_class}{sums}, reason "
        "FROM parsed"
    )


def _load(con: duckdb.DuckDBPyConnection, file: TraceFile, layout: Layout, *, after: int) -> _Loaded:
    """Append a file to `parsed`, a row for every row. `after`: the last row of the file before.

    A quote that does not close can swallow the rest of a CSV, so a fault in a strict scan means to read it again.
    """
    try:
        for strict in (True, False):
            scan = scan_file(con, file, layout.columns, numbers=layout.number_positions, strict=strict)
            time, earliest = _time(con, scan, layout)
            unsplit = _insert(con, file, scan, f"INSERT INTO parsed {_parse_sql(scan, layout, time=time)}")
            if unsplit.is_empty() or not scan.strict:
                break
            con.execute(f"DELETE FROM parsed WHERE rowid > {after}")
    except duckdb.Error as error:
        raise not_readable(file.path, file.kind, error) from None
    [(first, last)] = con.execute(f"SELECT min(rowid), max(rowid) FROM parsed WHERE rowid > {after}").fetchall()
    if first is None:
        first, last = after + 1, after
    return _Loaded(file, scan, earliest, first, last, unsplit)


def _insert(con: duckdb.DuckDBPyConnection, file: TraceFile, scan: Scan, insert: str) -> pl.DataFrame:
    """Append the rows that `insert` selects from a file, and hand back the lines that are no rows.

    As numbers while all of them are; from the start and as text, which tells what is wrong, where one is not.
    """
    if scan.numeric is not None:
        with suppress(duckdb.ConversionException, duckdb.InvalidInputException):
            con.execute(f"{insert} FROM {scan.numeric}")
            return Rejects.none()
    _forget_unsplit(con)
    con.execute(f"{insert} FROM {scan.relation}")
    return _unsplit(con, file)


def _time(con: duckdb.DuckDBPyConnection, scan: Scan, layout: Layout) -> tuple[str, int]:
    """The time of a file's rows as SQL, and the earliest that can be meant.

    Its first rows tell whether they make more sense as numbers than as timestamps, and how most of those are written.
    """
    value, duckdb_type = scan.values[0], scan.types[0]
    counts = [
        f"count(*) FILTER ({time_sql('value', duckdb_type, layout, numeric=numeric)} BETWEEN {_EARLIEST} AND {_LATEST})"
        for numeric in (True, False)
    ]
    if duckdb_type == "VARCHAR":
        counts += [f"count(try_strptime(value, {literal(stamp)}))" for stamp in STAMPS]
    [(numbers, stamps, *hits)] = con.execute(
        f"SELECT {', '.join(counts)} FROM (SELECT {value} AS value FROM {scan.relation} LIMIT {SAMPLE})"
    ).fetchall()
    if numbers > stamps:
        earliest = _EARLIEST if layout.start_us is None else max(_EARLIEST, layout.start_us)
        return time_sql(value, duckdb_type, layout, numeric=True), earliest
    usual = STAMPS[hits.index(max(hits))] if any(hits) else None
    return time_sql(value, duckdb_type, layout, numeric=False, usual=usual), _EARLIEST


def _parse_sql(scan: Scan, layout: Layout, *, time: str) -> str:
    """What a row of `parsed` is for every row of a file, what cannot be read as null: a query without its FROM."""

    def number(position: int | None) -> str:
        return "NULL" if position is None else f"TRY_CAST({scan.values[position]} AS DOUBLE)"

    columns = [time, number(1), number(2), scan.malformed]
    value = "NULL" if layout.class_position is None else scan.values[layout.class_position]
    if layout.class_position is not None:
        columns.append(class_sql(value, layout))
    if layout.row_interval is not None:
        columns += [number(layout.requests_position), f"hash({value})"]
    return f"SELECT {', '.join(columns)}"


def _judge(
    con: duckdb.DuckDBPyConnection, part: _Loaded, layout: Layout, *, max_tokens: int, until: datetime | None
) -> pl.DataFrame:
    """Mark the rows of a file that cannot be used by themselves, and hand them back as they are in the file."""
    interval_us = 0 if layout.row_interval is None else microseconds(layout.row_interval)
    limit = max_tokens * (layout.row_interval.total_seconds() if layout.row_interval is not None else 1)
    past = "false" if until is None else f"t >= {microseconds(until) - max(interval_us - 1, 0)}"
    time = f"t BETWEEN {part.earliest} AND {_LATEST}"
    usable = [f"NOT malformed AND {time} AND tokens_in BETWEEN 0 AND {limit} AND tokens_out BETWEEN 0 AND {limit}"]
    usable.append(f"NOT ({past})")
    if layout.class_position is not None:
        usable.append("class IS NOT NULL")
    if layout.requests_position is not None:
        usable.append("requests BETWEEN 0 AND 1e15")
    con.execute(f"""
        UPDATE parsed SET reason = CASE
            WHEN malformed THEN 'malformed_row'
            WHEN NOT coalesce({time}, false) THEN 'unparsable_time'
            WHEN {past} THEN '{_PAST_UNTIL}'
            {"WHEN class IS NULL THEN 'unknown_class'" if layout.class_position is not None else ""}
            WHEN tokens_in IS NULL OR tokens_out IS NULL OR isnan(tokens_in) OR isnan(tokens_out) THEN 'missing_tokens'
            WHEN tokens_in < 0 OR tokens_out < 0 THEN 'negative_tokens'
            WHEN tokens_in > {limit} OR tokens_out > {limit} THEN 'absurd_tokens'
            ELSE 'missing_requests' END::reason
        WHERE rowid BETWEEN {part.first} AND {part.last} AND NOT coalesce({" AND ".join(usable)}, false)""")
    return pl.concat([part.unsplit, _unparsed(con, part)], how="vertical_relaxed")


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


def _unparsed(con: duckdb.DuckDBPyConnection, part: _Loaded) -> pl.DataFrame:
    """Second scan of a file, if any of its rows were rejected, for their text."""
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE bad AS SELECT id - {part.first} + 1 AS _row, reason AS _reason FROM data "
        f"WHERE reason <> '{_PAST_UNTIL}' AND {part.rows} "
        f"QUALIFY row_number() OVER (PARTITION BY reason ORDER BY id) <= {MAX_REJECTS_KEPT}"
    )
    if con.execute("SELECT count(*) FROM bad").fetchall() == [(0,)]:
        return Rejects.none()
    _forget_unsplit(con)
    try:
        found = con.sql(
            f"SELECT {literal(part.file.path.name)} AS file, _row AS row_number, _reason::VARCHAR AS reason, "
            f"left({part.scan.raw}, {_RAW_LENGTH}) AS raw "
            f"FROM (SELECT row_number() OVER () AS _row, * FROM {part.scan.relation}) "
            "JOIN bad USING (_row) ORDER BY _row"
        ).pl()
    except duckdb.Error as error:
        raise not_readable(part.file.path, part.file.kind, error) from None
    return _numbered(found, part)


def _numbered(found: pl.DataFrame, part: _Loaded) -> pl.DataFrame:
    """Count the lines that are no rows in the numbers of the rows after them."""
    lines = part.unsplit["row_number"]
    before = (lines - pl.int_range(lines.len(), eager=True)).search_sorted(found["row_number"], side="right")
    return found.with_columns(row_number=pl.col("row_number") + before)


def _neighbours(con: duckdb.DuckDBPyConnection, part: _Loaded) -> tuple[bool, bool]:
    """Whether any row of a file lies before the one above it, and whether any has its time."""
    [(unordered, repeated)] = con.execute(
        "SELECT count(*) FILTER (t < above) > 0, count(*) FILTER (t = above) > 0 "
        f"FROM (SELECT t, lag(t) OVER () AS above {part.usable})"
    ).fetchall()
    return unordered, repeated


def _reject_out_of_order(con: duckdb.DuckDBPyConnection, part: _Loaded) -> None:
    """Mark the rows of a file that are far ahead of both rows after them, then those far behind what is left.

    In this order, since one time far in the future would otherwise condemn every row after it.
    """
    tolerance = microseconds(ORDER_TOLERANCE)
    for condition in (
        f"SELECT id, t > lead(t, 1) OVER () + {tolerance} AND t > lead(t, 2) OVER () + {tolerance} AS wrong",
        f"SELECT id, t < max(t) OVER (ROWS UNBOUNDED PRECEDING) - {tolerance} AS wrong",
    ):
        con.execute(
            f"UPDATE parsed SET reason = 'time_out_of_order' "
            f"WHERE rowid IN (SELECT id FROM ({condition} {part.usable}) WHERE wrong)"
        )


def _reject_duplicates(con: duckdb.DuckDBPyConnection, *, key: str, among: str) -> None:
    """Mark all but the first of the rows with the same key."""
    con.execute(
        f"UPDATE parsed SET reason = 'duplicate' WHERE rowid IN (SELECT id FROM (SELECT id, {key} {among}) "
        f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY id) > 1)"
    )


def _late_rejects(con: duckdb.DuckDBPyConnection, part: _Loaded) -> pl.DataFrame:
    """The rows of a file that were fine by themselves, as parsed."""
    found = con.sql(
        f"SELECT {literal(part.file.path.name)} AS file, id - {part.first} + 1 AS row_number, "
        "reason::VARCHAR AS reason, concat_ws(',', make_timestamp(t), class, tokens_in, tokens_out) AS raw "
        f"FROM data WHERE reason IN ('time_out_of_order', 'duplicate') AND {part.rows} "
        f"QUALIFY row_number() OVER (PARTITION BY reason ORDER BY id) <= {MAX_REJECTS_KEPT} ORDER BY id"
    ).pl()
    return _numbered(found, part)
