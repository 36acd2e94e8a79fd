"""Opening, locking and closing the DuckDB file.

DuckDB lets one process at a time hold a file that is written, readers included: open it, work, close it.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

import duckdb
import polars as pl
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from floorcast.errors import DataError, StoreError, StoreLockedError
from store.ledger import load_migrations, migrate, pending

# Without these DuckDB would try to download extensions.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_RETRY_S = 0.05
_READER_WAITS_S = 5.0

_waits_s: ContextVar[float] = ContextVar("waits_s", default=_READER_WAITS_S)

_in_process: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)

_left: dict[Path, tuple[int, int, int] | None] = {}
"""Each file as this process left it. One that is still so need not be looked at again before it is opened to write."""

Value = str | int | float | datetime | list[str] | None


class Store:
    """An open database. Belongs to one thread; made by `open_store`."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self.connection = connection
        self._in_transaction = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside are one: all stay, or none. Inside another transaction it is part of that one."""
        if self._in_transaction:
            yield
            return
        self.execute("BEGIN TRANSACTION")
        self._in_transaction = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # A failed commit has rolled back already, and a full disk may have ended the connection.
            with suppress(duckdb.Error):
                self.connection.rollback()
            raise
        finally:
            self._in_transaction = False

    def execute(self, sql: str, parameters: Mapping[str, Value] | None = None, **frames: pl.DataFrame) -> None:
        """Run a statement, which may name the frames given. Raises StoreError with DuckDB's reason."""
        try:
            for name, frame in frames.items():
                self.connection.register(name, frame)
            self.connection.execute(sql, _checked(parameters))
            for name in frames:
                self.connection.unregister(name)
        except duckdb.Error as error:
            raise self._failed(error) from error

    def read(self, sql: str, parameters: Mapping[str, Value] | None = None) -> pl.DataFrame:
        """The rows of a query; times come back as Datetime("us", "UTC"). Raises StoreError with DuckDB's reason."""
        try:
            frame: pl.DataFrame = self.connection.sql(sql, params=_checked(parameters)).pl()
        except duckdb.Error as error:
            raise self._failed(error) from error
        return frame

    def _failed(self, error: duckdb.Error) -> StoreError:
        return StoreError(
            str(error),
            where=str(self.path),
            remedy="check free disk space and that the folder is writable; what was not committed is not kept",
        )


@cache
def query(name: str) -> str:
    """The text of `store/queries/NAME.sql`."""
    return (resources.files("store") / "queries" / f"{name}.sql").read_text(encoding="utf-8")


def utc(moment: datetime, name: str) -> datetime:
    """The moment in UTC. Raises DataError where it has no zone, since it could be any of 26 hours."""
    if moment.tzinfo is None:
        raise DataError(f"time {moment} has no zone", where=name, remedy="pass an aware time, in UTC")
    return moment.astimezone(UTC)


def _checked(parameters: Mapping[str, Value] | None) -> dict[str, Value]:
    return {
        name: utc(value, name) if isinstance(value, datetime) else value for name, value in (parameters or {}).items()
    }


@contextmanager
def patient(wait_s: float) -> Iterator[None]:
    """Every opening inside waits so many seconds for a process that holds the file, unless it says otherwise: what runs
    by the clock must not fail because somebody is reading."""
    token = _waits_s.set(wait_s)
    try:
        yield
    finally:
        _waits_s.reset(token)


