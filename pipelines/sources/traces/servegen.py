"""ServeGen's clients: request rates per 10-minute window times mean token lengths per 6-hour window."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl

from floorcast.columns import DEMAND, conform
from floorcast.errors import ConfigError, DataError
from floorcast.source import TraceSource
from floorcast.units import EPOCH, floor_to_step, format_duration
from pipelines.sources.traces.files import (
    TraceFile,
    connection,
    find_files,
    literal,
    microseconds,
    not_readable,
    scan_file,
)
from pipelines.sources.traces.layout import check_classes
from pipelines.sources.traces.result import MAX_REJECTS_KEPT, Rejects, TraceImport, check_reject_share

WINDOW = timedelta(minutes=10)
LENGTHS_WINDOW = timedelta(hours=6)

EXPECTED_MAXIMUM_OF_TEN = 1.54
"""Expected maximum of ten standard normals, 1.5388 (Harter 1961, Expected values of normal order statistics)."""

_RATES = ("client", "window_start_s", "requests_per_s", "interarrival_cv")
_LENGTHS = ("client", "window_start_s", "mean_input_tokens", "mean_output_tokens")
_PAST_UNTIL = "past_until"


def import_servegen(
    source: TraceSource, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read a pair of files of rates and lengths (Xiang et al., arXiv 2505.09999). Raises as `import_trace` says.

    A client that `source.clients` does not name has no class and no demand, but is one of the model's clients for
    the mean lengths below. A window counts once it is over: with `until`, windows of either file that end after it
    are not looked at.

    requests = rate x 600 s. Tokens = requests x mean length, the mean interpolated linearly between the centres of
    the 6-hour windows and constant beyond the first and the last; a client without lengths takes the mean over all
    clients that have them, weighted by their rates. A client's window without a row is missing: the class's sums lack
    it and `observed_fraction` is the share of its clients' windows that are there.

    The peak 1-minute rate is an estimate. The count of requests in a minute is about Normal(60 r, c^2 60 r), with r
    the rate and c the interarrival cv; clients are independent, so the tokens of a class in a minute have the mean
    sum(60 r L) and the variance sum(c^2 60 r L^2); the largest of the window's ten minutes lies about 1.54 standard
    deviations above the mean, and cannot hold more than the whole window.
    """
    start = _check(source, step=step, classes=classes)
    lengths_path = source.lengths or ""
    [rates] = _one(find_files(source.path, base=base, kind="parquet", key="path"), key="path")
    [lengths] = _one(find_files(lengths_path, base=base, kind="parquet", key="lengths"), key="lengths")
    with connection() as con:
        con.execute("SET threads = 1")  # sums of floats in one order: the same result each time
        _load(con, "rates", rates, _RATES, window=WINDOW, start=start, until=until, source=source)
        _load(con, "lengths", lengths, _LENGTHS, window=LENGTHS_WINDOW, start=start, until=until, source=source)
        _assign_classes(con, source, where=str(rates.path))
        rejects = Rejects.of(source, [_rejects(con, "rates", rates), _rejects(con, "lengths", lengths)])
        counts = dict(
            con.execute(
                "SELECT reason, count(*) FROM (SELECT reason FROM rates UNION ALL SELECT reason FROM lengths) "
                "GROUP BY 1"
            ).fetchall()
        )
        used, past_until = counts.pop(None, 0), counts.pop(_PAST_UNTIL, 0)
        read = used + past_until + sum(counts.values())
        check_reject_share(
            source, rejected=counts, examples=rejects.examples, rows_considered=read - past_until, where=str(rates.path)
        )
        first, last = _span(con, where=str(lengths.path))
        demand = _demand(con, source, step=step)
    end = None if last is None else last + WINDOW
    stop = None if end is None else floor_to_step(end, step)
    return TraceImport(
        demand=demand if stop is None else demand.filter(pl.col("step_start") < stop),
        rejects=rejects.frame,
        rejected=counts,
        examples=rejects.examples,
        rows_read=read,
        rows_used=used,
        rows_past_until=past_until,
        first_time=first,
        last_time=last,
        incomplete_step=None if stop == end else stop,
    )


