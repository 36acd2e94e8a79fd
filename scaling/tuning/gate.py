"""Whether floors pay: with them and without, each at its own settings, on days that chose neither."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from floorcast.pool import Pool
from floorcast.tuning import Expected, Gate, Interval, TunedSettings
from scaling.capacity import Floats, Ints
from scaling.tuning.outcomes import Outcome
from scaling.tuning.search import on_time_share

PAYS = 0.02
"""Floors must be cheaper by this share at least, since a forecast is one more thing that can break; and so much dearer
they may be on other days than those seen."""

SURE = 0.9
"""The share of draws of the days in which they must not be dearer than that."""

LEAST_DAYS = 3
"""With fewer judged days the gate cannot tell."""

_DRAWS = 2_000
_LOW, _HIGH = 0.05, 0.95


class Verdict(NamedTuple):
    gate: Gate
    why: str


def draw_days(days: int, rng: np.random.Generator) -> Ints:
    """[draws, days] of whole days, with replacement: what other such weeks could have been (a block bootstrap, Künsch
    1989, with blocks of a day, as load within one hangs together)."""
    drawn: Ints = rng.integers(days, size=(_DRAWS, days))
    return drawn


def expect(settings: TunedSettings, outcome: Outcome, clairvoyant: Floats | None, drawn: Ints) -> Expected:
    """Figures of the judged days with intervals over the `drawn` ones. `clairvoyant` [days] are its GPU-hours."""
    hours = outcome.gpu_hours
    return Expected(
        settings=settings,
        gpu_hours_per_day=_interval(float(hours.mean()), hours[drawn].mean(axis=1)),
        on_time=_interval(on_time_share(outcome.on_time, outcome.settled), _shares(outcome, drawn)),
        over_clairvoyant=None
        if clairvoyant is None
        else _interval(
            float(hours.sum() / clairvoyant.sum()), hours[drawn].sum(axis=1) / clairvoyant[drawn].sum(axis=1)
        ),
    )


def verdict(floors: Outcome, overlay_alone: Outcome, drawn: Ints, *, promise: float) -> Verdict:
    """Open where floors are cheaper as `pays` asks for, or keep a promise that the overlay alone
    does not. Whoever misses the promise in nine of ten draws of the days does not keep it; where neither does, floors
    must be on time more, beyond noise."""
    if len(floors.gpu_hours) < LEAST_DAYS:
        return Verdict("untested", f"{len(floors.gpu_hours)} judged days are too few to tell")
    shares = {"floors": _shares(floors, drawn), "overlay": _shares(overlay_alone, drawn)}
    misses = {name: float(np.quantile(drawn_shares, _HIGH)) < promise for name, drawn_shares in shares.items()}
    said = f"{100 * promise:.4g}%"
    with_floors, without = (f"{on_time_share(one.on_time, one.settled):.2%}" for one in (floors, overlay_alone))
    if misses["floors"] and misses["overlay"]:
        more = float(np.quantile(shares["floors"] - shares["overlay"], _LOW)) > 0
        both = f"neither keeps {said} on time: floors {with_floors}, the overlay alone {without}"
        return Verdict("open" if more else "closed", both)
    if misses["overlay"]:
        return Verdict("open", f"the overlay alone does not keep {said} on time: {without}, with floors {with_floors}")
    if misses["floors"]:
        return Verdict("closed", f"with floors {with_floors} are on time, the overlay alone keeps {said}: {without}")
    ratio = float(floors.gpu_hours.sum() / overlay_alone.gpu_hours.sum())
    ratios = floors.gpu_hours[drawn].sum(axis=1) / overlay_alone.gpu_hours[drawn].sum(axis=1)
    low, high = np.quantile(ratios, [_LOW, _HIGH])
    cost = f"floors cost {ratio:.3f} times the overlay alone ({low:.3f} to {high:.3f})"
    if pays(ratio, ratios):
        return Verdict("open", cost)
    return Verdict("closed", f"{cost}; {1 - PAYS:.2f} would pay, and at most {1 + PAYS:.2f} in nine of ten draws")


def pays(ratio: float, draws: Floats) -> bool:
    """Whether floors that cost `ratio` times the overlay alone pay, with `draws` [draws] of that ratio over other days
    like those seen. A gain is asked for, and a loss beyond the same size kept unlikely: that floors are never dearer
    on any days would keep the gate closed where they save most."""
    return bool(ratio <= 1 - PAYS and high_of(draws) <= 1 + PAYS)


def high_of(draws: Floats) -> float:
    """[draws] of a ratio, some perhaps infinite: what it stays under in nine of ten."""
    return float(np.quantile(draws, SURE, method="higher"))


def not_told(pool: Pool) -> str:
    """Why a replay cannot tell whether a pool's floors pay; empty where it can."""
    margin = pool.margin
    insured = {
        "zones": margin.zones > 1,
        "rollout_unavailable": bool(margin.rollout_unavailable),
        "takes_over": bool(margin.takes_over),
    }
    found = [name for name, is_set in insured.items() if is_set]
    return f"margin.{found[0]} insures against what no replay shows" if found else ""


def _shares(outcome: Outcome, drawn: Ints) -> Floats:
    settled = outcome.settled[drawn].sum(axis=1)
    shares: Floats = np.where(settled > 0, outcome.on_time[drawn].sum(axis=1) / np.maximum(settled, 1e-12), 1.0)
    return shares


def _interval(value: float, draws: Floats) -> Interval:
    low, high = np.quantile(draws, [_LOW, _HIGH])
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))
