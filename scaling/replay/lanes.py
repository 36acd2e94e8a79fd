"""Candidate settings of one pool, replayed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from floorcast.errors import DataError
from scaling.capacity import Floats, Ints
from scaling.overlay.decide import decide
from scaling.overlay.settings import Settings
from scaling.overlay.signals import Signals
from scaling.overlay.state import begin

Policy = Callable[[Signals, float], npt.NDArray[np.floating | np.integer]]
"""From signals and the seconds since the replay began to replicas desired, [lanes]. May keep what it has seen."""


@dataclass(frozen=True)
class Lanes:
    """`floors` are replicas, [windows, lanes], each window `window_s` long from the start of the traffic; the last
    holds on. A lane where `overlay` is false asks for its floor and nothing else.

    `floors_ahead` and `ahead`, of the same shape, are what was known at each window of the time after it: the highest
    floor within a startup and minimum uptime, and the load that `lookahead` expects, in replicas at full use, NaN for
    none. Without them the floor itself, and none.
    """

    names: tuple[str, ...]
    floors: Ints
    window_s: float
    overlay: npt.NDArray[np.bool_]
    floors_ahead: Ints | None = None
    ahead: Floats | None = None

    def __post_init__(self) -> None:
        shapes = {one.shape for one in (self.floors, self.floors_ahead, self.ahead) if one is not None}
        if shapes != {(len(self.floors), len(self.names))} or self.overlay.shape != (len(self.names),):
            raise DataError(
                f"arrays of {', '.join(map(str, sorted(shapes)))} do not fit {len(self.names)} lanes",
                where="lanes",
                remedy="give each lane a name, and floors for the same windows",
            )
        if not len(self.floors) or (self.floors < 0).any():
            raise DataError("floors are missing or negative", where="lanes", remedy="give floors of at least 0")

    @property
    def count(self) -> int:
        return len(self.names)

    def window_at(self, step: int, step_s: float) -> int:
        return min(int(step * step_s // self.window_s), len(self.floors) - 1)


def lanes_of(
    floors: Mapping[str, npt.ArrayLike],
    *,
    window_s: float,
    overlay: Sequence[str] = (),
) -> Lanes:
    """A lane for each name, with its floors [windows] or the same floor all along; those in `overlay` have it."""
    names = tuple(floors)
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(floors[name], dtype=np.int64)) for name in names))
    stacked = np.stack(columns, axis=1)
    return Lanes(names, stacked, window_s, np.array([name in overlay for name in names]))


def overlay_policy(settings: Settings) -> Policy:
    """The overlay with these settings, a lane each, that remembers from tick to tick. One replay uses it up."""
    state = begin(len(settings.capacity_in), 0.0)

    def policy(signals: Signals, now_s: float) -> Ints:
        nonlocal state
        decision, state = decide(signals, state, settings, now_s)
        return decision.desired

    return policy