def _check(source: TraceSource, *, step: timedelta, classes: Collection[str]) -> datetime:
    where = f"sources.{source.name}"
    if step % WINDOW:
        raise ConfigError(
            f"step {format_duration(step)} is not a multiple of ServeGen's 10-minute windows",
            where=where,
            remedy="set step: 10m, 30m or 1h",
        )
    if source.start is None or (source.start - EPOCH) % WINDOW:
        raise ConfigError(
            "start is not on a 10-minute boundary, so windows would straddle steps",
            where=f"{where}.start",
            remedy="write e.g. start: 2026-11-01T00:00:00+08:00",
        )
    check_classes(source, list(source.clients), classes, key="clients")
    stars = [name for name, ids in source.clients.items() if ids == "*"]
    listed = [client for ids in source.clients.values() if ids != "*" for client in ids]
    twice = sorted({client for client in listed if listed.count(client) > 1})
    if len(stars) > 1 or twice:
        raise ConfigError(
            f"clients {', '.join(map(str, twice))} are given twice" if twice else f"`*` is given to {', '.join(stars)}",
            where=f"{where}.clients",
            remedy="give each client, and the rest, to one class",
        )
    return source.start


def _one(files: list[TraceFile], *, key: str) -> list[TraceFile]:
    if len(files) > 1:
        raise DataError(
            f"{len(files)} files match",
            where=f"`{key}`",
            remedy="name one file; a model's rates and lengths go together",
        )
    return files


def _load(
    con: duckdb.DuckDBPyConnection,
    table: str,
    file: TraceFile,
    columns: tuple[str, ...],
    *,
    window: timedelta,
    start: datetime,
    until: datetime | None,
    source: TraceSource,
) -> None:
    """A table of a file's rows: row_number, client, t (us since 1970), a and b (the last two columns), reason."""
    scan = scan_file(con, file, columns, strict=True)
    client, seconds, a, b = scan.values
    window_s = int(window.total_seconds())
    past = "false" if until is None else f"t + {microseconds(window)} > {microseconds(until)}"
    if table == "rates":
        judged = f"""WHEN a IS NULL OR isnan(a) OR isinf(a) OR a < 0 OR b < 0 THEN 'missing_rate'
            WHEN a > {source.max_tokens} THEN 'absurd_tokens'"""
    else:
        judged = f"""WHEN a IS NULL OR b IS NULL OR isnan(a) OR isnan(b) THEN 'missing_tokens'
            WHEN a < 0 OR b < 0 THEN 'negative_tokens'
            WHEN a > {source.max_tokens} OR b > {source.max_tokens} THEN 'absurd_tokens'"""
    try:
        con.execute(f"""
            CREATE TABLE {table} AS
            SELECT * REPLACE (CASE WHEN reason IS NULL AND row_number() OVER (
                PARTITION BY client, t, reason ORDER BY row_number) > 1 THEN 'duplicate' ELSE reason END AS reason)
            FROM (
                SELECT *, CASE
                    WHEN t IS NULL THEN 'unparsable_time' WHEN client IS NULL THEN 'unknown_class'
                    WHEN {past} THEN '{_PAST_UNTIL}' {judged} END AS reason
                FROM (
                    SELECT row_number() OVER () AS row_number, TRY_CAST({client} AS BIGINT) AS client,
                        TRY_CAST({a} AS DOUBLE) AS a, TRY_CAST({b} AS DOUBLE) AS b,
                        CASE WHEN TRY_CAST({seconds} AS BIGINT) >= 0 AND TRY_CAST({seconds} AS BIGINT) % {window_s} = 0
                            THEN {microseconds(start)} + TRY_CAST({seconds} AS BIGINT) * 1000000 END AS t
                    FROM {scan.relation}))
            ORDER BY client, t, row_number""")
    except duckdb.Error as error:
        raise not_readable(file.path, file.kind, error) from None


def _assign_classes(con: duckdb.DuckDBPyConnection, source: TraceSource, *, where: str) -> None:
    """A table of each client's class, null for none. Raises DataError for a client that the file does not have."""
    listed = {client: name for name, ids in source.clients.items() if ids != "*" for client in ids}
    found = con.execute("SELECT DISTINCT client FROM rates WHERE client IS NOT NULL ORDER BY client").fetchall()
    present = [row[0] for row in found]
    absent = sorted(set(listed) - set(present))
    if not present or absent:
        raise DataError(
            f"holds no rows of client{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent)) or 'any number'}"
            + (f"; it has {present[0]} to {present[-1]}" if present else ""),
            where=where,
            remedy=f"correct `clients` of source {source.name}",
        )
    rest = next((name for name, ids in source.clients.items() if ids == "*"), None)
    frame = pl.DataFrame(
        {"client": present, "workload_class": [listed.get(client, rest) for client in present]},
        schema={"client": pl.Int64, "workload_class": pl.String},
    )
    con.register("frame", frame)
    con.execute("CREATE TABLE clients AS FROM frame")