@contextmanager
def open_store(path: Path, *, wait_s: float | None = None) -> Iterator[Store]:
    """Open the database at `path`, created (with its folder) and migrated as needed, and close it at the end.

    Another process that holds it is waited for up to `wait_s` seconds, 5 unless `patient` or given. After closing, the
    file stands alone: nothing is in the write-ahead log, of which at most an empty file is left where the last writer
    was killed.

    Raises StoreLockedError naming the process that holds it, StoreNewerError where a newer floorcast wrote it
    (nothing was touched), and StoreError where it is not a database of ours or cannot be written.
    """
    path = path.resolve()
    wait_s = _waits_s.get() if wait_s is None else wait_s
    # DuckDB would share one instance between two openings in a process, whose writes then conflict.
    if not _in_process[path].acquire(timeout=wait_s):
        raise _locked(path, os.getpid())
    try:
        waiting = Retrying(
            retry=retry_if_exception_type(StoreLockedError),
            stop=stop_after_delay(wait_s),
            wait=wait_fixed(_RETRY_S),
            reraise=True,
        )
        connection = waiting(_open, path)
        try:
            yield Store(path, connection)
        finally:
            connection.close()
            _left[path] = _seal(path)
    finally:
        _in_process[path].release()


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
            raise _unwritable(path, "the folder is not writable")
        if not path.exists():
            _create(path)
        elif (seal := _seal(path)) is None or seal != _left.get(path):
            _refuse_foreign(path)
        connection = _connect(path)
        try:
            migrate(connection, load_migrations(), where=str(path))
        except BaseException:
            connection.close()
            raise
        return connection


def _seal(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written to; None where it cannot be told, as beside a
    write-ahead log."""
    try:
        found = path.stat()
        alone = not _wal(path).exists()
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if alone else None


def _refuse_foreign(path: Path) -> None:
    """Look before opening for writing, which alone may already change the file: read-only never does."""
    if not path.is_file():
        raise StoreError("not a file", where=str(path), remedy="set store.path to a file, not a folder")
    # Closing a file drops all locks its process holds on it. None is held here: openings exclude each other.
    with path.open("rb") as file:
        header = file.read(12)
    if header[8:] != b"DUCK":
        raise StoreError(
            "the file is not a DuckDB database",
            where=str(path),
            remedy="set store.path to another file, or move this one away to start anew",
        )
    with closing(_connect(path, read_only=True)) as connection:
        pending(connection, load_migrations(), where=str(path))


def _create(path: Path) -> None:
    """Make the database beside its place and rename it: killed midway, nothing unreadable is left there."""
    fresh = path.with_name(f"{path.name}.new")
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        # The lock on the folder ends with the process, and makes a second creator wait.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.exists():
            return
        if _wal(path).exists():
            raise StoreError(
                f"its write-ahead log {_wal(path).name} is there, but the database is not",
                where=str(path),
                remedy="put the database file back, or move the log away to start anew",
            )
        for leftover in (fresh, _wal(fresh)):
            leftover.unlink(missing_ok=True)
        with closing(_connect(fresh)) as connection:
            migrate(connection, load_migrations(), where=str(path))
        fresh.replace(path)
    finally:
        os.close(folder)


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def _connect(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(path), read_only=read_only, config=_CONFIG)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns what the system or DuckDB says while opening into errors with a remedy."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    except duckdb.Error as error:
        reason = str(error)
        if "Could not set lock" in reason:
            holder = re.search(r"PID (\d+)", reason)
            raise _locked(path, int(holder[1]) if holder else None) from error
        if "Permission denied" in reason or "Read-only file system" in reason:
            raise _unwritable(path, reason) from error
        raise StoreError(
            f"the database cannot be opened: {reason}",
            where=str(path),
            remedy="restore it with its .wal from a backup, or move both away to start anew",
        ) from error


def _locked(path: Path, pid: int | None) -> StoreLockedError:
    if pid is None:
        holder = "another process"
    elif pid == os.getpid():
        holder = f"this same process (PID {pid})"
    else:
        holder = f"process {pid}{_command(pid)}"
    return StoreLockedError(
        f"the database is in use by {holder}",
        where=str(path),
        remedy="wait for it to finish or stop it, then run this again",
    )


def _command(pid: int) -> str:
    """` (python -m ...)`, or nothing where the system does not say."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = " ".join(words).strip()
    return f" ({text[:200]})" if text else ""


def _unwritable(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the database cannot be written: {reason}",
        where=str(path),
        remedy="make the file and its folder writable for this user, or set store.path elsewhere",
    )
