"""What was published for the overlay beside the schedule: tuned settings, and the past that `lookahead` looks at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

import numpy as np

from floorcast.errors import PublishError
from floorcast.pool import Pool
from pipelines.publishers.overlay_file import FILE, OverlayFacts, PastLoad, read_overlay_facts
from pipelines.service.publication import Stamp, stamp_of
from scaling.capacity import Floats, full_load
from scaling.overlay.growth import Growth, growths
from scaling.overlay.settings import RATES
from scaling.overlay.signals import Signals
from scaling.overlay.smoothing import Observed
from scaling.tuning.candidates import with_settings

_BUDGET_S = 0.05


class FactsReader:
    """Reads a folder's `overlay.json` each time it has changed. One that is damaged leaves the last in force."""

    def __init__(self, folder: Path) -> None:
        self._path, self._folder = folder / FILE, folder
        self._stamp: Stamp | None = None
        self.facts: OverlayFacts | None = None
        self.fault: str | None = None

    def changed(self) -> bool:
        """Look at the file; whether there are other facts than before."""
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            found = read_overlay_facts(self._folder)
        except PublishError as error:
            self.fault = f"{error.where}: {error.what}; the last one holds"
            return False
        self.fault = None
        if found is None:
            return False
        self.facts = found
        return True


def tuned(pools: Mapping[str, Pool], facts: OverlayFacts | None) -> dict[str, Pool]:
    """The pools with the tuned settings of those that apply theirs."""
    settings = {} if facts is None else facts.tuned
    return {
        name: with_settings(pool, settings[name]) if pool.tune.apply and name in settings else pool
        for name, pool in pools.items()
    }


class Growths:
    """The growth of each pool that looks ahead, worked out anew a few dozen pools a tick, the oldest first: it takes
    about a millisecond a pool, and changes by the minute."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        facts: OverlayFacts | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        past = {} if facts is None else facts.past
        self._lanes = [
            (lane, pool, past[name], np.array([np.nan if one is None else one for one in past[name].load]))
            for lane, (name, pool) in enumerate(pools.items())
            if name in past
        ]
        self._monotonic = monotonic
        self._next = 0
        self._found = Growth(*np.full((2, len(pools)), np.nan))

    def read(self, live: Signals, observed: Observed, now: datetime) -> Growth:
        """[lanes]: of the means `observed`; NaN, which counts as none, where the past tells none."""
        end = self._monotonic() + _BUDGET_S
        for _ in range(len(self._lanes)):
            lane, pool, past, load = self._lanes[self._next]
            self._next = (self._next + 1) % len(self._lanes)
            rates = np.array([observed.mean[list(RATES), lane], live.live[list(RATES), lane]])
            rates[:, ~observed.fresh[list(RATES), lane]] = np.nan
            seen = full_load(pool, rates[:, 0], rates[:, 1])
            self._found.factor[lane], self._found.offset[lane] = growth_now(load, past, pool, seen=seen, now=now)
            if self._monotonic() > end:
                break
        return Growth(*(part.copy() for part in self._found))


def growth_now(load: Floats, past: PastLoad, pool: Pool, *, seen: Floats, now: datetime) -> tuple[float, float]:
    """Factor and offset by which the load grows, in replicas at full use. `seen` [2] is its mean over the overlay's
    window, which is to grow so, and what it is just now; NaN where that is not known, or the past tells nothing of a
    moment like this."""
    steps = int((now - past.start).total_seconds() // past.step_s)
    if np.isnan(seen).any() or not 0 < steps < 2 * len(load):
        return float("nan"), float("nan")
    loads = np.full(steps + 1, np.nan)
    known = load[: steps + 1]
    loads[: len(known)] = known
    rates = np.tile(np.concatenate([[np.nan], loads[:-1]]), (len(seen), 1))
    rates[:, steps] = seen
    [found] = growths(
        loads,
        at=[steps],
        step_s=past.step_s,
        ahead_s=pool.startup.p90.total_seconds(),
        lookahead=pool.overlay.lookahead,
        levels=(pool.overlay.lookahead.quantile,),
        live=rates,
    )
    return float(found.factor[0]), float(found.offset[0])