def _rejects(con: duckdb.DuckDBPyConnection, table: str, file: TraceFile) -> pl.DataFrame:
    found: pl.DataFrame = con.sql(
        f"SELECT {literal(file.path.name)} AS file, row_number, reason, concat_ws(',', client, t, a, b) AS raw "
        f"FROM {table} WHERE reason <> '{_PAST_UNTIL}' "
        f"QUALIFY row_number() OVER (PARTITION BY reason ORDER BY row_number) <= {MAX_REJECTS_KEPT} ORDER BY row_number"
    ).pl()
    return found


def _span(con: duckdb.DuckDBPyConnection, *, where: str) -> tuple[datetime | None, datetime | None]:
    [(first, last, lengths)] = con.execute(
        "SELECT min(t), max(t), (SELECT count(*) FROM lengths WHERE reason IS NULL) FROM rates WHERE reason IS NULL"
    ).fetchall()
    if first is None or last is None:
        return None, None
    if not lengths:
        raise DataError(
            "no token lengths are known, so rates cannot become tokens",
            where=where,
            remedy="name the model's file of lengths; with --now, choose a time at least 6 hours after `start`",
        )
    return EPOCH + timedelta(microseconds=first), EPOCH + timedelta(microseconds=last)


def _demand(con: duckdb.DuckDBPyConnection, source: TraceSource, *, step: timedelta) -> pl.DataFrame:
    half_window, half_lengths = microseconds(WINDOW) // 2, microseconds(LENGTHS_WINDOW) // 2
    seconds, step_us = WINDOW.total_seconds(), microseconds(step)
    demand = con.sql(f"""
        WITH known AS (
            SELECT client, t + {half_lengths} AS centre, a AS l_in, b AS l_out FROM lengths WHERE reason IS NULL),
        rate AS (
            SELECT client, t, t + {half_window} AS centre, a AS r, coalesce(b, 1) AS cv
            FROM rates WHERE reason IS NULL),
        around AS (
            SELECT rate.*, before.l_in AS in0, before.l_out AS out0, after.l_in AS in1, after.l_out AS out1,
                CASE WHEN before.centre IS NULL THEN 1 WHEN after.centre IS NULL THEN 0
                    ELSE (rate.centre - before.centre) / (after.centre - before.centre) END AS weight
            FROM rate
            ASOF LEFT JOIN known AS before ON rate.client = before.client AND rate.centre >= before.centre
            ASOF LEFT JOIN known AS after ON rate.client = after.client AND rate.centre < after.centre),
        own AS (
            SELECT client, t, r, cv,
                coalesce(in0, in1) * (1 - weight) + coalesce(in1, in0) * weight AS l_in,
                coalesce(out0, out1) * (1 - weight) + coalesce(out1, out0) * weight AS l_out
            FROM around),
        model AS (
            SELECT coalesce(sum(r * l_in) / nullif(sum(r), 0), avg(l_in)) AS l_in,
                coalesce(sum(r * l_out) / nullif(sum(r), 0), avg(l_out)) AS l_out
            FROM own WHERE l_in IS NOT NULL),
        filled AS (
            SELECT workload_class, t, r, cv, coalesce(own.l_in, model.l_in) AS l_in,
                coalesce(own.l_out, model.l_out) AS l_out
            FROM own JOIN clients USING (client) CROSS JOIN model
            WHERE workload_class IS NOT NULL ORDER BY client, t),
        windows AS (
            SELECT workload_class, t, count(*) AS clients, sum(r) * {seconds} AS requests,
                sum(r * l_in) AS in_per_s, sum(r * l_out) AS out_per_s,
                sqrt(sum(cv * cv * 60 * r * l_in * l_in)) / 60 AS in_sd,
                sqrt(sum(cv * cv * 60 * r * l_out * l_out)) / 60 AS out_sd
            FROM filled GROUP BY ALL ORDER BY ALL),
        sizes AS (SELECT workload_class, count(*) AS size FROM clients GROUP BY ALL)
        SELECT workload_class, t // {step_us} * {step_us} AS step_start,
            sum(in_per_s) * {seconds} AS tokens_in, sum(out_per_s) * {seconds} AS tokens_out, sum(requests) AS requests,
            max(least(in_per_s + {EXPECTED_MAXIMUM_OF_TEN} * in_sd, 10 * in_per_s)) AS peak_tokens_in_per_s,
            max(least(out_per_s + {EXPECTED_MAXIMUM_OF_TEN} * out_sd, 10 * out_per_s)) AS peak_tokens_out_per_s,
            sum(clients) / (any_value(size) * {step // WINDOW}) AS observed_fraction
        FROM windows JOIN sizes USING (workload_class) GROUP BY ALL""").pl()
    dated = demand.with_columns(
        step_start=pl.col("step_start").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"), source=pl.lit(source.name)
    )
    return conform(dated, DEMAND).sort("workload_class", "step_start")
