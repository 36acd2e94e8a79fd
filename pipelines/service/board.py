"""What the service knows at one moment. The loop makes a new one each tick; all that is served reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from floorcast.types import FloorSchedule, FloorWindow
from pipelines.publishers.outcome import Outcome

Validity = Literal["valid", "expired", "missing"]


@dataclass(frozen=True)
class Publication:
    """The newest schedule that could be read and verified."""

    schedule: FloorSchedule | None
    fault: str | None = None
    """Why the file there now is not the one in force: missing, damaged, of a newer schema."""

    def validity(self, now: datetime) -> Validity:
        if self.schedule is None:
            return "missing"
        return "valid" if now < self.schedule.valid_until else "expired"


@dataclass(frozen=True)
class PoolDecision:
    """What the overlay wants of a pool, and the floor under it."""

    pool: str
    decided_at: datetime
    desired: int
    floor: int
    floor_source: str
    """`schedule`, or why it is not: `expired`, `missing`, `held`."""
    ceiling: int
    current: int | None
    """Replicas asked for until now."""
    ready: int | None
    starting: int | None
    draining: int | None
    alert: bool
    """Without any signal for the dead-man interval."""
    lost: tuple[str, ...]
    """Signals that were there and are missed."""
    triggers: tuple[Mapping[str, object], ...]
    """Of each enabled trigger its name, value, target and vote in replicas."""
    rules: tuple[Mapping[str, object], ...]
    """What moved the number after them, with the number before and after."""
    words: str
    """The decision explained, as `scaling.overlay.explain` puts it."""
    window: FloorWindow | None
    """The window of the schedule that is due, where there is one."""


@dataclass(frozen=True)
class SourceHealth:
    """How the last reading of a source of live signals went."""

    name: str
    last_success_at: datetime | None
    fault: str | None
    seconds: float


@dataclass(frozen=True)
class Board:
    """All of it. Immutable: a reader takes the reference once and sees one tick whole."""

    now: datetime
    started_at: datetime
    ticks: int
    tick_seconds: float
    publication: Publication
    decisions: Mapping[str, PoolDecision]
    sources: tuple[SourceHealth, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """What each publisher last did for each pool."""
    config_fault: str | None = None
    """Why the configuration file as it stands now is not the one in force."""
    faults: tuple[str, ...] = field(default=())
    """What else is wrong, as a person should read it: a disk that is full, a clock that jumped."""
