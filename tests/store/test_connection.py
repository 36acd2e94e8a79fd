"""Opening, locking, closing and refusing database files."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import polars as pl
import pytest

from floorcast.columns import TIME
from floorcast.errors import DataError, StoreError, StoreLockedError
from store.connection import Store, open_store, patient
from store.demand import read_demand, upsert_demand
from store.runs import list_runs, start_run

HOLD = """
import sys, time
from pathlib import Path
from store.connection import open_store
with open_store(Path(sys.argv[1]), wait_s=float(sys.argv[3])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


@contextmanager
def held_elsewhere(path: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the database."""
    words = [sys.executable, "-c", HOLD, str(path), str(seconds), "5"]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_new_database_is_made_with_its_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "floorcast.duckdb"
    with open_store(path) as store:
        assert read_demand(store).is_empty()
    assert names(path.parent) == [path.name]


def test_no_write_ahead_log_is_left_after_a_close(path: Path, demand) -> None:
    """Neither after a plain end nor after an error inside."""
    with open_store(path) as store:
        upsert_demand(store, demand({}))
        assert names(path.parent) != [path.name], "the log is there while the database is open"
    assert names(path.parent) == [path.name]

    def fail() -> None:
        with open_store(path) as store, store.transaction():
            upsert_demand(store, demand({"tokens_in": 7.0}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(path.parent) == [path.name]
    with open_store(path) as store:
        assert read_demand(store)["tokens_in"].to_list() == [1000.0]


def test_leftovers_of_a_killed_creation_are_cleared(path: Path) -> None:
    (path.parent / f"{path.name}.new").write_bytes(b"half a header")
    (path.parent / f"{path.name}.new.wal").write_bytes(b"half a log")
    with open_store(path):
        pass
    assert names(path.parent) == [path.name]


def test_symlink_stays_a_symlink_to_the_new_database(tmp_path: Path) -> None:
    link = tmp_path / "link.duckdb"
    link.symlink_to(tmp_path / "target.duckdb")
    with open_store(link):
        pass
    assert link.is_symlink()
    assert (tmp_path / "target.duckdb").is_file()


def test_nested_transactions_are_one(store: Store, demand, t0: datetime) -> None:
    """An error after an inner write takes that write back too, and the next transaction works."""

    def fail() -> None:
        with store.transaction():
            upsert_demand(store, demand({}))
            start_run(store, run_id="r", kind="cycle", started_at=t0, as_of=t0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_demand(store).is_empty()
    assert list_runs(store).is_empty()
    with store.transaction():
        upsert_demand(store, demand({}))
    assert read_demand(store).height == 1


def test_failed_statement_takes_back_the_whole_transaction(store: Store, demand) -> None:

    def fail() -> None:
        with store.transaction():
            upsert_demand(store, demand({}))
            store.execute("DELETE FROM nowhere")

    with pytest.raises(StoreError, match="nowhere"):
        fail()
    assert read_demand(store).is_empty()


def test_times_are_utc_whatever_the_machine_zone(
    path: Path, demand, t0: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored as TIMESTAMPTZ, read as Datetime("us", "UTC"), the same instant."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        with open_store(path) as store:
            local = demand({}).with_columns(pl.col("step_start").dt.convert_time_zone("Asia/Kolkata"))
            upsert_demand(store, local)
            assert store.read("SELECT typeof(step_start) AS t FROM demand")["t"][0] == "TIMESTAMP WITH TIME ZONE"
            assert store.read("SELECT step_start::VARCHAR AS t FROM demand")["t"][0] == "2026-11-02 00:00:00+00"
            kolkata = t0.astimezone(timezone(timedelta(hours=5, minutes=30)))
            back = read_demand(store, start=kolkata, end=kolkata + timedelta(seconds=1))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert back.schema["step_start"] == TIME
    assert back["step_start"].to_list() == [t0]


def test_time_without_zone_is_refused(store: Store, t0: datetime) -> None:
    with pytest.raises(DataError, match="start: time 2026-11-02 00:00:00 has no zone"):
        read_demand(store, start=t0.replace(tzinfo=None))


def test_locked_database_names_its_holder(path: Path) -> None:
    with held_elsewhere(path, 60) as holder:
        began = time.monotonic()
        with pytest.raises(StoreLockedError) as caught, open_store(path, wait_s=0.3):
            pass
        assert 0.3 <= time.monotonic() - began < 3
    message = str(caught.value)
    assert f"process {holder.pid} ({sys.executable} -c" in message
    assert str(path) in message
    assert "remedy: wait for it to finish or stop it" in message


def test_locked_database_is_waited_for(path: Path) -> None:
    with held_elsewhere(path, 0.4), open_store(path, wait_s=20) as store:
        assert read_demand(store).is_empty()


def test_who_is_patient_waits_longer_and_who_says_otherwise_does_not(path: Path) -> None:
    with held_elsewhere(path, 60):
        began = time.monotonic()
        with patient(0.1), pytest.raises(StoreLockedError), open_store(path):
            pass
        with patient(60), pytest.raises(StoreLockedError), open_store(path, wait_s=0.1):
            pass
        assert time.monotonic() - began < 4, "neither waited the 5 seconds of a reader"
    with held_elsewhere(path, 0.4), patient(20), open_store(path) as store:
        assert read_demand(store).is_empty()


def test_killed_holder_leaves_no_lock(path: Path) -> None:
    with held_elsewhere(path, 60) as holder:
        holder.kill()
        holder.wait()
        with open_store(path, wait_s=0) as store:
            assert read_demand(store).is_empty()


def test_second_opening_in_the_same_process_is_refused_and_harmless(path: Path, demand) -> None:
    """DuckDB would share the instance; and reading the file would silently drop the lock on it."""
    with open_store(path) as store:
        with pytest.raises(StoreLockedError, match=f"this same process .PID {os.getpid()}"):
            open_store(path, wait_s=0.05).__enter__()
        words = [sys.executable, "-c", HOLD, str(path), "0", "0"]
        other = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
        assert "StoreLockedError" in other.stderr
        assert upsert_demand(store, demand({})) == 1


def test_threads_take_turns(path: Path, demand) -> None:
    def write(name: str) -> None:
        with open_store(path, wait_s=20) as store:
            upsert_demand(store, demand({"workload_class": name}))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_store(path) as store:
        assert read_demand(store)["workload_class"].to_list() == ["a", "b", "c", "d"]


def test_two_processes_may_create_the_same_database(path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(path), "0", "20"]
    makers = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in "12"]
    assert [maker.wait(30) for maker in makers] == [0, 0]
    assert names(path.parent) == [path.name]


def make_sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    connection.close()


def make_truncated(path: Path) -> None:
    with open_store(path):
        pass
    os.truncate(path, 16384)


def make_foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE customers (name VARCHAR)")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path: path.write_bytes(b"time,tokens\n" * 500), "not a DuckDB database"),
        (lambda path: path.write_bytes(b""), "not a DuckDB database"),
        (make_sqlite, "not a DuckDB database"),
        (make_truncated, "cannot be opened"),
        (make_foreign, "tables that floorcast did not make .customers"),
    ],
    ids=["text", "empty", "sqlite", "truncated", "foreign"],
)
def test_file_that_is_no_database_of_ours_is_refused_untouched(path: Path, make, what: str) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=what) as caught, open_store(path):
        pass
    assert str(path) in str(caught.value)
    assert caught.value.remedy
    assert path.read_bytes() == before
    assert names(path.parent) == [path.name]


def test_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a file") as caught, open_store(tmp_path):
        pass
    assert "not a folder" in caught.value.remedy


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot be written: (Not a directory|File exists)"):
        open_store(tmp_path / "notes" / "floorcast.duckdb").__enter__()


def test_log_without_its_database_is_refused(path: Path) -> None:
    """The log may hold data of a database that was moved away."""
    wal = path.parent / f"{path.name}.wal"
    wal.write_bytes(b"WAL")
    with pytest.raises(StoreError, match=r"write-ahead log floorcast.duckdb.wal is there"), open_store(path):
        pass
    assert names(path.parent) == [wal.name]


@contextmanager
def without_root() -> Iterator[None]:
    """Root may write anywhere, so a test of permissions becomes nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_unwritable_folder_is_refused(path: Path) -> None:
    with open_store(path):
        pass
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kept = folder / path.name
        kept.write_bytes(path.read_bytes())
        kept.chmod(0o444)
        folder.chmod(0o555)
        try:
            for file in (folder / "fresh.duckdb", folder / "sub" / "fresh.duckdb", kept):
                with without_root(), pytest.raises(StoreError, match="cannot be written") as caught:
                    open_store(file).__enter__()
                assert "writable" in caught.value.remedy
            folder.chmod(0o777)
            with without_root(), pytest.raises(StoreError, match=r"cannot be written: .*Permission denied"):
                open_store(kept).__enter__()
            assert kept.read_bytes() == path.read_bytes()
        finally:
            folder.chmod(0o755)


def test_full_disk_is_an_error_and_keeps_what_was_committed(path: Path, demand) -> None:
    """A limit on file size stands for the full disk."""
    with open_store(path) as store:
        upsert_demand(store, demand({}))
    many = demand(*({"workload_class": f"class-{n}" * 50} for n in range(5000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        with open_store(path) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
            try:
                upsert_demand(store, many)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with pytest.raises(StoreError, match="File too large") as caught:
        fill()
    assert "disk space" in caught.value.remedy
    with open_store(path) as store:
        assert read_demand(store)["workload_class"].to_list() == ["chat"]
