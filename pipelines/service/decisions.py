"""A tick's decisions as the board shows them: each made when it is read, since of thousands few are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule, FloorWindow
from pipelines.publishers.schedule import floor_due
from pipelines.service.board import PoolDecision
from pipelines.service.tick import Ticked
from scaling.capacity import Floats
from scaling.overlay.explain import Explanation, explain
from scaling.overlay.signals import Kind


class LaneDecision(PoolDecision):
    """The decision of one lane. What it says of triggers, rules and in words is worked out when it is asked for."""

    def __init__(self, ticked: Ticked, lane: int, schedule: FloorSchedule | None, **figures: object) -> None:
        vars(self).update(figures, _ticked=ticked, _lane=lane, _schedule=schedule)

    @cached_property
    def _explanation(self) -> Explanation:
        ticked: Ticked = vars(self)["_ticked"]
        return explain(ticked.decision, ticked.fleet.settings, vars(self)["_lane"])

    @cached_property
    def lost(self) -> tuple[str, ...]:
        ticked: Ticked = vars(self)["_ticked"]
        return tuple(kind.name.lower() for kind in Kind if ticked.decision.unknown.lost[kind, vars(self)["_lane"]])

    @cached_property
    def triggers(self) -> tuple[Mapping[str, object], ...]:
        return tuple(
            {
                "name": vote.trigger,
                "value": _figure(vote.value),
                "target": _figure(vote.target),
                "replicas": _figure(vote.replicas),
                "vote": str(vote.vote),
                "stuck": vote.stuck,
            }
            for vote in self._explanation.votes
        )

    @cached_property
    def rules(self) -> tuple[Mapping[str, object], ...]:
        return tuple(
            {"rule": rule, "before": before, "after": after} for rule, before, after in self._explanation.rules
        )

    @cached_property
    def words(self) -> str:
        return "\n".join(self._explanation.lines())

    @cached_property
    def window(self) -> FloorWindow | None:
        schedule: FloorSchedule | None = vars(self)["_schedule"]
        if schedule is None:
            return None
        try:
            return floor_due(schedule, self.pool, self.decided_at)
        except NotFoundError:
            return None


class Decisions(Mapping[str, PoolDecision]):
    """All of a tick's, by pool."""

    def __init__(self, ticked: Ticked, schedule: FloorSchedule | None) -> None:
        self._ticked, self._schedule = ticked, schedule
        self._lanes = {name: lane for lane, name in enumerate(ticked.fleet.pools)}
        self._made: dict[str, PoolDecision] = {}

    @cached_property
    def _figures(self) -> dict[str, list[object]]:
        """By lane; lists, since reading an array number by number takes ten times as long."""
        ticked, decision = self._ticked, self._ticked.decision
        kept = "held" if ticked.validity == "valid" else ticked.validity
        counts = {name: getattr(decision.signals, name) for name in ("ready", "starting", "draining")}
        return {
            "pool": list(ticked.fleet.pools),
            "desired": decision.desired.tolist(),
            "floor": ticked.floors.floor.astype(int).tolist(),
            "floor_source": [kept if held else "schedule" for held in ticked.floors.held.tolist()],
            "ceiling": decision.ceiling.astype(int).tolist(),
            "alert": decision.alert.tolist(),
            **{name: _counts(values) for name, values in (counts | {"current": decision.current}).items()},
        }

    def __getitem__(self, pool: str) -> PoolDecision:
        made = self._made.get(pool)
        if made is None:
            lane = self._lanes[pool]
            figures = {name: values[lane] for name, values in self._figures.items()}
            made = LaneDecision(self._ticked, lane, self._schedule, decided_at=self._ticked.at, **figures)
            self._made[pool] = made
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)


def _counts(replicas: Floats) -> list[int | None]:
    return [None if math.isnan(count) else int(count) for count in replicas.tolist()]


def _figure(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
