"""The floor in force of each pool: what was published, and what holds where nothing valid is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from floorcast.pool import Pool
from floorcast.types import FloorSchedule
from scaling.capacity import Floats
from scaling.overlay.settings import Flags
from scaling.shape import fall


@dataclass(frozen=True)
class FloorGrid:
    """A schedule's floors on one grid: [windows, lanes], NaN where it has none."""

    start_s: float
    window_s: float
    floors: Floats

    def due(self, at: datetime) -> Floats:
        """[lanes]: the floor of the window that holds `at`."""
        row = self._row(at)
        if not 0 <= row < len(self.floors):
            return np.full(self.floors.shape[1], np.nan)
        due: Floats = self.floors[row]
        return due

    def ahead(self, at: datetime, *, within_s: Floats) -> Floats:
        """[lanes]: the highest floor of the windows from `at` to `within_s` [lanes] later; NaN where there is none."""
        first, highest = max(self._row(at), 0), np.full(len(within_s), np.nan)
        for span_s in np.unique(within_s).tolist():
            lanes = within_s == span_s
            wanted = self.floors[first : self._row(at) + math.ceil(span_s / self.window_s) + 1, lanes]
            if len(wanted):
                highest[lanes] = np.fmax.reduce(wanted, axis=0)
        return highest

    def _row(self, at: datetime) -> int:
        return math.floor((at.timestamp() - self.start_s) / self.window_s)


def grid_of(schedule: FloorSchedule, pools: Sequence[str]) -> FloorGrid:
    """The floors of `pools`, a lane each, in this order."""
    spans = {
        name: [(w.start.timestamp(), w.end.timestamp(), w.min_replicas) for w in schedule.pools[name].windows]
        for name in pools
        if name in schedule.pools
    }
    edges = np.unique([edge for windows in spans.values() for start, end, _ in windows for edge in (start, end)])
    if not len(edges):
        return FloorGrid(schedule.issued_at.timestamp(), 60.0, np.full((0, len(pools)), np.nan))
    first = edges[0]
    window_s = max(float(np.gcd.reduce(np.round(np.diff(edges)).astype(np.int64))), 1.0)
    floors = np.full((round((edges[-1] - first) / window_s), len(pools)), np.nan)
    for lane, name in enumerate(pools):
        for start, end, replicas in spans.get(name, ()):
            floors[round((start - first) / window_s) : round((end - first) / window_s), lane] = replicas
    return FloorGrid(float(first), window_s, floors)


class FloorRules(NamedTuple):
    """[lanes]"""

    least: Floats
    """Where no floor is known: `fallback_replicas`, else `bounds.min`."""
    step_down: Floats
    multiple_of: Floats
    every_s: Floats


def rules_of(pools: Sequence[Pool]) -> FloorRules:
    rows = [
        (
            pool.bounds.min if pool.fallback_replicas is None else pool.fallback_replicas,
            pool.shape.step_down,
            pool.shape.multiple_of,
            pool.shape.every.total_seconds(),
        )
        for pool in pools
    ]
    return FloorRules(*np.array(rows, dtype=np.float64).reshape(len(rows), 4).T)


class InForce(NamedTuple):
    """[lanes]. What is remembered of floors from tick to tick."""

    floor: Floats
    """NaN before any is known."""
    held: Flags
    """It is not the one published for now: it is kept up by a fault, or comes down after one."""
    moved_at_s: Floats
    """By the overlay's clock, when it was last kept up or let down."""


def unknown_floors(lanes: int) -> InForce:
    return InForce(np.full(lanes, np.nan), np.zeros(lanes, dtype=np.bool_), np.full(lanes, -np.inf))


def in_force(due: Floats, before: InForce, rules: FloorRules, *, trusted: bool, now_s: float) -> InForce:
    """The floors in force now, at `now_s` of the overlay's clock. `due` [lanes] is published for now, NaN for none.

    Of a schedule that is trusted, what is due, if that is not under a floor that a fault kept up: that comes down by
    the pool's `step_down` once in every `every`. Of any other the most of what is due, the floor before and
    `least`, which never falls.
    """
    known = ~np.isnan(due)
    kept = np.fmax(np.fmax(due, before.floor), rules.least)
    floor = np.where(known, due, kept) if trusted else kept
    late = (before.held & (due < before.floor)) if trusted else np.zeros(len(due), dtype=np.bool_)
    falls = late & (now_s - before.moved_at_s >= rules.every_s)
    floor = np.where(late, before.floor, floor)
    for lane in np.flatnonzero(falls).tolist():
        step_down, multiple_of = float(rules.step_down[lane]), int(rules.multiple_of[lane])
        lower = fall(int(before.floor[lane]), step_down=step_down, multiple_of=multiple_of)
        floor[lane] = max(lower, due[lane])
    held = ~known | (floor > due) if trusted else np.ones(len(due), dtype=np.bool_)
    moved_at_s = np.where(held & (~late | falls), now_s, before.moved_at_s)
    return InForce(floor, held, moved_at_s)
