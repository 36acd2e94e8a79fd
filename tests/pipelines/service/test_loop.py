"""The loop over real files, by clocks that the test moves."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from floorcast.types import FloorSchedule
from pipelines.project import load_project
from pipelines.publishers.held import held_floors
from pipelines.publishers.schedule import write_schedule
from pipelines.service import loop as loops
from pipelines.service.loop import Loop
from pipelines.service.memory import read_memory

NOW = datetime(2026, 11, 30, 8, 56, tzinfo=UTC)
CONFIG = """
output: {dir: OUTPUT}
pools:
  chat-70b:
    gpu: {type: H100, per_replica: 2}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  code-8b:
    gpu: {type: L40S}
    capacity: {prefill_tokens_per_s: 9000, decode_tokens_per_s: 3000}
    startup: {p90: 2m}
    bounds: {min: 1, max: 6}
classes:
  chat: {kind: chat, pools: [chat-70b]}
  code: {kind: code_generation, pools: [code-8b]}
"""
WITHOUT_CHAT = f"{CONFIG.partition('  chat-70b')[0]}  code-8b{CONFIG.partition('  code-8b')[2]}".replace(
    "  chat: {kind: chat, pools: [chat-70b]}\n", ""
)


class Service:
    """A loop whose clocks go on when told to."""

    def __init__(self, file: Path, output: Path, schedule: FloorSchedule) -> None:
        self.passed = timedelta()
        self.output = output
        write_schedule(schedule, output)
        self.project = load_project(file, environment={})
        self.loop = Loop(
            self.project,
            lambda: load_project(self.project.file, environment={}),
            wall=lambda: NOW + self.passed,
            monotonic=self._monotonic_s,
        )

    def _monotonic_s(self) -> float:
        return self.passed.total_seconds()

    def floors(self, **passes: float) -> dict[str, int]:
        self.passed += timedelta(**passes)
        board = self.loop.once()
        assert board.config_fault is None
        return {pool: one.floor for pool, one in board.decisions.items()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "floorcast.yaml"
    path.write_text(CONFIG.replace("OUTPUT", str(tmp_path / "published")))
    return path


ServiceOf = Callable[[Path], Service]


@pytest.fixture
def service_of(tmp_path: Path, schedule: FloorSchedule) -> ServiceOf:
    return lambda file: Service(file, tmp_path / "published", schedule)


def test_a_reload_keeps_the_last_good_schedule_in_force_while_the_file_is_damaged(
    file: Path, service_of: ServiceOf, schedule: FloorSchedule
) -> None:
    """13 replicas at 08:56, and 15 at 09:56: published, and not forgotten over a change of the configuration."""
    service = service_of(file)
    assert service.floors()["chat-70b"] == 13
    shutil.rmtree(service.output / "schedules")
    (service.output / "schedule.json").write_text("{")
    assert service.floors(seconds=15)["chat-70b"] == 13
    file.write_text(f"{file.read_text()}# edited\n")
    assert service.floors(seconds=15)["chat-70b"] == 13
    assert service.floors(minutes=60)["chat-70b"] == 15


def test_a_pool_that_leaves_the_configuration_and_comes_back_finds_the_floor_that_was_held(
    file: Path, service_of: ServiceOf
) -> None:
    """The schedule expired at 10:50; its windows ask for 11 at 11:56, and 15 is the most that was in force."""
    service = service_of(file)
    service.floors()
    assert service.floors(hours=1)["chat-70b"] == 15
    assert service.floors(hours=1) == {"chat-70b": 15, "code-8b": 6}
    whole = file.read_text()
    file.write_text(WITHOUT_CHAT.replace("OUTPUT", str(service.output)))
    assert service.floors(seconds=15) == {"code-8b": 6}
    file.write_text(whole)
    assert service.floors(seconds=15)["chat-70b"] == 15


def test_publishing_finds_the_floors_that_are_held_up_of_a_service_that_runs(
    file: Path, service_of: ServiceOf, until: Callable[[Callable[[], bool]], None]
) -> None:
    """The schedule expires at 10:50, and 15 is the most that was in force."""
    service = service_of(file)

    def held(**later: float) -> object:
        now = NOW + service.passed + timedelta(**later)
        return held_floors(service.project.state_dir, now=now, within=timedelta(minutes=1))

    assert held() == {}, "no service has run yet"
    service.floors()
    assert held() == {}, "what is published is in force"
    service.floors(hours=1)
    service.floors(hours=1)
    until(lambda: held(seconds=60) == {"chat-70b": 15, "code-8b": 6})
    assert held(seconds=61) == {}, "it may have ended"
    (service.project.state_dir / "decisions.json").write_text("{")
    assert held() == {}


def test_a_configuration_behind_links_is_read_anew_when_the_links_are_moved(file: Path, service_of: ServiceOf) -> None:
    """A volume of a ConfigMap: floorcast.yaml -> ..data/floorcast.yaml and ..data -> ..1, which is removed after
    ..data was moved to ..2."""
    text, folder = file.read_text(), file.parent

    def put(version: str, content: str) -> None:
        (folder / version).mkdir()
        (folder / version / "floorcast.yaml").write_text(content)
        (folder / "..new").symlink_to(version)
        (folder / "..new").replace(folder / "..data")

    put("..1", text)
    file.unlink()
    file.symlink_to("..data/floorcast.yaml")
    service = service_of(file)
    assert list(service.floors()) == ["chat-70b", "code-8b"]
    put("..2", WITHOUT_CHAT.replace("OUTPUT", str(service.output)))
    shutil.rmtree(folder / "..1")
    assert list(service.floors(seconds=15)) == ["code-8b"]


@pytest.mark.parametrize("content", [None, "{", "[" * 200_000])
def test_whatever_lies_where_schedules_should_be_ends_no_loop(
    file: Path, service_of: ServiceOf, content: str | None
) -> None:
    service = service_of(file)
    (service.output / "schedules" / "v000042.before.json").write_text("{}")
    latest = service.output / "schedule.json"
    latest.unlink()
    if content is not None:
        latest.write_text(content)
    assert service.floors()["chat-70b"] == 13


def test_a_disk_that_hangs_holds_up_no_decision_and_the_newest_is_saved_after(
    file: Path, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs while the tick of 08:56:00 is saved; that of 08:56:30 is the next that is."""
    service, answers = service_of(file), threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: answers.wait(10))
    decisions = service.output / "service" / "decisions.json"
    for at_s in (0, 15, 30):
        service.passed = timedelta(seconds=at_s)
        board = service.loop.once()
        assert board.decisions["chat-70b"].floor == 13
    assert not decisions.exists()
    assert board.faults == ("what it remembers is not saved yet: the disk takes more than 30 s",)
    answers.set()
    service.loop.close()
    assert json.loads(decisions.read_text())["decided_at"] == "2026-11-30T08:56:30+00:00"
    remembered = read_memory(service.output / "service")
    assert remembered is not None
    assert remembered.clock.wall_s == (NOW + timedelta(seconds=30)).timestamp()
    assert service.loop.once().faults == ()


def test_the_end_waits_for_a_disk_that_hangs_for_a_bounded_time_and_tells(
    file: Path, service_of: ServiceOf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service, answers = service_of(file), threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: answers.wait(10))
    monkeypatch.setattr(loops, "_SAVE_WITHIN_S", 0.05)
    service.loop.once()
    service.loop.close()
    assert not answers.is_set()
    assert caplog.messages == ["the last tick is not saved: the disk takes more than 0.05 s"]
    answers.set()


def test_a_tick_that_is_to_be_saved_tells_that_it_is_not(file: Path, service_of: ServiceOf) -> None:
    service = service_of(file)
    folder = service.output / "service"
    folder.write_text("")
    assert [fault.partition(",")[0] for fault in service.loop.once_saved().faults] == ["what it remembers is not saved"]
    folder.unlink()
    service.passed = timedelta(seconds=15)
    assert service.loop.once().faults != ()
    service.loop.close()
    assert (folder / "decisions.json").exists()
    assert service.loop.once_saved().faults == ()
