"""The service's publishers: each in a thread of its own."""

from __future__ import annotations

import errno
import fcntl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from floorcast.config import Config
from pipelines.project import Project
from pipelines.publishers.record import read_record
from pipelines.service.board import Board, PoolDecision, Publication
from pipelines.service.publishing import Publishing

NOW = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)

ConfigOf = Callable[..., Config]
PlannerOf = Callable[..., Any]
Until = Callable[[Callable[[], bool]], None]


def entry(planner: Any, name: str, more: str = "") -> str:
    return f'{{kind: dynamo, name: {name}, url: "{planner.url}", pools: [chat-70b], value: decision{more}}}'


def wants(replicas: int) -> Board:
    """A board that asks for these of chat-70b."""
    decision = PoolDecision(
        pool="chat-70b",
        decided_at=NOW,
        desired=replicas,
        floor=1,
        floor_source="missing",
        ceiling=40,
        current=None,
        ready=2,
        starting=None,
        draining=None,
        alert=False,
        lost=(),
        triggers=(),
        rules=(),
        words="",
        window=None,
    )
    return Board(NOW, NOW, 1, 0.01, Publication(None), {"chat-70b": decision})


@pytest.fixture
def publishing(tmp_path: Path, config_of: ConfigOf) -> Iterator[Publishing]:
    """Begun, with a clock that goes on a minute whenever it is looked at, so that what failed is due again."""
    minutes = count()
    made = Publishing(lambda: NOW + timedelta(minutes=next(minutes)))
    made.begin(Project(tmp_path / "floorcast.yaml", config_of("{kind: csv}")))
    yield made
    made.end(5)


@pytest.fixture
def project_of(tmp_path: Path, config_of: ConfigOf) -> Callable[..., Project]:
    return lambda *entries: Project(tmp_path / "floorcast.yaml", config_of(*entries))


def test_one_that_hangs_holds_up_no_other(
    planner_of: PlannerOf, project_of: Callable[..., Project], publishing: Publishing, until: Until
) -> None:
    slow, good = planner_of("agg", min_endpoint=2), planner_of("agg", min_endpoint=2)
    project = project_of(entry(slow, "slow", ", timeout: 1m"), entry(good, "good"))
    with slow.lock:
        for replicas in (14, 15):
            publishing.offer(project, wants(replicas))
            until(lambda replicas=replicas: good.minimums == {"min_endpoint": replicas})  # type: ignore[misc]
        assert slow.minimums == {"min_endpoint": 2}
    until(lambda: slow.minimums == {"min_endpoint": 15})
    until(lambda: {one.publisher: one.after for one in publishing.outcomes} == {"slow": 15, "good": 15})
    assert set(read_record(project.output).ours) == {"slow", "good"}


def test_one_that_hangs_over_a_change_of_the_configuration_is_not_begun_twice(
    planner_of: PlannerOf, project_of: Callable[..., Project], publishing: Publishing, until: Until
) -> None:
    planner = planner_of("agg", min_endpoint=2)

    def project() -> Project:
        """The shortest deadline of the configuration is a second."""
        made = project_of(entry(planner, "one", ", timeout: 1m"))
        [short] = (one.model_copy(update={"deadline": timedelta(seconds=0.2)}) for one in made.config.publishers)
        return Project(made.file, made.config.model_copy(update={"publishers": (short,)}))

    def hung(since: datetime) -> bool:
        return any(one.at > since and "not done within" in one.note for one in publishing.outcomes)

    with planner.lock:
        publishing.offer(project(), wants(14))
        until(lambda: hung(NOW))
        first = publishing.outcomes[0].at
        publishing.offer(after := project(), wants(15))
        until(lambda: hung(first))
        running = [thread.name for thread in threading.enumerate() if thread.name == "publisher one"]
        assert len(running) == 1
    publishing.offer(after, wants(15))
    until(lambda: planner.minimums == {"min_endpoint": 15})
    assert [body for method, _, body in planner.requests if method == "PATCH"] == [
        {"min_endpoint": 14},
        {"min_endpoint": 15},
    ]


def test_a_file_system_without_locks_is_told_and_ends_no_publishing(
    planner_of: PlannerOf,
    project_of: Callable[..., Project],
    publishing: Publishing,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    project = project_of(entry(planner, "one"))

    def no_lock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", no_lock)
        publishing.offer(project, wants(14))
        until(lambda: "No locks available" in (publishing.fault or ""))
    publishing.offer(project, wants(15))
    until(lambda: planner.minimums == {"min_endpoint": 15} and publishing.fault is None)


@pytest.mark.parametrize("thread", ["publishing one", "publisher one"])
def test_a_machine_out_of_threads_is_told_and_ends_no_publishing(
    planner_of: PlannerOf,
    project_of: Callable[..., Project],
    publishing: Publishing,
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    thread: str,
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    project = project_of(entry(planner, "one"))
    start = threading.Thread.start

    def none_left(self: threading.Thread) -> None:
        if self.name == thread:
            raise RuntimeError("can't start new thread")
        start(self)

    def told() -> bool:
        return "can't start new thread" in f"{publishing.fault} {publishing.outcomes}"

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        publishing.offer(project, wants(14))
        until(told)
    publishing.offer(project, wants(15))
    until(lambda: planner.minimums == {"min_endpoint": 15} and not told())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_is_told_and_begun_again(
    planner_of: PlannerOf, project_of: Callable[..., Project], until: Until
) -> None:
    planner = planner_of("agg", min_endpoint=2)
    project = project_of(entry(planner, "one"))
    faulty = True

    def wall() -> datetime:
        if faulty:
            raise ValueError("a fault of ours")
        return NOW

    publishing = Publishing(wall)
    publishing.begin(project)

    def told() -> bool:
        publishing.offer(project, wants(14))
        return publishing.fault == "publisher one: its thread died; another was begun"

    until(told)
    faulty = False
    publishing.offer(project, wants(14))
    until(lambda: publishing.offer(project, wants(14)) is None and planner.minimums == {"min_endpoint": 14})
    until(lambda: publishing.fault is None)
    publishing.end(5)
