"""What is decided, carried to where replicas are set: in a thread of its own, so that no publisher holds up a tick."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
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


class Publishing:
    """Runs the publishers of the newest board when they are due. `outcomes` is what each last did for each pool."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        self._newest: tuple[Project, Board] | None = None
        self._told, self._stop = threading.Event(), threading.Event()
        self._runs: tuple[Project, PublisherRuns] | None = None
        self._thread: threading.Thread | None = None
        self.outcomes: tuple[Outcome, ...] = ()
        self.fault: str | None = None

    def begin(self, project: Project) -> None:
        """Start the thread, with what was done before this process."""
        self.outcomes = read_record(project.output).outcomes
        self._thread = threading.Thread(target=self._run, name="publishing", daemon=True)
        self._thread.start()

    def offer(self, project: Project, board: Board) -> None:
        """What is to be carried from now on. Returns at once."""
        if any(isinstance(entry, LivePublisher) for entry in project.config.publishers):
            self._newest = project, board
            self._told.set()

    def end(self, within_s: float) -> None:
        """Begin nothing new, and let what runs end within that time."""
        self._stop.set()
        self._told.set()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._told.wait(_LOOK_S)
            self._told.clear()
            if self._newest is not None and not self._stop.is_set():
                self._publish(*self._newest)

    def _publish(self, project: Project, board: Board) -> None:
        if self._runs is None or self._runs[0] is not project:
            self._runs = project, PublisherRuns(project.config, project.output)
        runs, wanted = self._runs[1], wanted_of(board)
        due = runs.due(wanted, now=self._wall())
        if not due:
            return
        done = runs.run(wanted, now=self._wall(), only=due)
        for one in done.outcomes:
            if one.did in AT_FAULT:
                _log.warning("publisher %s, pool %s: %s: %s", one.publisher, one.pool, one.did, one.note)
        newest = {(one.publisher, one.pool): one for one in (*self.outcomes, *done.outcomes)}
        self.outcomes = tuple(one for _, one in sorted(newest.items()))
        self.fault = None if done.fault is None else str(done.fault)


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
