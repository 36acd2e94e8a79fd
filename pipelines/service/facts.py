"""What was published for the overlay beside the schedule: tuned settings, and the past that `lookahead` looks at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from floorcast.errors import PublishError
from floorcast.pool import Pool
from pipelines.publishers.overlay_file import FILE, OverlayFacts, PastLoad, read_overlay_facts
from pipelines.service.publication import Stamp, stamp_of
from scaling.capacity import Floats, full_load
from scaling.overlay.growth import loads_ahead, trailing_mean
from scaling.overlay.settings import RATES, Settings
from scaling.overlay.signals import Signals
from scaling.overlay.smoothing import observe
from scaling.overlay.state import State
from scaling.tuning.candidates import with_settings

_BUDGET_S = 0.1
_LASTS = timedelta(minutes=5)
"""How long an expectation counts; past it, where there are more pools than time, the live load alone does."""


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


class Expectations:
    """The load that each pool that looks ahead expects, worked out anew some dozen pools a tick, the oldest first: it
    takes one to two milliseconds a pool. What was expected long ago counts no more."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._past: dict[str, tuple[int, Pool, PastLoad, Floats]] = {}
        self._found: dict[str, tuple[datetime, float]] = {}
        self._lanes = 0

    def use(self, pools: Mapping[str, Pool], facts: OverlayFacts | None) -> None:
        """Other pools, or another past; what is expected of pools that stay, stays."""
        past = {} if facts is None else facts.past
        self._lanes = len(pools)
        self._past = {
            name: (lane, pool, past[name], np.array([np.nan if one is None else one for one in past[name].load]))
            for lane, (name, pool) in enumerate(pools.items())
            if name in past
        }
        self._found = {name: found for name, found in self._found.items() if name in self._past}

    def read(self, live: Signals, state: State, settings: Settings, now_s: float, now: datetime) -> Floats:
        """[lanes] replicas at full use, from the rates just now and their means as the overlay will have them at
        `now_s`, its time; NaN where the past tells none."""
        expected = np.full(self._lanes, np.nan)
        if not self._past:
            return expected
        observed, _ = observe(live, state, settings, now_s)
        end = self._monotonic() + _BUDGET_S
        never = now - 2 * _LASTS
        for name in sorted(self._past, key=lambda one: self._found.get(one, (never, np.nan))[0]):
            lane, pool, past, load = self._past[name]
            rates = np.array([observed.mean[list(RATES), lane], live.live[list(RATES), lane]])
            rates[:, ~observed.fresh[list(RATES), lane]] = np.nan
            seen = full_load(pool, rates[:, 0], rates[:, 1])
            self._found[name] = now, expected_load(load, past, pool, seen=seen, now=now)
            if self._monotonic() > end:
                break
        for name, (at, found) in self._found.items():
            if abs(now - at) <= _LASTS:
                expected[self._past[name][0]] = found
        return expected


def expected_load(load: Floats, past: PastLoad, pool: Pool, *, seen: Floats, now: datetime) -> float:
    """What a replica asked for `now` is to serve, in replicas at full use. `seen` [2] is the live load, its mean over
    the overlay's window and what it is just now; NaN where that is not known, or the past tells nothing of a moment
    like this."""
    steps = int((now - past.start).total_seconds() // past.step_s)
    if np.isnan(seen).any() or not 0 < steps < 2 * len(load):
        return float("nan")
    loads = np.full(steps + 1, np.nan)
    known = load[: steps + 1]
    loads[: len(known)] = known
    window = max(round(pool.overlay.rate_window.total_seconds() / past.step_s), 1)
    views = np.array([trailing_mean(loads, width)[:-1] for width in (window, 1)])
    views[:, steps] = seen
    found = loads_ahead(
        loads,
        at=[steps],
        step_s=past.step_s,
        ahead_s=pool.startup.p90.total_seconds(),
        lookahead=pool.overlay.lookahead,
        levels=(pool.overlay.lookahead.quantile,),
        live=views,
    )
    return float(found[0, 0])
