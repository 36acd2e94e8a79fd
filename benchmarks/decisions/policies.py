"""The policies compared, as lanes of one replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from benchmarks.decisions.data import MINUTES_PER_DAY, Floats, Minutes, load_of
from floorcast.overlay import Lookahead, Overlay
from floorcast.pool import Pool
from scaling.capacity import Ints
from scaling.overlay.growth import growths
from scaling.overlay.settings import settings_of
from scaling.replay.baselines import last_value, managed, seasonal_naive
from scaling.replay.conditions import NO_KNEE, Conditions
from scaling.replay.lanes import Lanes, overlay_policy
from scaling.replay.replay import replay
from scaling.replay.result import ReplayResult
from scaling.replay.traffic import Traffic, from_minutes

STEP_S, MINUTE_S = 10.0, 60.0
RATE_MINUTES = 3
WINDOW_MINUTES = 10
"""Others' floors are planned on steps of so many minutes, as the recording's."""

LOOKAHEADS = {
    "broad": Lookahead(),
    "clock": Lookahead(same_minute=20, around=timedelta(hours=4)),
}
LEVELS = (0.7, 0.9, 0.95, 0.98)
DRAINS_S = (300.0, 600.0)


class Variant(NamedTuple):
    """What is tuned on the past. `lookahead` names one of LOOKAHEADS, or is empty for target tracking alone."""

    in_window_s: float
    drain_s: float = 300.0
    lookahead: str = ""
    level: float = 0.0


class Lane(NamedTuple):
    """One setting of a policy: the overlay's, and floors [minutes] under it."""

    policy: str
    variant: Variant
    utilization: float
    floors: Ints | None = None
    margin: float = 0.0

    @property
    def setting(self) -> str:
        look = f" {self.variant.lookahead} q{self.variant.level:g}" if self.variant.lookahead else ""
        margin = f" margin {self.margin:.2f}" if self.floors is not None else ""
        window, drain = self.variant.in_window_s, self.variant.drain_s
        return f"U {self.utilization:.3f} in {window:g}s drain {drain:g}s{look}{margin}"


@dataclass(frozen=True)
class Task:
    """One class at one pool. Arrays are [minutes] of the whole recording; `live` is what rates say then."""

    minutes: Minutes
    pool: Pool
    start: datetime
    max_wait_s: float
    load: Floats
    live: Floats

    @property
    def name(self) -> str:
        return self.minutes.name if self.max_wait_s < MINUTE_S else f"{self.minutes.name} within {self.max_wait_s:g}s"

    @property
    def startup_s(self) -> float:
        return self.pool.startup.p90.total_seconds()

    @property
    def conditions(self) -> Conditions:
        return Conditions(startup_s=np.array([self.startup_s]), knee=NO_KNEE, counted="arrived")

    def traffic(self, first: int, last: int) -> Traffic:
        """The minutes from `first` to before `last`."""
        one, some = self.minutes, slice(first, last)
        stream = from_minutes(
            one.tokens_in[some],
            one.tokens_out[some],
            one.requests[some],
            name=one.name,
            step_s=STEP_S,
            max_wait_s=self.max_wait_s,
        )
        return Traffic(self.start + timedelta(minutes=first), STEP_S, (stream,))


def task_of(minutes: Minutes, pool: Pool, *, start: datetime, max_wait_s: float) -> Task:
    load = load_of(minutes, pool)
    before = np.concatenate([[0.0], np.cumsum(load)])
    edges = np.arange(len(load))
    since = np.maximum(edges - RATE_MINUTES, 0)
    live = np.where(edges > 0, (before[edges] - before[since]) / np.maximum(edges - since, 1), np.nan)
    return Task(minutes, pool, start, max_wait_s, load, live)


def run(task: Task, lanes: Sequence[Lane], *, first: int, last: int) -> ReplayResult:
    """Every lane from minute `first` to before `last`."""
    none = np.ones(last - first, dtype=np.int64)
    grown = _grown(task, lanes, first=first, last=last)
    made = Lanes(
        tuple(f"{lane.policy} {lane.setting}" for lane in lanes),
        np.stack([none if lane.floors is None else lane.floors[first:last] for lane in lanes], axis=1),
        MINUTE_S,
        np.ones(len(lanes), dtype=np.bool_),
        growth=np.stack([grown[lane.variant.lookahead, lane.variant.level] for lane in lanes], axis=1),
    )
    settings = settings_of([_with_overlay(task.pool, lane.variant) for lane in lanes])
    settings = settings._replace(target_utilization=np.array([lane.utilization for lane in lanes]))
    hour = task.load[max(first - 60, 0) : first + 1]
    return replay(
        task.traffic(first, last),
        made,
        pool=task.pool,
        conditions=task.conditions,
        policy=overlay_policy(settings),
        initial=np.full(len(lanes), max(1, round(1.5 * float(hour.mean())))),
    )


def others_floors(task: Task, *, utilization: float, margin: float) -> dict[str, Ints]:
    """[minutes] floors of others, from what each ten minutes took at the utilization."""
    required = task.load.reshape(-1, WINDOW_MINUTES).mean(axis=1) / utilization
    window_s = WINDOW_MINUTES * MINUTE_S
    ahead = -(-round(task.startup_s) // round(window_s)) + 1
    season = MINUTES_PER_DAY // WINDOW_MINUTES
    floors = {
        "last_value": last_value(required, margin=margin),
        "seasonal_naive": seasonal_naive(required, season=season, ahead=ahead, margin=margin),
        "managed": managed(required, window_s=window_s, margin=margin),
    }
    return {name: np.maximum(np.repeat(one, WINDOW_MINUTES), 1) for name, one in floors.items()}


def _grown(task: Task, lanes: Sequence[Lane], *, first: int, last: int) -> dict[tuple[str, float], Floats]:
    found = {("", 0.0): np.ones(last - first)}
    for name in sorted({lane.variant.lookahead for lane in lanes} - {""}):
        levels = sorted({lane.variant.level for lane in lanes if lane.variant.lookahead == name})
        made = growths(
            task.load,
            at=np.arange(first, last),
            step_s=MINUTE_S,
            ahead_s=task.startup_s,
            lookahead=LOOKAHEADS[name],
            levels=levels,
            live=task.live,
        )
        for level, factors in zip(levels, made, strict=True):
            found[name, level] = np.where(np.isnan(factors), 1.0, factors)
    return found


def _with_overlay(pool: Pool, variant: Variant) -> Pool:
    """Target tracking or lookahead that acts at once: limits on its pace would only cost it service here."""
    overlay = Overlay.model_validate(
        {
            "policy": "lookahead" if variant.lookahead else "target_tracking",
            "rate_window": f"{RATE_MINUTES}m",
            "drain_backlog": f"{variant.drain_s:g}s",
            "scale_out": {"cooldown": "0s", "tolerance": 0, "per_minute": 1000},
            "scale_in": {
                "cooldown": "0s",
                "stabilization": f"{variant.in_window_s:g}s",
                "hysteresis": 0,
                "per_minute": 1000,
            },
            "min_uptime": "0s",
        }
    )
    return pool.model_copy(update={"overlay": overlay})
