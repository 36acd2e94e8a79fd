"""One tick of all pools: from floors, live signals and memory to decisions and the next memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from floorcast.pool import Pool
from pipelines.service.board import Validity
from pipelines.service.clock import times
from pipelines.service.floors import FloorGrid, FloorRules, InForce, in_force, rules_of
from pipelines.service.memory import Memory
from scaling.capacity import Floats
from scaling.overlay.decide import Decision, decide
from scaling.overlay.settings import Settings, settings_of
from scaling.overlay.signals import Signals


class Fleet(NamedTuple):
    """What the configuration says of the pools, a lane each."""

    pools: tuple[str, ...]
    settings: Settings
    rules: FloorRules
    most: Floats
    """[lanes]: `bounds.max`, which the overlay does not exceed of itself."""
    ahead_s: Floats
    """[lanes]: startup p90 + `min_uptime`."""


def fleet_of(pools: Mapping[str, Pool]) -> Fleet:
    """The pools in the order of the mapping. A published floor may exceed `bounds.max`, and decisions then too."""
    specs = tuple(pools.values())
    settings = settings_of(specs)
    return Fleet(
        pools=tuple(pools),
        settings=settings._replace(max_replicas=np.full(len(specs), np.inf)),
        rules=rules_of(specs),
        most=settings.max_replicas,
        ahead_s=np.array([(one.startup.p90 + one.overlay.min_uptime).total_seconds() for one in specs]),
    )


class Calendars(NamedTuple):
    """[lanes]: what the pools' calendars ask for now; NaN where there is none."""

    minimum: Floats
    ceiling: Floats


@dataclass(frozen=True)
class Ticked:
    """What one tick decided, by lane. `memory` has been carried to the next one."""

    at: datetime
    fleet: Fleet
    decision: Decision
    floors: InForce
    validity: Validity
    memory: Memory


def tick(
    fleet: Fleet,
    grid: FloorGrid | None,
    validity: Validity,
    live: Signals,
    calendars: Calendars,
    memory: Memory,
    now: datetime,
    *,
    behind: bool = False,
) -> Ticked:
    """Decide at `now`, with a `memory` of the same pools whose clock was advanced to it.

    `live` is without floors, ceilings and calendar. Of a schedule the floor is what `in_force` says, and no decision is
    lower. Of a schedule `behind` the one before no floor falls. While the clock is doubted the floor is the most of
    what any of its times asks for, and nothing is let go.
    """
    now_s, doubted = memory.clock.overlay_s, memory.clock.doubted
    nothing = np.full(len(fleet.pools), np.nan)
    due, ahead = nothing, nothing
    if grid is not None:
        for time in times(memory.clock, now):
            due = np.fmax(due, grid.due(time))
            ahead = np.fmax(ahead, grid.ahead(time, within_s=fleet.ahead_s))
    floors = in_force(
        due, memory.floors, fleet.rules, trusted=validity == "valid" and not doubted and not behind, now_s=now_s
    )
    signals = live._replace(
        floor=floors.floor,
        floor_ahead=np.full(len(fleet.pools), np.inf) if doubted else np.fmax(ahead, floors.floor),
        ceiling=np.maximum(np.fmin(calendars.ceiling, fleet.most), floors.floor),
        scheduled=calendars.minimum,
    )
    # A floor that holds is a fault's, or a maintenance's; bounds.min may be above it.
    settings = fleet.settings._replace(min_replicas=np.minimum(fleet.settings.min_replicas, floors.floor))
    decision, state = decide(signals, memory.state, settings, now_s)
    return Ticked(
        at=now,
        fleet=fleet,
        decision=decision,
        floors=floors,
        validity=validity,
        memory=replace(memory, floors=floors, state=state),
    )
