"""Rows of a query into a Parquet file: from files by DuckDB, from PostgreSQL by its Arrow driver."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import adbc_driver_manager
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from floorcast.errors import DataError
from floorcast.source import SqlSource
from floorcast.units import format_duration
from pipelines.sources.traces.files import connection, literal

_PARTS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/|\$(start|end)\b""", re.DOTALL)
_SHOWN = 300
"""Characters of a database's message that an error repeats."""
_BATCH = 100_000
_END = "; \n\t"
_ATTEMPTS = 4
_BACKOFF_S = 0.5
_GRACE_S = 5.0
"""How much longer than the server's own time-out we wait for the server to say so."""

_PASSING = re.compile("08|40|53|57P")
"""SQLSTATE of what another attempt may not meet: connections, conflicts, resources, a server that comes or goes."""
_REFUSED = re.compile(
    "Failed to connect.*"
    "(authentication failed|no password supplied|pg_hba.conf|does not exist|certificate|SSL|invalid)",
    re.DOTALL,
)
"""Failures to connect have no SQLSTATE. These stay; the wording is that of servers whose messages are in English."""


@dataclass(frozen=True)
class Fetched:
    """How many rows were written, and what the statement gives: Arrow types by name."""

    rows: int
    columns: dict[str, str]


Writer = Callable[[pa.RecordBatchReader], Fetched]


@dataclass
class _TransientError(Exception):
    """Worth another attempt. Holds what the error says once there are no more."""

    what: str
    remedy: str


def rows_between(source: SqlSource, start: datetime, end: datetime) -> str:
    """The source's query over an interval, as a relation. What stands in quotes or comments is left alone."""
    times = {"start": start, "end": end}

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group() if name is None else f"TIMESTAMPTZ {literal(times[name].isoformat())}"

    return f"(\n{_PARTS.sub(put, source.query).rstrip(_END)}\n) AS requests"


def fetch(source: SqlSource, statement: str, *, wanted: tuple[str, ...], base: Path, into: Path) -> Fetched:
    """Write the wanted columns of a SELECT's rows to a Parquet file.

    A connection that cannot be made or breaks is tried again, from the first row. Raises DataError where the database
    cannot be read, the statement is not one SELECT, or a column is missing.
    """

    def write(reader: pa.RecordBatchReader) -> Fetched:
        return _write(source, reader, wanted, into)

    if source.database is None:
        return _from_files(source, statement, base, write)
    retrying = Retrying(
        retry=retry_if_exception_type(_TransientError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=_BACKOFF_S, max=30),
        reraise=True,
    )
    try:
        return retrying(_from_postgresql, source, source.database, statement, write)
    except _TransientError as error:
        raise fault(source, f"{error.what}, {_ATTEMPTS} times in a row", error.remedy) from None


def fault(source: SqlSource, what: str, remedy: str) -> DataError:
    # Everything up to the last @ may be credentials, and so may what follows a question mark.
    shown = "" if source.database is None else f" ({re.sub('//.*@', '//', source.database).partition('?')[0]})"
    return DataError(what, where=f"source {source.name}{shown}", remedy=remedy)


def _from_files(source: SqlSource, statement: str, base: Path, write: Writer) -> Fetched:
    with connection() as con:
        con.execute(f"SET file_search_path = {literal(str(base))}")
        con.execute("SET python_enable_replacements = false")
        con.execute("SET lock_configuration = true")
        try:
            if [one.type for one in con.extract_statements(statement)] != [duckdb.StatementType.SELECT]:
                raise fault(source, "the query is not one SELECT", "leave one SELECT; floorcast only reads")
            return write(con.sql(statement).to_arrow_reader(_BATCH))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise fault(
                source,
                f"DuckDB cannot run the query: {_brief(source, str(error))}",
                "correct `query`; paths in it are relative to the configuration's folder, and only what is built into "
                "DuckDB (Parquet, CSV, JSON) can be read",
            ) from None


