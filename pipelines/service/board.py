"""What the service knows at one moment. The loop makes a new one each tick; all that is served reads it."""

from __future__ import annotations

from bisect import bisect_left
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
    behind: bool = False
    """Whether the schedule is one that was kept: the process before this may have gone by a newer one."""

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


TICK_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)


@dataclass(frozen=True)
class TickTimes:
    """How long the ticks took since the start, as a histogram counts it: each tick puts the next one on the board."""

    counts: tuple[int, ...] = (0,) * (len(TICK_BUCKETS_S) + 1)
    """Ticks by bucket, up to and with its bound; the last is of those above all bounds."""
    sum_seconds: float = 0.0

    def plus(self, seconds: float) -> TickTimes:
        """With one more tick.

        >>> TickTimes().plus(0.02).counts[:4]
        (0, 0, 1, 0)
        """
        place = bisect_left(TICK_BUCKETS_S, seconds)
        counts = tuple(count + (i == place) for i, count in enumerate(self.counts))
        return TickTimes(counts, self.sum_seconds + seconds)


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
    tick_times: TickTimes = TickTimes()
    tick_s: float = 15.0
    """How often a board is to be replaced."""
