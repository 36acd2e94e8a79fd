"""The overlay loop: each tick from published files and live signals to a board. The shell around `tick`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from floorcast.errors import DataError, FloorcastError
from floorcast.service import Service
from floorcast.units import format_duration
from pipelines.project import Project
from pipelines.service.board import Board, Publication, TickTimes
from pipelines.service.calendars import CalendarReader
from pipelines.service.clock import advance
from pipelines.service.decisions import Decisions
from pipelines.service.facts import Expectations, FactsReader, tuned
from pipelines.service.floors import FloorGrid, grid_of
from pipelines.service.live import LiveReader
from pipelines.service.memory import Memory, carried, fresh, joined, read_memory
from pipelines.service.publication import PublicationReader, Stamp, stamp_of
from pipelines.service.publishing import Publishing
from pipelines.service.saving import Saving
from pipelines.service.telling import Teller
from pipelines.service.tick import fleet_of, tick

_CLOCKS_APART = timedelta(minutes=1)
_SAVE_WITHIN_S = 5.0
"""How long the first and the last tick wait until they are saved."""
_log = logging.getLogger("floorcast.service")


def needs_restart(begun: Project, now: Project) -> list[str]:
    """What is configured otherwise than when the process began, and is only looked at then."""
    old, new = begun.config.service, now.config.service
    changed = [f"service.{key}" for key in Service.model_fields if getattr(old, key) != getattr(new, key)]
    changed = [key for key in changed if key not in ("service.tick", "service.queries")]
    if begun.state_dir != now.state_dir and "service.state_dir" not in changed:
        changed.append("output.dir")
    return [f"{key} was changed: restart the service to use it" for key in changed]


class Loop:
    """Decides each tick. `board()` is what it decided last; there is none before the first tick.

    `load` reads the configuration again; `wall` and `monotonic` are the clocks.
    """

    def __init__(
        self,
        project: Project,
        load: Callable[[], Project],
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load, self._wall, self._monotonic = load, wall, monotonic
        self._folder, self._begun = project.state_dir, project
        self._unchanged: list[str] = []
        self._stamp: Stamp | None = stamp_of(project.file)
        self._config_fault: str | None = None
        self._started_at = wall()
        self._ticks, self._times = 0, TickTimes()
        self._board: Board
        self._teller = Teller()
        self.publishing = Publishing(wall)
        remembered, fault = self._remembered(tuple(project.config.pools))
        self._memory = self._everything = remembered
        self._saving = Saving(self._folder, monotonic, fault)
        self._expectations = Expectations(monotonic=monotonic)
        self._publications, self._facts = PublicationReader(project.output), FactsReader(project.output)
        self._use(project, LiveReader(project, wall=wall))

    @property
    def project(self) -> Project:
        """The configuration in force."""
        return self._project

    def board(self) -> Board:
        return self._board

    def run(self, stop: threading.Event) -> None:
        """Tick until told to stop, from a tick's time after the last one on. A tick that takes longer than its time is
        followed by the next at once."""
        due = self._monotonic()
        while True:
            due = max(due + self._project.config.service.tick.total_seconds(), self._monotonic())
            if stop.wait(due - self._monotonic()):
                return
            self.once()

    def close(self) -> None:
        """Let what was decided last be saved, within a few seconds."""
        self._live.close()
        self._saving.finish(_SAVE_WITHIN_S)

    def once_saved(self) -> Board:
        """A tick that is saved when it is told, unless the disk takes longer than a few seconds."""
        board = self.once()
        self._saving.finish(_SAVE_WITHIN_S)
        fault = self._saving.fault
        return board if fault is None or fault in board.faults else replace(board, faults=(*board.faults, fault))

    def once(self) -> Board:
        """One tick: read, decide, show; then carry out and save, in threads of their own."""
        began = self._monotonic()
        self._reload()
        reading = self._live.read()
        now = self._wall()
        publication = self._publications.read(now)
        clock = advance(
            self._memory.clock,
            wall_s=now.timestamp(),
            mono_s=self._monotonic(),
            tick_s=self._project.config.service.tick.total_seconds(),
        )
        if self._facts.changed():
            self._tune()
        state, settings = self._memory.state, self._fleet.settings
        ahead = self._expectations.read(reading.signals, state, settings, clock.overlay_s, now)
        ticked = tick(
            self._fleet,
            self._gridded(publication),
            publication.validity(now),
            reading.signals._replace(ahead=ahead),
            self._calendars.read(now),
            replace(self._memory, clock=clock),
            now,
            behind=publication.behind,
        )
        self._memory = ticked.memory
        decisions = Decisions(ticked, publication.schedule)
        seconds = self._monotonic() - began
        self._ticks, self._times = self._ticks + 1, self._times.plus(seconds)
        self._board = Board(
            now=now,
            started_at=self._started_at,
            ticks=self._ticks,
            tick_seconds=seconds,
            publication=publication,
            decisions=decisions,
            sources=reading.sources,
            outcomes=self.publishing.outcomes,
            config_fault=self._config_fault,
            faults=(*self._faults(publication, now), *reading.faults),
            tick_times=self._times,
            tick_s=self._project.config.service.tick.total_seconds(),
        )
        self._teller.tell(self._board)
        self.publishing.offer(self._project, self._board)
        self._saving.offer(ticked, decisions)
        return self._board

    def _use(self, project: Project, live: LiveReader) -> None:
        self._project = project
        if self._publications.folder != project.output:
            self._publications, self._facts = PublicationReader(project.output), FactsReader(project.output)
        self._facts.changed()
        self._tune()
        # A pool that leaves the configuration by mistake, and comes back, finds its floor.
        self._everything = joined(self._memory, self._everything)
        self._memory = carried(self._everything, self._fleet.pools)
        self._calendars = CalendarReader(project.config)
        self._live = live
        self._grid: tuple[Publication, FloorGrid | None] | None = None

    def _tune(self) -> None:
        pools = tuned(self._project.config.pools, self._facts.facts)
        self._fleet = fleet_of(pools)
        self._expectations.use(pools, self._facts.facts)

    def _reload(self) -> None:
        """Take the configuration file as it is now, if it is valid."""
        stamp = stamp_of(self._project.file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            project = self._load()
            live = LiveReader(project, wall=self._wall)
        except FloorcastError as error:
            self._config_fault = str(error)
            _log.error("the configuration as it was stays in force: %s", error)
            return
        self._config_fault = None
        self._unchanged = needs_restart(self._begun, project)
        self._live.close()
        self._use(project, live)
        _log.info("the configuration was read anew")

    def _gridded(self, publication: Publication) -> FloorGrid | None:
        if self._grid is None or self._grid[0] is not publication:
            schedule = publication.schedule
            self._grid = publication, None if schedule is None else grid_of(schedule, self._fleet.pools)
        return self._grid[1]

    def _remembered(self, pools: tuple[str, ...]) -> tuple[Memory, str | None]:
        """What was saved, and what is wrong with it."""
        fault = None
        try:
            found = read_memory(self._folder)
        except DataError as error:
            fault = str(error)
            found = None
        return (fresh(pools, wall_s=self._wall().timestamp()) if found is None else found), fault

    def _faults(self, publication: Publication, now: datetime) -> list[str]:
        faults = [
            fault for fault in (self._saving.fault, self.publishing.fault, self._facts.fault, *self._unchanged) if fault
        ]
        schedule, clock = publication.schedule, self._memory.clock
        if schedule is not None and schedule.issued_at > now + _CLOCKS_APART:
            faults.append(
                f"the schedule was issued {format_duration(schedule.issued_at - now)} ahead of this clock: until its "
                "windows begin floors are those known last"
            )
        if clock.doubted:
            way = "forward" if clock.jump_s > 0 else "back"
            faults.append(
                f"the clock jumped {way} by {format_duration(abs(clock.jump_s))}: nothing is let go until it has run "
                "steadily for 10m or is put right"
            )
        return faults