def _from_postgresql(source: SqlSource, database: str, statement: str, write: Writer) -> Fetched:
    from adbc_driver_postgresql import dbapi  # noqa: PLC0415 (imports pandas where it is installed: half a second)

    url = f"{database}{'&' if '?' in database else '?'}connect_timeout=10&application_name=floorcast"
    timeout_ms = max(round(source.timeout.total_seconds() * 1000), 1)  # 0 would mean none
    began = time.monotonic()

    def read() -> Fetched:
        # Closing rolls back: nothing is left behind, whatever the query called.
        with dbapi.connect(url) as con, con.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(f"SET LOCAL statement_timeout = {timeout_ms}")
            cursor.execute("SET LOCAL TimeZone = 'UTC'")
            cursor.execute(statement)
            return write(cursor.fetch_record_batch())

    try:
        return _within(source.timeout.total_seconds() + _GRACE_S, read)
    except TimeoutError:
        raise fault(
            source, "the server stopped answering", "look at the server, and at what is between here and there"
        ) from None
    except adbc_driver_manager.Error as error:
        raise _explained(source, str(error), error.sqlstate or "", time.monotonic() - began) from None
    except (pa.ArrowException, OSError) as error:
        # What goes wrong after the first rows comes by way of Arrow, without an SQLSTATE.
        raise _explained(
            source, str(error), "22000" if "ERROR:" in str(error) else "", time.monotonic() - began
        ) from None


def _explained(source: SqlSource, said: str, state: str, took_s: float) -> Exception:
    words = _brief(source, said)
    if state == "57014" or "statement timeout" in said:
        return fault(
            source,
            f"the query took longer than {format_duration(source.timeout)} and was cancelled",
            "add an index on the column of times, shorten `chunk`, or raise `timeout`",
        )
    if not state and _REFUSED.search(said):
        return fault(
            source, f"the server refused the connection: {words}", "check the user, password, database and host"
        )
    if not state or _PASSING.match(state):
        return _TransientError(
            f"the connection failed after {took_s:.0f} s ({words})", "check that the server runs and can be reached"
        )
    return fault(source, f"PostgreSQL cannot run the query: {words}", "correct `query`, or what its user may read")


def _within(seconds: float, work: Callable[[], Fetched]) -> Fetched:
    """What `work` returns. Raises TimeoutError after so long: its thread, stuck in the driver, is left behind."""
    outcome: Future[Fetched] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except (adbc_driver_manager.Error, pa.ArrowException, OSError, DataError) as error:
            outcome.set_exception(error)
        finally:
            outcome.cancel()  # does nothing once there is an outcome

    Thread(target=run, daemon=True).start()
    return outcome.result(seconds)


def _write(source: SqlSource, reader: pa.RecordBatchReader, wanted: tuple[str, ...], into: Path) -> Fetched:
    positions = positions_of(source, reader.schema.names, wanted)
    fields = [reader.schema.field(position) for position in positions]
    plain = [f.type.storage_type if isinstance(f.type, pa.BaseExtensionType) else f.type for f in fields]
    schema = pa.schema(list(zip(wanted, plain, strict=True)))
    rows = 0
    with pq.ParquetWriter(into, schema) as writer:
        for batch in reader:
            columns = [batch.column(position) for position in positions]
            stored = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in columns]
            writer.write_batch(pa.RecordBatch.from_arrays(stored, schema=schema))
            rows += batch.num_rows
    return Fetched(rows, {field.name: str(field.type) for field in reader.schema})


def positions_of(source: SqlSource, present: list[str], wanted: tuple[str, ...]) -> list[int]:
    """Where each wanted column is; case matters only where two differ by nothing else."""
    plain = [name.casefold() for name in present]
    positions = []
    for name in wanted:
        if name in present:
            positions.append(present.index(name))
        elif name.casefold() in plain:
            positions.append(plain.index(name.casefold()))
        else:
            near = difflib.get_close_matches(name.casefold(), plain, n=1, cutoff=0.5)
            raise fault(
                source,
                f"the query gives no column `{name}`; it gives {', '.join(f'`{one}`' for one in present[:20])}",
                f"did you mean `{present[plain.index(near[0])]}`? correct `columns` or `query`"
                if near
                else "correct `columns`, or name it in `query` with AS",
            )
    return positions


def _brief(source: SqlSource, said: str) -> str:
    """A database's message in a line, without the statement and the password."""
    text = said.partition("\n\nQuery was:")[0]
    password = re.search(r"//[^:@/]*:([^@/]*)@", source.database or "")
    if password and password[1]:
        text = text.replace(password[1], "***").replace(unquote(password[1]), "***")
    return " ".join(text.split())[:_SHOWN]
