"""What the overlay remembers from tick to tick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from floorcast.errors import DataError
from scaling.capacity import Floats, Ints
from scaling.overlay.settings import RATES
from scaling.overlay.signals import Kind

SLOTS = 16
"""A stabilization window is kept as the extremes of 15 equal slots and the one that is running."""
PACE_SLOTS = 7
"""A minute of changes, in slots of ten seconds."""
QUEUES = slice(Kind.WAITING_REQUESTS, Kind.WAITING_TOKENS_OUT + 1)


class State(NamedTuple):
    """Arrays whose last axis is the lane. Times are seconds of the clock that `decide` is given; -inf is never."""

    desired: Floats
    """What was decided last; NaN before the first decision."""
    requested: Floats
    """The workload's replicas as last seen."""
    floor: Floats
    """The floor as last known."""
    mean: Floats
    """[kinds + 2, lanes]: each signal's mean; in the last two rows the token rates' over the panic window."""
    seen_at_s: Floats
    """[kinds, lanes]: when each signal was last fresh."""
    fresh_at_s: Floats
    """When any signal was last fresh; the start before that."""
    queue: Floats
    """[3, lanes]: what waited last, of each kind."""
    queue_level: Floats
    """[3, lanes]: what waited when the queue last moved."""
    queue_moved_at_s: Floats
    panic_until_s: Floats
    out_at_s: Floats
    """When the overlay last raised."""
    changed_at_s: Floats
    """When the replicas last changed, either way and whoever changed them."""
    window_value: Floats
    """[2, SLOTS, lanes]: per slot, the least asked for (scale-out) and the most (scale-in)."""
    window_slot: Ints
    """[2, SLOTS, lanes]: which slot of time that is."""
    pace_value: Floats
    """[2, PACE_SLOTS, lanes]: replicas added and let go per slot."""
    pace_slot: Ints
    """[2, PACE_SLOTS, lanes]"""


_LEADING = {
    "mean": (len(Kind) + len(RATES),),
    "seen_at_s": (len(Kind),),
    "queue": (3,),
    "queue_level": (3,),
    "queue_moved_at_s": (3,),
    "window_value": (2, SLOTS),
    "window_slot": (2, SLOTS),
    "pace_value": (2, PACE_SLOTS),
    "pace_slot": (2, PACE_SLOTS),
}
_INITIAL = {
    "mean": 0.0,
    "seen_at_s": -np.inf,
    "panic_until_s": -np.inf,
    "out_at_s": -np.inf,
    "changed_at_s": -np.inf,
    "window_value": 0.0,
    "window_slot": np.iinfo(np.int64).min // 2,
    "pace_value": 0.0,
    "pace_slot": np.iinfo(np.int64).min // 2,
}
"""NaN where nothing else is said."""


def begin(lanes: int, now_s: float) -> State:
    """The state of lanes that know nothing yet."""
    starts = dict.fromkeys(("fresh_at_s", "queue_moved_at_s"), now_s)
    arrays: dict[str, Any] = {
        name: np.full(
            (*_LEADING.get(name, ()), lanes),
            (_INITIAL | starts).get(name, np.nan),
            dtype=np.int64 if name.endswith("_slot") else np.float64,
        )
        for name in State._fields
    }
    return State(**arrays)


def to_arrays(state: State) -> dict[str, npt.NDArray[Any]]:
    """By name, as for `numpy.savez`."""
    return state._asdict()


def from_arrays(arrays: Mapping[str, npt.NDArray[Any]], *, lanes: int, where: str) -> State:
    """The state that `to_arrays` wrote. Raises DataError, naming `where`, unless it is of so many lanes."""
    like = begin(lanes, 0.0)
    for name, expected in to_arrays(like).items():
        found = arrays.get(name)
        if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
            said = "is missing" if found is None else f"is {found.dtype}{list(found.shape)}"
            raise DataError(
                f"overlay state {name} {said}, not {expected.dtype}{list(expected.shape)}",
                where=where,
                remedy="delete it: the overlay begins anew, holding replicas until it has seen its signals",
            )
    return State(**{name: arrays[name] for name in State._fields})
