"""Where what replicas did in production speaks against the capacity that they are planned with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
import polars as pl

from floorcast.pool import Pool
from scaling.calibration.loaded import lasting, load_of, per_replica, queued, quiet

_CLEARLY = 0.1
"""A load is above or below a limit where it is so by more than this share of it."""

_AT_ONCE = timedelta(minutes=15)
_IN_ALL = timedelta(hours=1)
_MOSTLY = 0.9
"""Share of the steps above capacity that no queue may have spoiled."""

_HALF = 0.5
"""Share of the steps with a queue that must be at a low load: a single sick replica queues now and then."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """`low`: replicas sustained clearly more than the capacity, and nothing waited. `high`: requests waited at clearly
    less than the capacity times the target utilization, which is what floors count on.

    `load` is that of a replica as a share of its configured capacity: the one reached for an hour in all where the
    capacity is too `low`, the median with a queue where it is too `high`. Rates are those of one replica at about that
    load, `binding` is the term of the capacity formula that decides there. From `start` to `end` are the `steps` that
    show it."""

    capacity_is: Literal["low", "high"]
    load: float
    binding: str
    tokens_in_per_s: float
    tokens_out_per_s: float
    waiting_per_replica: float
    steps: int
    start: datetime
    end: datetime


def contradictions(steps: pl.DataFrame, pool: Pool, *, step: timedelta) -> list[Contradiction]:
    """What the `loaded_steps` of a pool say against its capacity: at most one of each kind.

    Each needs runs of steps of a quarter of an hour and an hour in all, so that neither a burst nor an incident is
    taken for it, and counts replicas so that it is least likely: the most that were ready in a step where capacity
    looks too low, the fewest where it looks too high.
    """
    if steps.is_empty():
        return []
    found = []
    for capacity_is, most in (("low", False), ("high", True)):
        rates = per_replica(steps, most=most)
        load, binding = load_of(rates, pool)
        if capacity_is == "low":
            beyond = load > 1 + _CLEARLY
            flags = beyond & quiet(steps)
            believed = flags.sum() >= _MOSTLY * beyond.sum()
        else:
            waited = queued(steps)
            flags = waited & (load < pool.capacity.target_utilization * (1 - _CLEARLY))
            believed = flags.sum() >= _HALF * waited.sum()
        shown = np.flatnonzero(lasting(flags, steps, step=step, least=_AT_ONCE))
        least = max(-(-_IN_ALL // step), 1)
        if not believed or len(shown) < least:
            continue
        by_load = shown[np.argsort(load[shown], kind="stable")]
        place = by_load[-least] if capacity_is == "low" else by_load[len(by_load) // 2]
        times = steps["step_start"].gather(shown)
        found.append(
            Contradiction(
                capacity_is="low" if capacity_is == "low" else "high",
                load=float(load[place]),
                binding=str(binding[place]),
                tokens_in_per_s=float(rates[place, 0]),
                tokens_out_per_s=float(rates[place, 1]),
                waiting_per_replica=float(
                    np.median((steps["waiting_requests"] / steps["ready_max"]).to_numpy()[shown])
                ),
                steps=len(shown),
                start=times[0],
                end=times[-1] + step,
            )
        )
    return found
