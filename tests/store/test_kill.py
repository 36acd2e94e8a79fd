"""SIGKILL at random moments: what was committed is there, the rest is not, and nothing is halved."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from store.connection import Store, open_store
from store.demand import demand_extent, read_demand
from store.ledger import load_migrations

WRITER = Path(__file__).with_name("batch_writer.py")
ROWS = 3000


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def run_and_kill(path: Path, first: int, *, after: str, delay_s: float) -> list[int]:
    """Start a writer, kill it `delay_s` after it said `after`; the batches it said were committed."""
    words = [sys.executable, str(WRITER), str(path), str(first)]
    writer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = []
    while not said or said[-1] != after:
        said.append(writer.stdout.readline().strip())
        assert said[-1], writer.communicate()[1]
    time.sleep(delay_s)
    writer.kill()
    rest, errors = writer.communicate(timeout=30)
    assert writer.returncode == -signal.SIGKILL, errors
    return [int(word) for word in said + rest.split() if word.isdigit()]


def batches_found(store: Store) -> int:
    """The number of batches stored; fails where any table has a part of one, or the tables differ."""
    extent = demand_extent(store)
    assert set(extent["steps"]) <= {ROWS}
    counts = {
        "demand": extent.height - 1 if extent.height else 0,
        "publications": store.read("SELECT * FROM publications").height,
    }
    for table, column in (("forecasts", "workload_class"), ("floors", "run_id")):
        sizes = store.read(f"SELECT {column}, count(*) AS n FROM {table} GROUP BY ALL")
        assert set(sizes["n"]) <= {ROWS}
        counts[table] = sizes.height
    found = counts["demand"]
    assert set(counts.values()) == {found}, counts
    expected = {f"batch-{batch}" for batch in range(found)} | ({"shared"} if found else set())
    assert set(extent["workload_class"]) == expected
    shared = read_demand(store, classes=["shared"])
    assert shared["tokens_in"].unique().to_list() == ([found - 1] if found else [])
    return found


def test_killed_while_writing_batches_are_whole_or_absent(path: Path) -> None:
    """Twelve kills in a row on one database, each writer going on where the last was killed."""
    moments = random.Random(7)
    found = 0
    for _ in range(12):
        sure = moments.randint(0, 2)
        after = str(found + sure - 1) if sure else "opened"
        committed = run_and_kill(path, found, after=after, delay_s=moments.uniform(0.0, 0.12))
        assert committed == list(range(found, found + len(committed)))
        with open_store(path) as store:
            now = batches_found(store)
        # One batch may have been committed without a chance to say so.
        assert now - found - len(committed) in (0, 1)
        found = now
    # DuckDB leaves an empty log now and then, where a writer was killed between a checkpoint and the log's removal.
    assert [file.name for file in path.parent.iterdir() if file.stat().st_size] == [path.name]


def test_killed_while_creating_it_opens_again(tmp_path: Path) -> None:
    """Seven kills from the first byte of the new file on, 6 ms apart: no database, or a whole one."""
    left_behind = set()
    for attempt in range(7):
        path = tmp_path / str(attempt) / "floorcast.duckdb"
        path.parent.mkdir()
        writer = subprocess.Popen([sys.executable, str(WRITER), str(path), "0"], stdout=subprocess.DEVNULL)
        while not names(path.parent):
            assert writer.poll() is None
        time.sleep(0.006 * attempt)
        writer.kill()
        assert writer.wait(30) == -signal.SIGKILL
        left_behind |= set(names(path.parent))
        with open_store(path) as store:
            assert batches_found(store) >= 0, "every batch is whole"
            assert store.read("SELECT * FROM schema_migrations").height == len(load_migrations())
        assert names(path.parent) == [path.name]
    assert "floorcast.duckdb.new" in left_behind, "no kill landed inside the creation"
