"""The overlay's clock, and clocks that jump.

The overlay needs seconds that go on through restarts and never backwards; floors are due by the calendar. The first is
counted by the monotonic clock, which nobody sets. The second is checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

SETTLED_S = 600.0
"""How long after a jump the new time is doubted, unless it is put right before."""
_LEAST_JUMP_S = 60.0


@dataclass(frozen=True)
class Clock:
    """What was read last. `mono_s` is None at the start of a process, which knows no monotonic time of another's."""

    overlay_s: float
    wall_s: float
    mono_s: float | None
    jump_s: float = 0.0
    """By how much the clock jumped and is doubted: what it says, less this, is what it said before."""
    jumped_at_s: float = 0.0
    """When, by the overlay's clock."""

    @property
    def doubted(self) -> bool:
        return self.jump_s != 0


def advance(clock: Clock, *, wall_s: float, mono_s: float, tick_s: float) -> Clock:
    """The clock read anew.

    More than 3 ticks, and a minute, between what passed by either clock is a jump. A time after that of the last
    process is a pause, since a process that was not there cannot tell; a time before it is a jump.
    """
    tolerance_s = max(3 * tick_s, _LEAST_JUMP_S)
    passed_s = max(wall_s - clock.wall_s, 0) if clock.mono_s is None else mono_s - clock.mono_s
    now_s = clock.overlay_s + passed_s
    drift_s = wall_s - clock.wall_s - passed_s
    read = replace(clock, overlay_s=now_s, wall_s=wall_s, mono_s=mono_s)
    if abs(drift_s) > tolerance_s:
        jump_s = clock.jump_s + drift_s
        return replace(read, jump_s=0.0 if abs(jump_s) <= tolerance_s else jump_s, jumped_at_s=now_s)
    if clock.doubted and now_s - clock.jumped_at_s >= SETTLED_S:
        return replace(read, jump_s=0.0)
    return read


def times(clock: Clock, now: datetime) -> tuple[datetime, ...]:
    """What time it may be: what the clock says, and while that is doubted what it would say had it not jumped."""
    return (now, now - timedelta(seconds=clock.jump_s)) if clock.doubted else (now,)
