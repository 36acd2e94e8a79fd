"""How gently floors move: they stay, hold after they are needed, then step down. Nothing here goes below need.

All rules depend on past floors only through numbers that were published, and on the time of a fall only
through the step grid, so that publications that follow one another continue each other's descent. All are
nondecreasing in their inputs: a larger one never gives a smaller floor.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from scaling.capacity import Ints

_NOISE = 1e-9
Whole = TypeVar("Whole", Ints, int)


def whole_multiples(replicas: Whole, multiple_of: int) -> Whole:
    """Up to the next multiple."""
    return -(-replicas // multiple_of) * multiple_of


def stay(wanted: Ints, *, published: Ints, hysteresis: float) -> Ints:
    """What was published for a window stays where what is wanted is lower by no more than `hysteresis` of it.

    Both are [windows]; 0 is nothing published.
    """
    near = (wanted < published) & (published - wanted <= hysteresis * published + _NOISE)
    return np.where(near, published, wanted)


def hold(wanted: Ints, *, published: Ints, dwell_steps: int) -> Ints:
    """Hold what is wanted in one window through the `dwell_steps - 1` windows after it.

    `wanted` is [windows]. `published` is [1 + windows]: what was published before for the window just before the
    first and for each window, 0 for nothing. What was published for the first `dwell_steps - 1` windows stays, so
    a floor already in force keeps its dwell through the publications after it.
    """
    held = wanted.copy()
    for lag in range(1, min(dwell_steps, len(wanted))):
        held[lag:] = np.maximum(held[lag:], wanted[:-lag])
    promised = published[1 : max(dwell_steps, 1)]
    held[: len(promised)] = np.maximum(held[: len(promised)], promised)
    return held


def descend(
    held: Ints, *, before: int, first_index: int, step_down: float, every_steps: int, multiple_of: int = 1
) -> Ints:
    """Fall gently from `before`: floor[i] = max(held[i], floor[i - 1] - allowed[i]).

    A fall is allowed at windows whose index from the Unix epoch, `first_index` for the first, divides by
    `every_steps`, to `fall(floor[i - 1])`.
    """
    floor, floors = before, []
    for index, least in enumerate(held.tolist(), start=first_index):
        if index % every_steps == 0:
            floor = fall(floor, step_down=step_down, multiple_of=multiple_of)
        floor = max(least, floor)
        floors.append(floor)
    return np.array(floors, dtype=np.int64)


def fall(floor: int, *, step_down: float, multiple_of: int) -> int:
    """What a floor may fall to at once; it may be under 0.

    By `step_down` replicas from 1 on, or that share of the floor below 1, rounded down. It is in whole multiples and at
    least one of them, which for a count of replicas are those it begins, so that it never stalls.
    """
    multiples = math.ceil(step_down / multiple_of) if step_down >= 1 else int(step_down * floor / multiple_of + _NOISE)
    return floor - max(multiples, 1) * multiple_of
