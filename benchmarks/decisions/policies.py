"""The policies compared, as lanes of one replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np

from benchmarks.decisions.data import MINUTES_PER_DAY, Floats, Minutes, load_of
from floorcast.overlay import Lookahead, Overlay
from floorcast.pool import Pool
from scaling.capacity import Ints
from scaling.overlay.growth import loads_ahead, trailing_mean
from scaling.overlay.settings import settings_of
from scaling.replay.baselines import last_value, managed, seasonal_naive
from scaling.replay.conditions import NO_KNEE, Conditions
from scaling.replay.lanes import Lanes, overlay_policy
from scaling.replay.replay import replay
from scaling.replay.result import ReplayResult
from scaling.replay.traffic import Stream, Traffic, from_minutes

STEP_S, MINUTE_S = 10.0, 60.0
TICKS = 2
"""Decisions a minute."""
RATE_MINUTES = 3
WINDOW_MINUTES = 10
"""Others' floors are planned on steps of so many minutes, as the recording's."""

LEVELS = (0.9, 0.95, 0.98)
DRAINS_S = (300.0, 600.0)
UNDER_FLOORS = 1.0
"""The overlay's utilization under floors by deadline: it adds what they missed, and no margin of its own."""


class Variant(NamedTuple):
    """What is tuned on the past. `level` is the quantile of the forecast that is followed, 0 for none."""

    in_window_s: float
    drain_s: float = 300.0
    level: float = 0.0
    rate_minutes: int = RATE_MINUTES


class Lane(NamedTuple):
    """One setting of a policy: by a forecast of so high a level at the utilization, or above given floors [minutes]."""

    policy: str
    variant: Variant
    utilization: float
    floors: Ints | None = None
    margin: float = 0.0

    @property
    def setting(self) -> str:
        look = f" q{self.variant.level:g}" if self.variant.level else ""
        margin = f" margin {self.margin:.2f}" if self.floors is not None else ""
        window, drain = self.variant.in_window_s, self.variant.drain_s
        rate = f" rate {self.variant.rate_minutes}m" if self.variant.rate_minutes != RATE_MINUTES else ""
        return f"U {self.utilization:.3f} in {window:g}s drain {drain:g}s{rate}{look}{margin}"


