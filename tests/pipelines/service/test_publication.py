"""The schedule in force, of files that are put there by hand."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import LATEST, write_schedule
from pipelines.service.publication import PublicationReader

JUST, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def older(schedule: FloorSchedule) -> FloorSchedule:
    """Version 41, an hour older than 42, which is valid for two hours from when it is issued."""
    times = {"issued_at": schedule.issued_at - HOUR, "valid_until": schedule.valid_until - HOUR}
    return schedule.model_copy(update={"version": 41, **times})


def put_back(schedule: FloorSchedule, folder: Path) -> None:
    (folder / LATEST).write_text(schedule.model_dump_json(by_alias=True))


@pytest.mark.parametrize("restarted", [False, True])
def test_an_older_version_put_back_replaces_no_newer_one_that_is_valid(
    tmp_path: Path, schedule: FloorSchedule, older: FloorSchedule, restarted: bool
) -> None:
    reader, now = PublicationReader(tmp_path), schedule.issued_at + JUST
    write_schedule(schedule, tmp_path)
    assert reader.read(now).schedule == schedule
    put_back(older, tmp_path)
    if restarted:
        reader = PublicationReader(tmp_path)
    for _ in range(2):
        found = reader.read(now)
        assert found.schedule == schedule
        assert found.fault is not None
        assert "version 41 is older" in found.fault
        assert found.fault.endswith("version 42 stays in force")
    write_schedule(schedule.model_copy(update={"version": 43}), tmp_path)
    assert reader.read(now).fault is None


def test_it_is_taken_when_the_newer_one_expires(tmp_path: Path, schedule: FloorSchedule, older: FloorSchedule) -> None:
    reader = PublicationReader(tmp_path)
    write_schedule(schedule, tmp_path)
    reader.read(schedule.issued_at + JUST)
    put_back(older, tmp_path)
    assert reader.read(schedule.issued_at + JUST).schedule == schedule
    assert reader.read(schedule.valid_until).schedule == older
    assert reader.read(schedule.valid_until).fault is None
