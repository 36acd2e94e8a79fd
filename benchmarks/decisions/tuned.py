"""What days before the judged ones tell: the setting of each policy, and whether floors pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.decisions.policies import DRAINS_S, LEVELS, MINUTE_S, RATE_MINUTES, Lane, Task, Variant, run
from scaling.capacity import Floats, Ints
from scaling.replay.front import reached
from scaling.tuning.gate import draw_days
from scaling.tuning.outcomes import Outcome, outcome_of

ON_TIME = 0.99
PAYS = 0.98
"""The gate opens where floors cost at most this share of the overlay alone, and less than it in nine of ten draws."""
IN_WINDOWS_S = (300.0, 600.0, 900.0)
_DRAWS, _SURE = 500, 0.9
_COARSE, _BETWEEN = 9, 6


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
    """`ratio` is what floors cost over the overlay alone on those days, `high` what it stays under in nine of ten draws
    of them; 0 where only floors keep the promise, infinite where only the overlay does."""

    opened: bool
    ratio: float
    high: float


def tune(task: Task, *, floors: bool, utilizations: tuple[float, float], first: int, last: int) -> Tuned:
    """Each variant at a few utilizations, then at some between the two around the promise."""
    coarse = np.geomspace(*utilizations, _COARSE)
    variants = variants_of(task, floors=floors)
    rough = _outcomes(task, [(variant, one) for variant in variants for one in coarse.tolist()], first=first, last=last)
    settings = [(variant, coarse, tuple(rough[place * _COARSE :][:_COARSE])) for place, variant in enumerate(variants)]
    between = [_around(coarse, found) for _, _, found in settings]
    pairs = [(variant, one) for variant, some in zip(variants, between, strict=True) for one in some.tolist()]
    fine = _outcomes(task, pairs, first=first, last=last)
    tuned = [
        Tuned(variant, np.concatenate([coarse, between[place]]), found + tuple(fine[place * _BETWEEN :][:_BETWEEN]))
        for place, (variant, _, found) in enumerate(settings)
    ]
    return min(tuned, key=lambda one: _cost(one.outcomes))


def variants_of(task: Task, *, floors: bool) -> list[Variant]:
    windows = IN_WINDOWS_S[:2] if floors else IN_WINDOWS_S
    levels = LEVELS if floors else (0.0,)
    slow = round(task.max_wait_s / MINUTE_S)
    drains, rates = (DRAINS_S, (RATE_MINUTES, slow)) if slow > RATE_MINUTES else (DRAINS_S[:1], (RATE_MINUTES,))
    return [
        Variant(window_s, drain_s, level, rate_minutes)
        for window_s in windows
        for drain_s in drains
        # Floors that are levelled over the wait leave nothing to a faster rate.
        for rate_minutes in (rates[-1:] if floors else rates)
        for level in levels
    ]


def gate(floors: Tuned, overlay: Tuned, rng: np.random.Generator) -> Gate:
    """Whether floors pay on days drawn from those that tuned both, with replacement."""
    days = len(floors.outcomes[0].gpu_hours)
    drawn = [_ratio(floors, overlay, some) for some in draw_days(days, rng)[:_DRAWS]]
    ratio, high = _ratio(floors, overlay, None), float(np.quantile(drawn, _SURE, method="higher"))
    return Gate(ratio <= PAYS and high < 1, ratio, high)


def _ratio(floors: Tuned, overlay: Tuned, days: Ints | None) -> float:
    with_floors, alone = _cost(floors.outcomes, days), _cost(overlay.outcomes, days)
    if np.isinf(alone):
        return 1.0 if np.isinf(with_floors) else 0.0
    return with_floors / alone


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


def _outcomes(task: Task, settings: list[tuple[Variant, float]], *, first: int, last: int) -> list[Outcome]:
    result = run(task, [Lane("tuned", *setting) for setting in settings], first=first, last=last)
    return [outcome_of(result, lane) for lane in range(len(settings))]


def _around(utilizations: Floats, outcomes: tuple[Outcome, ...]) -> Floats:
    """Between the highest utilization tried that keeps the promise and the next."""
    kept = np.flatnonzero(_shares(outcomes) >= ON_TIME)
    place = int(kept[-1]) if kept.size else 0
    following = min(place + 1, len(utilizations) - 1)
    between: Floats = np.geomspace(utilizations[place], utilizations[following], _BETWEEN + 2)[1:-1]
    return between
