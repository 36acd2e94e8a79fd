"""Settings chosen on the days before each judged day, and judged on that day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from floorcast.pool import Pool
from floorcast.tuning import TunedSettings
from scaling.capacity import Floats
from scaling.tuning.candidates import coarse, neighbours
from scaling.tuning.outcomes import Outcome

ROUNDS = 2
"""Of settings near the best, after the coarse ones."""

RESERVE = 0.2
"""Of what may be late, kept back while choosing: days to come are not those that chose."""

_ROUNDING = 1e-9

Replay = Callable[[Sequence[TunedSettings]], Sequence[Outcome]]


@dataclass(frozen=True)
class Judged:
    """One way to run a pool. `outcome` is of the judged days, each under the settings chosen on the days before it;
    `chosen` are those, in order, and `settings` the choice on all days."""

    settings: TunedSettings
    chosen: tuple[TunedSettings, ...]
    outcome: Outcome


@dataclass(frozen=True)
class Searched:
    floors: Judged
    overlay_alone: Judged
    outcomes: Mapping[TunedSettings, Outcome]
    """Of all settings tried, over all days."""


def search(replayed: Replay, pool: Pool, *, days: int, judged: int, promise: float) -> Searched:
    """The best settings with floors and without, from a coarse grid and what is near the best of it.

    The last `judged` of the `days` are judged. What is chosen for one of them, and what is tried on the way there,
    depends on the days before it alone: each has its own search, and the replays are shared, since a lane does not
    depend on the others.
    """
    kinds = (True, False)
    tried = {(floors, cutoff): coarse(pool, floors=floors) for floors in kinds for cutoff in _cutoffs(days, judged)}
    known: dict[TunedSettings, Outcome] = {}

    def best(floors: bool, cutoff: int) -> TunedSettings:
        return choose({one: known[one] for one in tried[floors, cutoff]}, days=cutoff, promise=promise)

    for remaining in range(ROUNDS, -1, -1):
        new = [one for one in dict.fromkeys(one for some in tried.values() for one in some) if one not in known]
        known.update(zip(new, replayed(new), strict=True))
        if remaining:
            for key, some in tried.items():
                tried[key] = list(dict.fromkeys([*some, *neighbours(best(*key))]))
    both = []
    for floors in kinds:
        chosen = tuple(best(floors, cutoff) for cutoff in range(days - judged, days))
        both.append(Judged(best(floors, days), chosen, _stitched([known[one] for one in chosen], days - judged)))
    return Searched(both[0], both[1], known)


def choose(outcomes: Mapping[TunedSettings, Outcome], *, days: int, promise: float) -> TunedSettings:
    """The cheapest that kept the promise over the first `days` with `RESERVE` of what may be late to spare, else what
    was on time most; the first of equals."""
    settings = list(outcomes)
    hours = np.array([outcomes[one].gpu_hours[:days].sum() for one in settings])
    share = np.array([on_time_share(outcomes[one].on_time[:days], outcomes[one].settled[:days]) for one in settings])
    kept = share >= promise + RESERVE * (1 - promise) - _ROUNDING
    if kept.any():
        return settings[int(np.argmin(np.where(kept, hours, np.inf)))]
    return settings[int(np.lexsort((hours, -share))[0])]


def on_time_share(on_time: Floats, settled: Floats) -> float:
    """1 where nothing came."""
    total = float(settled.sum())
    return float(on_time.sum()) / total if total > 0 else 1.0


def _cutoffs(days: int, judged: int) -> range:
    """The days known when each judged day was chosen for, and all days for those to come."""
    return range(days - judged, days + 1)


def _stitched(outcomes: Sequence[Outcome], first: int) -> Outcome:
    days = [(one, first + place) for place, one in enumerate(outcomes)]
    return Outcome(
        gpu_hours=np.array([one.gpu_hours[day] for one, day in days]),
        on_time=np.array([one.on_time[day] for one, day in days]),
        settled=np.array([one.settled[day] for one, day in days]),
    )
