"""A real `floorcast serve`: its signals, its files, and what is replaced under it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from floorcast.types import FloorSchedule, PoolSchedule
from pipelines.publishers.schedule import _content_hash, write_schedule
from pipelines.service.serve import only_one

WAIT_S = 120.0
CONFIG = """
service: {port: 0, tick: 200ms}
pools:
  chat-70b:
    gpu: {type: H100, per_replica: 2}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
classes:
  chat: {kind: chat, pools: [chat-70b]}
"""


def published(schedule: FloorSchedule, floor: int, version: int, *, expired: bool = False) -> FloorSchedule:
    """One window from an hour ago on that asks for so many replicas."""
    now = datetime.now(UTC).replace(microsecond=0)
    window = schedule.pools["chat-70b"].windows[0]
    window = window.model_copy(
        update={"start": now - timedelta(hours=1), "end": now + timedelta(hours=9), "min_replicas": floor}
    )
    pools: dict[str, PoolSchedule] = {"chat-70b": schedule.pools["chat-70b"].model_copy(update={"windows": (window,)})}
    until = now - timedelta(seconds=1) if expired else now + timedelta(hours=2)
    return FloorSchedule(
        version=version,
        mode="advisory",
        issued_at=now - timedelta(hours=1),
        valid_until=until,
        content_hash=_content_hash({name: pool.model_dump(mode="json") for name, pool in pools.items()}),
        pools=pools,
    )


@dataclass
class Run:
    folder: Path
    process: subprocess.Popen[str]
    address: str

    @property
    def decisions(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "published/service/decisions.json").read_text())
        return found

    def floor(self) -> object:
        return self.decisions["pools"]["chat-70b"]["floor"]

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not holds():
            assert self.process.poll() is None, "it ended"
            assert time.monotonic() < end, f"never: {self.decisions}"
            time.sleep(0.05)

    def ended(self) -> int:
        return self.process.wait(timeout=WAIT_S)


def write(path: Path, text: str) -> None:
    """In one step, as an editor or a ConfigMap does."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


@contextmanager
def serving(folder: Path) -> Iterator[Run]:
    command = [sys.executable, "-m", "pipelines.cli.main", "serve", "--config", str(folder / "floorcast.yaml")]
    log = folder / "log"
    with log.open("a") as file:
        begun = log.stat().st_size
        process = subprocess.Popen(command, stderr=file, stdout=file, text=True)
    try:
        end, address = time.monotonic() + WAIT_S, ""
        while not address:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
            said = log.read_text()[begun:]
            address = said.partition("listening on ")[2].partition(";")[0]
        yield Run(folder, process, address)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def folder(tmp_path: Path, schedule: FloorSchedule) -> Path:
    (tmp_path / "floorcast.yaml").write_text(CONFIG)
    write_schedule(published(schedule, 7, 1), tmp_path / "published")
    return tmp_path


def test_it_serves_floors_and_sigterm_ends_it_with_0(folder: Path) -> None:
    with serving(folder) as run:
        assert httpx.get(f"{run.address}/v1/floors", timeout=WAIT_S).json()["floors"] == {"chat-70b": 7}
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0
    assert "those under way are answered" in (folder / "log").read_text()


def test_schedules_and_configurations_are_taken_as_they_come(folder: Path, schedule: FloorSchedule) -> None:
    """A new schedule, a damaged one, a whole one again; a bad configuration, then one with a higher minimum."""
    with serving(folder) as run:
        write_schedule(published(schedule, 9, 2), folder / "published")
        run.until(lambda: run.floor() == 9)
        write(folder / "published/schedule.json", '{"schema": 1, "vers')
        time.sleep(1)
        assert run.floor() == 9
        write_schedule(published(schedule, 11, 3), folder / "published")
        run.until(lambda: run.floor() == 11)
        write(folder / "floorcast.yaml", CONFIG.replace("min: 2", "min: many"))
        run.until(lambda: "stays in force" in (folder / "log").read_text())
        assert run.floor() == 11
        write(folder / "floorcast.yaml", CONFIG.replace("chat-70b", "chat-8b"))
        run.until(lambda: list(run.decisions["pools"]) == ["chat-8b"])


def test_killed_and_started_again_it_goes_on_from_the_floor_it_held(folder: Path, schedule: FloorSchedule) -> None:
    """9 is known; killed, and the schedule is gone when it starts again: 9 holds rather than the fallback of 2."""
    with serving(folder) as run:
        write_schedule(published(schedule, 9, 2), folder / "published")
        run.until(lambda: run.floor() == 9)
        run.process.kill()
        run.ended()
    for file in (folder / "published/schedules").iterdir():
        file.unlink()
    write(folder / "published/schedule.json", "gone")
    with serving(folder) as run:
        run.until(lambda: run.decisions["validity"] == "missing")
        assert run.floor() == 9


def test_expired_the_floor_holds(folder: Path, schedule: FloorSchedule) -> None:
    with serving(folder) as run:
        run.until(lambda: run.floor() == 7)
        write_schedule(published(schedule, 5, 2, expired=True), folder / "published")
        run.until(lambda: run.decisions["validity"] == "expired")
        assert run.floor() == 7


def test_two_of_them_on_one_folder_are_refused(folder: Path) -> None:
    with serving(folder) as run:
        second = subprocess.run(
            [sys.executable, "-m", "pipelines.cli.main", "serve", "--once", "--config", str(folder / "floorcast.yaml")],
            capture_output=True,
            check=False,
            text=True,
            timeout=WAIT_S,
        )
        assert second.returncode == 2
        assert f"another service, process {run.process.pid}, works here" in second.stderr


def test_what_a_killed_process_left_half_written_is_removed(tmp_path: Path) -> None:
    left = [tmp_path / f".{name}.17-0a1b2c3d.tmp" for name in ("state.npz", "decisions.json", "mine.txt")]
    for path in (*left, tmp_path / "state.npz"):
        path.write_text("")
    with only_one(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [left[2].name, "lock", "state.npz"]


def test_a_port_in_use_is_told(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (folder / "floorcast.yaml").write_text(CONFIG.replace("port: 0", f"port: {port}"))
        ended = subprocess.run(
            [sys.executable, "-m", "pipelines.cli.main", "serve", "--config", str(folder / "floorcast.yaml")],
            capture_output=True,
            check=False,
            text=True,
            timeout=WAIT_S,
        )
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr


def test_once_prints_the_decisions_and_what_is_wrong(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pipelines.cli.main",
        "serve",
        "--once",
        "--config",
        str(folder / "floorcast.yaml"),
    ]
    environment = {**os.environ, "COLUMNS": "120"}
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S, env=environment).stdout
    assert "schedule: version 1" in said
    assert "chat-70b: 7 replicas" in said
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert document["decisions"]["chat-70b"]["desired"] == 7
    assert document["publication"]["validity"] == "valid"
