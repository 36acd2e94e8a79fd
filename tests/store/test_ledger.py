"""Numbered migrations and their ledger."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path

import duckdb
import pytest

from floorcast import columns
from floorcast.errors import StoreError, StoreNewerError
from store.connection import Store, open_store
from store.ledger import Migration, load_migrations, migrate, pending

ONE = Migration(1, "one", "CREATE TABLE one (a INTEGER); INSERT INTO one VALUES (1)")
TWO = Migration(2, "two", "CREATE TABLE two (b INTEGER); INSERT INTO one VALUES (2)")


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        yield connection


def ledger(connection: duckdb.DuckDBPyConnection) -> list[tuple[int, str]]:
    return connection.execute("SELECT version, name FROM schema_migrations ORDER BY version").fetchall()


def test_packaged_migrations_are_numbered_without_gaps() -> None:
    names = sorted(file.name for file in (resources.files("store") / "migrations").iterdir())
    assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in names)
    assert [migration.version for migration in load_migrations()] == list(range(1, len(names) + 1))


@pytest.mark.parametrize("name", ["demand", "rejects", "fits", "scores", "forecasts", "floors", "accuracy", "findings"])
def test_tables_hold_the_columns_of_their_schema(store: Store, name: str) -> None:
    """In order; a table may add only what a write gives once for all rows."""
    table = store.read(f"SELECT * FROM {name}").schema
    schema = getattr(columns, name.upper())
    assert list(table)[: len(schema)] == list(schema)
    assert all(table[column] == dtype for column, dtype in schema.items())
    assert set(table) - set(schema) <= {"run_id", "as_of"}


def test_ledger_records_each_migration_once(path: Path) -> None:
    for _ in "12":
        with open_store(path) as store:
            rows = store.read("SELECT * FROM schema_migrations ORDER BY version").rows(named=True)
    assert [(row["version"], row["name"], row["checksum"]) for row in rows] == [
        (migration.version, migration.name, migration.checksum) for migration in load_migrations()
    ]
    assert all(row["applied_at"].tzinfo is not None for row in rows)


def test_only_what_is_pending_is_applied(connection) -> None:
    migrate(connection, [ONE], where="here")
    migrate(connection, [ONE, TWO], where="here")
    migrate(connection, [ONE, TWO], where="here")
    assert ledger(connection) == [(1, "one"), (2, "two")]
    assert connection.execute("SELECT a FROM one ORDER BY a").fetchall() == [(1,), (2,)]


def test_failing_migration_leaves_the_version_before(connection) -> None:
    """Its first statement is undone with its second, and mended it applies."""
    broken = dataclasses.replace(TWO, sql="CREATE TABLE two (b INTEGER); SELECT * FROM missing_table")
    with pytest.raises(StoreError, match=r"migration 2 \(two\) failed: .*missing_table"):
        migrate(connection, [ONE, broken], where="here")
    assert ledger(connection) == [(1, "one")]
    migrate(connection, [ONE, TWO], where="here")
    assert ledger(connection) == [(1, "one"), (2, "two")]


def test_changed_migration_is_an_error(connection) -> None:
    migrate(connection, [ONE], where="here")
    changed = dataclasses.replace(ONE, sql=ONE.sql + " ")
    with pytest.raises(StoreError, match="migration 1 is not the one that was applied") as caught:
        pending(connection, [changed, TWO], where="here")
    assert not isinstance(caught.value, StoreNewerError)


def test_ledger_row_without_its_migration_is_an_error(connection) -> None:
    migrate(connection, [ONE, TWO], where="here")
    with pytest.raises(StoreError, match="migration 1 is not"):
        pending(connection, [TWO], where="here")


NEWER = """
import os, signal, sys
import duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO schema_migrations VALUES (9999, 'from_the_future', 'x', now())")
if sys.argv[2] == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
connection.close()
"""


@pytest.mark.parametrize("end", ["close", "crash"])
def test_database_of_a_newer_version_is_refused_byte_for_byte_untouched(path: Path, end: str) -> None:
    """Also where a crash left the newer version only in the write-ahead log."""
    with open_store(path):
        pass
    done = subprocess.run([sys.executable, "-c", NEWER, str(path), end], check=False, timeout=30)
    assert done.returncode == (-signal.SIGKILL if end == "crash" else 0)
    files = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    assert len(files) == (2 if end == "crash" else 1)
    stamps = {name: (path.parent / name).stat().st_mtime_ns for name in files}
    with pytest.raises(StoreNewerError, match="at migration 9999, this floorcast knows them up to") as caught:
        open_store(path).__enter__()
    assert "upgrade floorcast" in caught.value.remedy
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == files
    assert {name: (path.parent / name).stat().st_mtime_ns for name in files} == stamps
