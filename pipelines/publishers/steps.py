"""A pool's floors as the few steps that a document holds which someone else plays, whether floorcast lives or not."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import floor_due


@dataclass(frozen=True, order=True)
class Step:
    """`replicas` from `start` (included) to `end` (excluded)."""

    start: datetime
    end: datetime
    replicas: int


def steps_of(schedule: FloorSchedule, pool: str, now: datetime) -> list[Step]:
    """The floors of a pool from `now` to the end of its last window, contiguous, each next to one of another height.

    After `valid_until` they rise and never fall: nobody will take the document away when floorcast is gone, and a
    failure must not lower a floor. Raises NotFoundError for an unknown pool, or where `now` is past the last window.
    """
    windows = schedule.pools[pool].windows if pool in schedule.pools else ()
    floor_due(schedule, pool, max(now, windows[0].start) if windows else now)
    steps: list[Step] = []
    for window in windows:
        for start, end in _cut(window.start, window.end, at=schedule.valid_until):
            if end <= now:
                continue
            begin, replicas = (start, window.min_replicas) if steps else (now, window.min_replicas)
            if steps and start >= schedule.valid_until:
                replicas = max(replicas, steps[-1].replicas)
            if steps and steps[-1].replicas == replicas:
                begin = steps.pop().start
            steps.append(Step(begin, end, replicas))
    return steps


def _cut(start: datetime, end: datetime, *, at: datetime) -> list[tuple[datetime, datetime]]:
    return [(start, at), (at, end)] if start < at < end else [(start, end)]


def at_most(steps: Sequence[Step], count: int) -> list[Step]:
    """No more than `count` steps that are nowhere lower than the given ones: neighbours are merged to the higher of the
    two, those first that cost the fewest replica-seconds. Contiguous steps in, contiguous steps out."""
    merged = list(steps)
    alive = [True] * len(merged)
    before = list(range(-1, len(merged) - 1))
    after = [*range(1, len(merged)), -1]
    heap = [(_cost(merged[i], merged[i + 1]), i, i + 1, merged[i], merged[i + 1]) for i in range(len(merged) - 1)]
    heapq.heapify(heap)
    left = len(merged)
    while left > max(count, 1):
        _, i, j, one, other = heapq.heappop(heap)
        if not alive[i] or not alive[j] or merged[i] is not one or merged[j] is not other:
            continue
        merged[i] = Step(one.start, other.end, max(one.replicas, other.replicas))
        alive[j] = False
        after[i] = after[j]
        if after[i] >= 0:
            before[after[i]] = i
        left -= 1
        for a, b in ((before[i], i), (i, after[i])):
            if a >= 0 and b >= 0:
                heapq.heappush(heap, (_cost(merged[a], merged[b]), a, b, merged[a], merged[b]))
    return [step for step, lives in zip(merged, alive, strict=True) if lives]


def _cost(one: Step, other: Step) -> float:
    """Replica-seconds that merging the two adds."""
    lower = min(one, other, key=lambda step: step.replicas)
    return abs(one.replicas - other.replicas) * (lower.end - lower.start).total_seconds()
