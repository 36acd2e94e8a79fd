"""The replicas of every lane: starting, ready, draining. Whole numbers, advanced step by step."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from scaling.capacity import Floats, Ints

_DRAWS = 4096


class Fleet(Protocol):
    """What serves. `ready`, `starting` and `draining` are replicas, [lanes]."""

    ready: Ints
    starting: Ints
    draining: Ints

    def advance(self, step: int) -> None:
        """Let what is due at the start of a step happen."""


class Scaled:
    """Replicas that a policy asks for and releases.

    The nth start of every lane takes the nth of the drawn startups, so that lanes differ by their decisions alone.
    Fewer replicas: those still starting go first, the last due before the others, since nothing runs on them; then
    ready ones, which drain.
    """

    def __init__(self, ready: Ints, *, startup_s: Floats, longest_drain_s: float, step_s: float, seed: int) -> None:
        lanes = len(ready)
        rng = np.random.default_rng(seed)
        delays = np.maximum(np.ceil(rng.choice(startup_s, size=_DRAWS) / step_s), 1).astype(np.int64)
        self._delays = delays
        self._due = np.zeros((int(delays.max()) + 1, lanes), dtype=np.int64)
        self._gone = np.zeros((int(np.ceil(longest_drain_s / step_s)) + 2, lanes), dtype=np.int64)
        # Steps at which replicas come, and at which they go or come: most steps are neither.
        self._comes: set[int] = set()
        self._events: set[int] = set()
        self._begun = np.zeros(lanes, dtype=np.int64)
        self.ready = ready.copy()
        self.starting = np.zeros(lanes, dtype=np.int64)
        self.draining = np.zeros(lanes, dtype=np.int64)

    def advance(self, step: int) -> None:
        if step in self._events:
            self._events.discard(step)
            self._comes.discard(step)
            due, gone = self._due[step % len(self._due)], self._gone[step % len(self._gone)]
            self.ready += due
            self.starting -= due
            self.draining -= gone
            due[:] = 0
            gone[:] = 0

    def ask(self, desired: Ints, *, step: int, drain_s: float, step_s: float) -> Ints:
        """Start or release replicas; returns how many ready ones began to drain, [lanes]."""
        change = desired - self.ready - self.starting
        drained = np.zeros_like(change)
        if not np.count_nonzero(change):
            return drained
        more = np.flatnonzero(change > 0)
        if more.size:
            self._start(more, change[more], step)
        less = np.flatnonzero(change < 0)
        if less.size:
            drained[less] = -change[less] - self._cancel(less, -change[less])
            self.ready -= drained
            self.draining += drained
            # A replica that drains in no time is still paid for the step it began to drain in.
            steps = max(1, int(np.ceil(drain_s / step_s)))
            self._gone[(step + steps) % len(self._gone)] += drained
            self._events.add(step + steps)
        return drained

    def crash(self, slots: Ints, step: int) -> Ints:
        """The replicas in these slots fail, where a lane has them ready, and start anew; returns how many, [lanes]."""
        failed: Ints = (slots[:, None] < self.ready).sum(axis=0)
        lanes = np.flatnonzero(failed)
        if lanes.size:
            self.ready -= failed
            self._start(lanes, failed[lanes], step)
        return failed

    def _start(self, lanes: Ints, number: Ints, step: int) -> None:
        self.starting[lanes] += number
        each = np.repeat(lanes, number)
        within = np.arange(len(each)) - np.repeat(np.cumsum(number) - number, number)
        delays = self._delays[(self._begun[each] + within) % _DRAWS]
        self._begun[lanes] += number
        np.add.at(self._due, ((step + delays) % len(self._due), each), 1)
        self._comes.update((step + delays).tolist())
        self._events |= self._comes

    def _cancel(self, lanes: Ints, number: Ints) -> Ints:
        """Take back up to `number` starts of each lane, the last due first; returns how many."""
        number = np.minimum(number, self.starting[lanes])
        if not number.any():
            return number
        left = number.copy()
        for later in sorted(self._comes, reverse=True):
            row = self._due[later % len(self._due)]
            taken = np.minimum(left, row[lanes])
            row[lanes] -= taken
            left -= taken
            if not np.count_nonzero(left):
                break
        self.starting[lanes] -= number
        return number


class Given:
    """Replicas that follow a path known beforehand, [steps, lanes] each."""

    def __init__(self, ready: Ints, starting: Ints, draining: Ints) -> None:
        self._paths: tuple[npt.NDArray[np.int64], ...] = (ready, starting, draining)
        self.ready, self.starting, self.draining = (path[0] for path in self._paths)

    def advance(self, step: int) -> None:
        self.ready, self.starting, self.draining = (path[step] for path in self._paths)
