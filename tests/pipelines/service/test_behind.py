"""A service that starts on a damaged publication goes by an older one, and forgets no floor of the newer."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from floorcast.columns import FLOORS, conform
from floorcast.types import Reason, Rung
from pipelines.project import Project, load_project
from pipelines.publishers.schedule import build_schedule, write_schedule
from pipelines.service.loop import Loop

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
CONFIG = """\
pools:
  chat:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 1600, decode_tokens_per_s: 900}
    startup: {p90: 4m}
    bounds: {min: 1, max: 60}
classes:
  chat: {kind: chat, pools: [chat]}
"""


def publish(folder: Path, version: int, floor: int) -> None:
    reason = Reason(
        binding="tokens_out",
        needed_by=NOW,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=0,
        tokens_out_per_s=0,
        median_tokens_per_s=0,
        demand_tokens_per_s=0,
        required_replicas=0,
    )
    row = {"pool": "chat", "window_start": NOW, "window_end": NOW + timedelta(hours=2), "min_replicas": floor}
    row |= {"required_replicas": 0.0, "rung": "fresh", "reason": reason.model_dump_json()}
    schedule = build_schedule(
        mode="advisory",
        version=version,
        issued_at=NOW,
        valid_until=NOW + timedelta(hours=1),
        floors=conform(pl.DataFrame([row]), FLOORS),
        rungs={"chat": Rung.FRESH},
        settings={},
    )
    write_schedule(schedule, folder)


def floor_of_a_new_process(project: Project) -> tuple[int, str | None]:
    loop = Loop(
        project,
        lambda: load_project(project.file, environment=os.environ),
        wall=lambda: NOW + timedelta(minutes=1),
        monotonic=lambda: 0.0,
    )
    board = loop.once()
    loop.close()
    return board.decisions["chat"].floor, board.publication.fault


def test_a_restart_on_a_damaged_publication_lowers_no_floor(tmp_path: Path) -> None:
    (tmp_path / "floorcast.yaml").write_text(CONFIG)
    project = load_project(tmp_path / "floorcast.yaml", environment=os.environ)
    publish(project.output, 1, 12)
    publish(project.output, 2, 13)
    assert floor_of_a_new_process(project) == (13, None)
    for path in (project.output / "schedule.json", project.output / "schedules" / "v000002.json"):
        os.truncate(path, 100)
    for _ in range(2):
        floor, fault = floor_of_a_new_process(project)
        assert floor == 13, "version 1 says 12, and version 2 was in force before"
        assert fault is not None
        assert fault.endswith("version 1 stays in force")
    publish(project.output, 3, 14)
    assert floor_of_a_new_process(project) == (14, None)


def test_without_a_newer_one_before_the_kept_version_decides(tmp_path: Path) -> None:
    (tmp_path / "floorcast.yaml").write_text(CONFIG)
    project = load_project(tmp_path / "floorcast.yaml", environment=os.environ)
    publish(project.output, 1, 12)
    os.truncate(project.output / "schedule.json", 100)
    assert floor_of_a_new_process(project)[0] == 12


def test_a_schedule_from_the_future_decides_nothing_yet_and_is_told(tmp_path: Path) -> None:
    """Issued at 09:00 and read at 08:00: its windows have not begun, so that the floor is bounds.min."""
    (tmp_path / "floorcast.yaml").write_text(CONFIG)
    project = load_project(tmp_path / "floorcast.yaml", environment=os.environ)
    publish(project.output, 1, 12)
    early = NOW - timedelta(hours=1)
    loop = Loop(project, lambda: project, wall=lambda: early, monotonic=lambda: 0.0)
    board = loop.once()
    loop.close()
    assert (board.decisions["chat"].floor, board.decisions["chat"].floor_source) == (1, "held")
    assert [fault.partition(":")[0] for fault in board.faults] == ["the schedule was issued 1h ahead of this clock"]
