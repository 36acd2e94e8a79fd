"""A database of the first release is brought up to date with all it holds, killed midway or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from floorcast.errors import StoreLockedError
from store.connection import Store, open_store
from store.demand import read_demand, upsert_demand
from store.floors import read_floors, write_floors
from store.ledger import load_migrations, migrate
from store.watermarks import read_watermark, write_watermarks

FIRST = "d1693c9a1ceee01340ea32a141e49395c9e9615f91d1ce53e71ac8c7367d188c"
UPGRADER = Path(__file__).with_name("killed_upgrade.py")
CALLS = 5
"""What the second migration asks of DuckDB: begin, the ledger's table, its statements, its ledger row, commit."""


@pytest.fixture
def old(path: Path, demand, floors) -> Callable[[], tuple[pl.DataFrame, pl.DataFrame]]:
    """Makes a database at migration 1 with rows in it; gives back those rows."""

    def build() -> tuple[pl.DataFrame, pl.DataFrame]:
        kept = demand({}, {"workload_class": "agent"}), floors({})
        with duckdb.connect(str(path)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            migrate(connection, load_migrations()[:1], where="here")
            store = Store(path, connection)
            upsert_demand(store, kept[0])
            write_floors(store, "plan-1", kept[1])
        return kept[0].sort("workload_class"), kept[1]

    return build


def is_current_and_holds(path: Path, kept: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    with open_store(path) as store:
        applied = store.read("SELECT version FROM schema_migrations ORDER BY version")["version"].to_list()
        assert applied == [migration.version for migration in load_migrations()]
        assert read_demand(store).equals(kept[0])
        assert read_floors(store, "plan-1").equals(kept[1])
        write_watermarks(store, "prod", {"chat": "a"}, {"chat": kept[0]["step_start"][0]})
        assert read_watermark(store, "prod") == kept[0]["step_start"][0]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_released_migrations_are_as_they_were_released() -> None:
    assert load_migrations()[0].checksum == FIRST


def test_upgrade_keeps_every_row(path: Path, old) -> None:
    kept = old()
    is_current_and_holds(path, kept)
    is_current_and_holds(path, kept)


@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_killed_at_any_call_of_the_upgrade_the_next_opening_completes_it(path: Path, old, call: int) -> None:
    """SIGKILL right after the call; before the commit the database is still at the version before."""
    kept = old()
    words = [sys.executable, str(UPGRADER), str(path), str(call)]
    done = subprocess.run(words, check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with duckdb.connect(str(path)) as connection:
        versions = connection.execute("SELECT version FROM schema_migrations ORDER BY version").fetchall()
        tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert versions == ([(1,), (2,)] if call == CALLS else [(1,)])
    assert ({"watermarks", "findings"} <= tables) == (call == CALLS)
    is_current_and_holds(path, kept)


def test_the_calls_above_are_all_there_are(path: Path, old) -> None:
    old()
    words = [sys.executable, str(UPGRADER), str(path), str(CALLS + 1)]
    assert subprocess.run(words, check=False, timeout=30).returncode == 0


def test_another_process_is_refused_until_the_upgrade_is_over(path: Path, old) -> None:
    kept = old()
    words = [sys.executable, str(UPGRADER), str(path), "wait"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as upgrader:
        assert upgrader.stdout is not None
        assert upgrader.stdout.readline() == "inside\n"
        with pytest.raises(StoreLockedError, match=str(upgrader.pid)), open_store(path, wait_s=0.1):
            pass
        upgrader.communicate("\n", timeout=30)
    is_current_and_holds(path, kept)
