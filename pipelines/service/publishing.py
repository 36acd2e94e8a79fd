"""What is decided, carried to where replicas are set: each publisher in a thread of its own, so that none holds up a
tick or another publisher."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from floorcast.publisher import LivePublisher, Value
from pipelines.project import Project
from pipelines.publishers.manifests import short_reason
from pipelines.publishers.outcome import AT_FAULT, Outcome, Wanted
from pipelines.publishers.record import read_record
from pipelines.publishers.run import PublisherRuns
from pipelines.service.board import Board, PoolDecision

_LOOK_S = 1.0
"""How often it is looked whether a publisher is due although nothing new is wanted."""
_log = logging.getLogger(__name__)


@dataclass
class _Lane:
    """One publisher's thread and what it last came to. It outlives a change of the configuration: what still runs of
    that label is waited for."""

    label: str
    told: threading.Event = field(default_factory=threading.Event)
    runs: tuple[Project, PublisherRuns] | None = None
    thread: threading.Thread | None = None
    fault: str | None = None


class Publishing:
    """Runs the publishers of the newest board when they are due. `outcomes` is what each last did for each pool."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        self._newest: tuple[Project, Board] | None = None
        self._begun, self._stop = False, threading.Event()
        self._lanes: dict[str, _Lane] = {}
        self._recording = threading.Lock()
        self.outcomes: tuple[Outcome, ...] = ()

    @property
    def fault(self) -> str | None:
        """What is wrong beside what the outcomes say."""
        faults = [f"publisher {lane.label}: {lane.fault}" for lane in self._lanes.values() if lane.fault]
        return "; ".join(faults) or None

    def begin(self, project: Project) -> None:
        """Publish what is offered from now on, after what was done before this process."""
        self.outcomes = read_record(project.output).outcomes
        self._begun = True

    def offer(self, project: Project, board: Board) -> None:
        """What is to be carried from now on. Returns at once."""
        self._newest = project, board
        if not self._begun or self._stop.is_set():
            return
        for entry in project.config.publishers:
            if isinstance(entry, LivePublisher):
                lane = self._lanes.setdefault(entry.label, _Lane(entry.label))
                self._keep_alive(lane)
                lane.told.set()

    def end(self, within_s: float) -> None:
        """Begin nothing new, and let what runs end within that time."""
        self._stop.set()
        until = time.monotonic() + within_s
        for lane in self._lanes.values():
            lane.told.set()
        for lane in self._lanes.values():
            if lane.thread is not None:
                lane.thread.join(max(until - time.monotonic(), 0))

    def _keep_alive(self, lane: _Lane) -> None:
        if lane.thread is not None:
            if lane.thread.is_alive():
                return
            self._tell(lane, "its thread died; another was begun")
        thread = threading.Thread(target=self._run, args=(lane,), name=f"publishing {lane.label}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._tell(lane, f"{error}; tried again at the next tick")
            return
        lane.thread = thread

    def _run(self, lane: _Lane) -> None:
        while not self._stop.is_set():
            lane.told.wait(_LOOK_S)
            lane.told.clear()
            if self._newest is not None and not self._stop.is_set():
                try:
                    self._publish(lane, *self._newest)
                except (OSError, RuntimeError) as error:
                    # A machine out of threads, files or locks may have some again.
                    self._tell(lane, f"{error}; tried again")

    def _publish(self, lane: _Lane, project: Project, board: Board) -> None:
        if lane.runs is None or lane.runs[0] is not project:
            before = None if lane.runs is None else lane.runs[1]
            lane.runs = project, PublisherRuns(project.config, project.output, label=lane.label, before=before)
        runs, wanted = lane.runs[1], wanted_of(board)
        if not runs.due(wanted, now=self._wall()):
            return
        done = runs.run(wanted, now=self._wall())
        for one in done.outcomes:
            if one.did in AT_FAULT:
                _log.warning("publisher %s, pool %s: %s: %s", one.publisher, one.pool, one.did, one.note)
        with self._recording:
            newest = {(one.publisher, one.pool): one for one in (*self.outcomes, *done.outcomes)}
            self.outcomes = tuple(one for _, one in sorted(newest.items()))
        lane.fault = None if done.fault is None else str(done.fault)

    def _tell(self, lane: _Lane, fault: str) -> None:
        if lane.fault != fault:
            _log.error("publisher %s: %s", lane.label, fault)
        lane.fault = fault


def wanted_of(board: Board) -> Mapping[Value, list[Wanted]]:
    """What each pool's floor and decision are, of those that rest on something.

    A floor that is a guess, since none is published for now and none is known, is not carried: it could lower a minimum
    that was published once. Nor is a decision without any view of the pool.
    """
    floors, decisions = [], []
    for one in board.decisions.values():
        window = one.window
        if window is not None:
            floors.append(_wanted(one, board, one.floor))
        if window is not None or one.ready is not None:
            # A decision is made anew each tick, whatever it rests on.
            decisions.append(_wanted(one, board, one.desired).model_copy(update={"valid_until": None}))
    return {"floor": floors, "decision": decisions}


def _wanted(one: PoolDecision, board: Board, replicas: int) -> Wanted:
    schedule = board.publication.schedule
    return Wanted(
        pool=one.pool,
        replicas=replicas,
        floor=one.floor,
        max_replicas=max(one.ceiling, one.floor),
        version=schedule.version if schedule else None,
        valid_until=schedule.valid_until if schedule else None,
        reason=short_reason(one.window.reason) if one.window else f"floor {one.floor_source}",
    )
