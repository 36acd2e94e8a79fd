"""Work that may wait, spread over time so that the load it adds to is as level as can be. Plain numbers, exact.

One class's work is a number per step, in replicas x steps. It arrives over time and has deadlines, so what is done
up to each step boundary lies between what has arrived and what is due. Among all such plans the one found has the
least peak, among those the least second peak, and so on: the lexicographically least load, which for work of this
form also minimises every sum of a convex function of the load (Fujishige, "Lexicographically optimal base of a
polymatroid", 1980; Vidal, Gribel and Jaillet, "Separable convex optimization with nested lower and upper
constraints", 2019).

How: at a level of load L, each step does the work that raises its load to L and no more (its `Ramp`). Backwards over
time, done(L) is what must be done before a step if all steps from it on are levelled at L, cut to what is due and
what has arrived where that interferes. It is a falling, piecewise linear function of L, so each step adds two knots
and cuts knots off both ends; forwards, the level only changes where a cut was made. This is the dynamic programme of
Johnson (2013) for the fused lasso, with ramps in place of squared errors: n log n.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats

_LEAST_SHARE = 1e-9


class Ramp(NamedTuple):
    """How much work brings a step's load to a level: none up to `base`; then `rate` for each replica of level above
    it, from `bend` on `rate_after`, which is not larger."""

    base: float
    rate: float
    bend: float
    rate_after: float

    def work(self, level: float) -> float:
        """The work that raises the load to `level`."""
        if level <= self.base:
            return 0.0
        if level <= self.bend:
            return (level - self.base) * self.rate
        return (self.bend - self.base) * self.rate + (level - self.bend) * self.rate_after


def ramps(others: Floats, share: Floats) -> list[Ramp]:
    """One ramp a step. Both arrays are [terms, steps]: the step's load is the greatest of `others + share * work` over
    its one or two terms. `share` sums to 1; a term without a share is only a bound from below."""
    if len(others) == 1:
        return [
            Ramp(load, 1 / part, math.inf, 0.0) for load, part in zip(*others.tolist(), *share.tolist(), strict=True)
        ]
    first = others[0] >= others[1]
    high, low = others.max(axis=0), others.min(axis=0)
    high_share = np.maximum(np.where(first, share[0], share[1]), _LEAST_SHARE)
    low_share = np.maximum(np.where(first, share[1], share[0]), _LEAST_SHARE)
    # The lower term catches up where it grows faster.
    apart = low_share - high_share
    meet = np.where(apart > 0, (high - low) / np.where(apart > 0, apart, 1), np.inf)
    columns = np.stack([high, 1 / high_share, high + high_share * meet, 1 / low_share])
    return [Ramp(*one) for one in columns.T.tolist()]


def level(steps: Sequence[Ramp], arrived: Sequence[float], due: Sequence[float]) -> Floats:
    """[n] the work done in each step, levelled.

    `steps` is [n]. `arrived` and `due` are [n + 1], at the boundaries of the steps: all work that may have been done
    by then, and all that must. Neither falls, `due` is at most `arrived`, and at the end they are equal.
    """
    done = _Done(arrived[-1])
    limits = [(-math.inf, math.inf)] * (len(steps) + 1)
    for step in range(len(steps) - 1, -1, -1):
        limits[step + 1] = done.cut(due[step + 1], arrived[step + 1])
        done.subtract(steps[step])
    lowest, at = done.cut(0.0, 0.0)
    at = max(lowest, at) if math.isfinite(at) else lowest
    worked = np.zeros(len(steps))
    before = 0.0
    for step, one in enumerate(steps):
        if step:
            at = min(max(at, limits[step][0]), limits[step][1])
        after = min(max(before + one.work(at), due[step + 1]), arrived[step + 1])
        worked[step], before = after - before, after
    return worked


class _Done:
    """What is done before a step, as a function of the level: `top` below all knots, falling by the sum of `falls` of
    the knots passed. `bottom` is its value at the last knot, `fall` how steeply it falls after that."""

    def __init__(self, value: float) -> None:
        self.levels: list[float] = []
        self.falls: list[float] = []
        self.top = self.bottom = value
        self.fall = 0.0

    def subtract(self, one: Ramp) -> None:
        self._knot(one.base, one.rate)
        if math.isfinite(one.bend):
            self._knot(one.bend, one.rate_after - one.rate)

    def _knot(self, at: float, fall: float) -> None:
        if self.levels:
            ahead = at - self.levels[-1]
            self.bottom -= self.fall * ahead if ahead > 0 else fall * -ahead
        place = bisect_left(self.levels, at)
        self.levels.insert(place, at)
        self.falls.insert(place, fall)
        self.fall += fall

    def cut(self, low: float, high: float) -> tuple[float, float]:
        """Keep the function within [low, high]; the levels from which on it is below `high`, and at `low`."""
        first = self._cut_top(high) if self.top > high else -math.inf
        last = self._cut_bottom(low) if self.fall > 0 else math.inf
        return first, last

    def _cut_top(self, high: float) -> float:
        value, fall, passed = self.top, 0.0, 0
        crossing = math.inf
        for at, more in zip(self.levels, self.falls, strict=True):
            if passed and fall > 0:
                behind = self.levels[passed - 1]
                below = value - fall * (at - behind)
                if below <= high:
                    crossing = behind + (value - high) / fall
                    break
                value = below
            fall += more
            passed += 1
        if crossing == math.inf:
            crossing = self.levels[-1] + max(value - high, 0.0) / fall
            self.bottom = high
        self.levels[:passed] = [crossing]
        self.falls[:passed] = [fall]
        self.top = high
        return crossing

    def _cut_bottom(self, low: float) -> float:
        at = self.levels[-1]
        while self.levels:
            at = self.levels[-1]
            if self.bottom >= low:
                at += (self.bottom - low) / self.fall
                break
            self.levels.pop()
            self.fall -= self.falls.pop()
            if self.levels:
                self.bottom += self.fall * (at - self.levels[-1])
        self.levels.append(at)
        self.falls.append(-self.fall)
        self.bottom, self.fall = low, 0.0
        return at