@dataclass(frozen=True)
class Task:
    """One class at one pool. `load` [minutes] is of the whole recording, in replicas at full use."""

    minutes: Minutes
    pool: Pool
    start: datetime
    max_wait_s: float
    load: Floats

    @property
    def name(self) -> str:
        return f"{self.minutes.name} within {self.max_wait_s:g}s" if self.waits else self.minutes.name

    @property
    def startup_s(self) -> float:
        return self.pool.startup.p90.total_seconds()

    @property
    def conditions(self) -> Conditions:
        return Conditions(startup_s=np.array([self.startup_s]), knee=NO_KNEE, counted="arrived")

    @property
    def waits(self) -> bool:
        """Whether its work may wait for minutes."""
        return self.max_wait_s >= MINUTE_S

    @cached_property
    def expected(self) -> dict[float, Floats]:
        """By LEVELS, [minutes, ticks of a minute] the load that `lookahead` expects at the end of a startup, as even as
        work can be done that may wait for minutes; NaN where the past tells nothing. At each tick it looks at the live
        rate over RATE_MINUTES and at the last minute's, which are as old as metrics."""
        age_minutes = float(np.mean(self.conditions.metric_age_s)) / MINUTE_S
        rates = [live_rate(self.load, minutes) for minutes in (RATE_MINUTES, 1)]
        made = [
            loads_ahead(
                self.load,
                at=np.arange(len(self.load)),
                step_s=MINUTE_S,
                ahead_s=self.startup_s,
                lookahead=Lookahead(),
                levels=LEVELS,
                live=[late(rate, age_minutes - tick / TICKS) for rate in rates],
            )
            for tick in range(TICKS)
        ]
        # A minute short of the wait, for what minutes do not tell.
        levelled = [_levelled(one, int(self.max_wait_s // MINUTE_S) - 1) for one in made]
        return dict(zip(LEVELS, np.stack(levelled, axis=-1), strict=True))

    def traffic(self, first: int, last: int) -> Traffic:
        """The minutes from `first` to before `last`, by the second where the recording tells them."""
        one, some = self.minutes, slice(first, last)
        start = self.start + timedelta(minutes=first)
        if one.by_second is not None:
            requests, tokens_in, tokens_out = one.by_second[:, 60 * first : 60 * last]
            return Traffic(start, 1.0, (Stream(one.name, tokens_in, tokens_out, requests, self.max_wait_s),))
        stream = from_minutes(
            one.tokens_in[some],
            one.tokens_out[some],
            one.requests[some],
            name=one.name,
            step_s=STEP_S,
            max_wait_s=self.max_wait_s,
        )
        return Traffic(start, STEP_S, (stream,))


def task_of(minutes: Minutes, pool: Pool, *, start: datetime, max_wait_s: float) -> Task:
    return Task(minutes, pool, start, max_wait_s, load_of(minutes, pool))


def live_rate(load: Floats, minutes: int) -> Floats:
    """[minutes] the mean of so many minutes before the beginning of each; NaN before the first."""
    return trailing_mean(load, minutes)[:-1]


def late(rate: Floats, minutes: float) -> Floats:
    """[minutes] the rate so many minutes before each, between the minutes."""
    every = np.arange(len(rate))
    seen: Floats = np.interp(every - minutes, every, rate, left=np.nan)
    return seen


def run(task: Task, lanes: Sequence[Lane], *, first: int, last: int) -> ReplayResult:
    """Every lane from minute `first` to before `last`."""
    made = Lanes(
        tuple(f"{lane.policy} {lane.setting}" for lane in lanes),
        np.repeat(np.stack([_floors(lane, task, first=first, last=last) for lane in lanes], axis=1), TICKS, axis=0),
        MINUTE_S / TICKS,
        np.ones(len(lanes), dtype=np.bool_),
        ahead=_expected(lanes, task, first=first, last=last),
    )
    settings = settings_of([_with_overlay(task, lane.variant) for lane in lanes])
    aims = [UNDER_FLOORS if task.waits and lane.variant.level else lane.utilization for lane in lanes]
    hour = task.load[max(first - 60, 0) : first + 1]
    return replay(
        task.traffic(first, last),
        made,
        pool=task.pool,
        conditions=task.conditions,
        policy=overlay_policy(settings._replace(target_utilization=np.array(aims))),
        initial=np.full(len(lanes), max(1, round(1.5 * float(hour.mean())))),
    )


def _floors(lane: Lane, task: Task, *, first: int, last: int) -> Ints:
    """[minutes] from `first` on: those given, or by deadline where work may wait, which come down as late as the
    overlay does."""
    if lane.floors is not None:
        return lane.floors[first:last]
    if not (task.waits and lane.variant.level):
        return np.ones(last - first, dtype=np.int64)
    held = round(lane.variant.in_window_s / MINUTE_S)
    due = np.nan_to_num(task.expected[lane.variant.level][:, 0])
    wanted = np.pad(due, (held - 1, 0))[first : last + held - 1]
    highest = np.lib.stride_tricks.sliding_window_view(wanted, held).max(axis=-1)
    floors: Ints = np.maximum(np.ceil(highest / lane.utilization - 1e-9), 1).astype(np.int64)
    return floors


def _expected(lanes: Sequence[Lane], task: Task, *, first: int, last: int) -> Floats:
    """[ticks, lanes]"""
    unknown = np.full((len(task.load), TICKS), np.nan)
    levels = [0.0 if task.waits else lane.variant.level for lane in lanes]
    each = [(task.expected[level] if level else unknown)[first:last].ravel() for level in levels]
    return np.stack(each, axis=1)


def _levelled(expected: Floats, minutes: int) -> Floats:
    """[levels, minutes] the mean of so many minutes up to each: as even as work can be done that may wait so long."""
    if minutes <= 1:
        return expected
    before = np.concatenate([np.repeat(expected[:, :1], minutes - 1, axis=1), expected], axis=1)
    mean: Floats = np.lib.stride_tricks.sliding_window_view(before, minutes, axis=1).mean(axis=-1)
    return mean


def others_floors(task: Task, *, utilization: float, margin: float) -> dict[str, Ints]:
    """[minutes] floors of others, from what each ten minutes took at the utilization."""
    whole = np.pad(task.load, (0, -len(task.load) % WINDOW_MINUTES), mode="edge")
    required = whole.reshape(-1, WINDOW_MINUTES).mean(axis=1) / utilization
    window_s = WINDOW_MINUTES * MINUTE_S
    ahead = -(-round(task.startup_s) // round(window_s)) + 1
    season = MINUTES_PER_DAY // WINDOW_MINUTES
    floors = {
        "last_value": last_value(required, margin=margin),
        "seasonal_naive": seasonal_naive(required, season=season, ahead=ahead, margin=margin),
        "managed": managed(required, window_s=window_s, margin=margin),
    }
    return {name: np.maximum(np.repeat(one, WINDOW_MINUTES), 1) for name, one in floors.items()}


def _with_overlay(task: Task, variant: Variant) -> Pool:
    """An overlay that acts at once: limits on its pace would only cost it service here."""
    overlay = Overlay.model_validate(
        {
            "policy": "lookahead" if variant.level and not task.waits else "target_tracking",
            "rate_window": f"{variant.rate_minutes}m",
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
    return task.pool.model_copy(update={"overlay": overlay})
