"""What days before the judged ones tell: the setting of each policy, and whether the forecast pays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.decisions.policies import DRAINS_S, LEVELS, MINUTE_S, RATE_MINUTES, Lane, Task, Variant, run
from scaling.capacity import Floats, Ints
from scaling.replay.front import reached
from scaling.tuning.gate import LEAST_DAYS, draw_days, high_of, pays
from scaling.tuning.outcomes import Outcome, outcome_of

ON_TIME = 0.99
IN_WINDOWS_S = (300.0, 600.0, 900.0)
_DRAWS = 500
_COARSE, _BETWEEN, _BESIDE = 9, 6, 2
_AT_ONCE = 160
"""Settings replayed together: more take memory, fewer take time."""


@dataclass(frozen=True)
class Tuned:
    """The variant of a policy that was cheapest at the promise, with its outcomes [settings] on those days by day."""

    variant: Variant
    utilizations: Floats
    outcomes: tuple[Outcome, ...]

    @property
    def utilization(self) -> float:
        """The highest that kept the promise, else the lowest tried."""
        kept = self.utilizations[_shares(self.outcomes) >= ON_TIME]
        return float(kept.max() if kept.size else self.utilizations.min())


class Gate(NamedTuple):
    """`ratio` is what following the forecast costs over the overlay alone on those days, `high` what it stays under in
    nine of ten draws of them; 0 where only the forecast keeps the promise, infinite where only the overlay does."""

    opened: bool
    ratio: float
    high: float


def tune(task: Task, *, utilizations: Mapping[bool, tuple[float, float]], first: int, last: int) -> dict[bool, Tuned]:
    """With the forecast and without, between their utilizations: each variant at a few of them, then at some around the
    promise. A front read off too few is off by more than what the gate is to tell apart."""
    coarse = {forecast: np.geomspace(*between, _COARSE) for forecast, between in utilizations.items()}
    variants = [(forecast, variant) for forecast in utilizations for variant in variants_of(task, forecast=forecast)]
    rough = _outcomes(task, [(variant, coarse[forecast]) for forecast, variant in variants], first=first, last=last)
    between = [_around(coarse[forecast], found) for (forecast, _), found in zip(variants, rough, strict=True)]
    pairs = [(variant, some) for (_, variant), some in zip(variants, between, strict=True)]
    fine = _outcomes(task, pairs, first=first, last=last)
    tuned = [
        (forecast, Tuned(variant, np.concatenate([coarse[forecast], some]), found + more))
        for (forecast, variant), some, found, more in zip(variants, between, rough, fine, strict=True)
    ]
    return {
        forecast: min((one for kind, one in tuned if kind == forecast), key=lambda one: _cost(one.outcomes))
        for forecast in utilizations
    }


def variants_of(task: Task, *, forecast: bool) -> list[Variant]:
    windows = IN_WINDOWS_S[:2] if forecast else IN_WINDOWS_S
    levels = LEVELS if forecast else (0.0,)
    slow = round(task.max_wait_s / MINUTE_S)
    drains, rates = (DRAINS_S, (RATE_MINUTES, slow)) if slow > RATE_MINUTES else (DRAINS_S[:1], (RATE_MINUTES,))
    return [
        Variant(window_s, drain_s, level, rate_minutes)
        for window_s in windows
        for drain_s in drains
        # Floors that are levelled over the wait leave nothing to a faster rate.
        for rate_minutes in (rates[-1:] if forecast else rates)
        for level in levels
    ]


def gate(forecast: Tuned, overlay: Tuned, rng: np.random.Generator) -> Gate:
    """Whether the forecast pays on days drawn from those that tuned both, with replacement; not where there are few."""
    days = len(forecast.outcomes[0].gpu_hours)
    drawn = np.array([_ratio(forecast, overlay, some) for some in draw_days(days, rng)[:_DRAWS]])
    ratio = _ratio(forecast, overlay, None)
    return Gate(days >= LEAST_DAYS and pays(ratio, drawn), ratio, high_of(drawn))


def _ratio(forecast: Tuned, overlay: Tuned, days: Ints | None) -> float:
    ahead, alone = _cost(forecast.outcomes, days), _cost(overlay.outcomes, days)
    if np.isinf(alone):
        return 1.0 if np.isinf(ahead) else 0.0
    return ahead / alone


def _cost(outcomes: tuple[Outcome, ...], days: Ints | None = None) -> float:
    """At the promise; infinite where no setting keeps it."""
    some = slice(None) if days is None else days
    hours = np.array([one.gpu_hours[some].sum() for one in outcomes])
    found = reached(hours, _shares(outcomes, days), ON_TIME)
    return np.inf if found is None else found


def _shares(outcomes: tuple[Outcome, ...], days: Ints | None = None) -> Floats:
    some = slice(None) if days is None else days
    shares: Floats = np.array([one.on_time[some].sum() / max(one.settled[some].sum(), 1e-12) for one in outcomes])
    return shares


def _outcomes(
    task: Task, settings: list[tuple[Variant, Floats]], *, first: int, last: int
) -> list[tuple[Outcome, ...]]:
    """Of each variant at each of its utilizations."""
    lanes = [Lane("tuned", variant, one) for variant, some in settings for one in some.tolist()]
    found: list[Outcome] = []
    for begin in range(0, len(lanes), _AT_ONCE):
        result = run(task, lanes[begin : begin + _AT_ONCE], first=first, last=last)
        found += [outcome_of(result, lane) for lane in range(len(result.names))]
    ends = np.cumsum([len(some) for _, some in settings]).tolist()
    return [tuple(found[end - len(some) : end]) for (_, some), end in zip(settings, ends, strict=True)]


def _around(utilizations: Floats, outcomes: tuple[Outcome, ...]) -> Floats:
    """Between the highest utilization tried that keeps the promise and the next, and beside those two, where it is kept
    on other draws of the days."""
    kept = np.flatnonzero(_shares(outcomes) >= ON_TIME)
    place = int(kept[-1]) if kept.size else 0
    found = [
        np.geomspace(utilizations[at], utilizations[at + 1], (_BETWEEN if at == place else _BESIDE) + 2)[1:-1]
        for at in (place - 1, place, place + 1)
        if 0 <= at < len(utilizations) - 1
    ]
    return np.concatenate(found)
