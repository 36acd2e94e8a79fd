"""What changed between two publications, and why: each floor's change shared out among its causes.

From the reason before to the reason after, the causes are put in one after another, and what each moves the number by
is its effect, so that the effects add up to the change. The order: a longer lead; class by class its placement, its
cached share, its deadline or else its demand, and the quantile; share and peak; what is taken over from other pools; a
shorter lead; capacity; margins; then every rule that moves a floor.

Where the quantile is another, demand is what moves a class's median, its spread above that kept in proportion, and the
rest is the quantile. What a longer lead would have asked for is what the same publication asks for in the windows that
it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import numpy as np

from floorcast.pool import PoolSettings
from floorcast.types import RULES, ClassDemand, FloorSchedule, FloorWindow, PoolSchedule, Reason, Rung
from scaling.buffers import Buffer, apply_buffers
from scaling.capacity import required_replicas
from scaling.demand import METRICS, pool_demand
from scaling.pool_demand import total_demand

_CAUSES = {
    "gate": "gate",
    "scheduled_minimum": "calendar",
    "ceiling": "calendar",
    "min_replicas": "bounds",
    "max_replicas": "bounds",
    "quota": "quota",
}
"""What a rule belongs to; `shape` where not given."""

_TUNED = ("quantile", "capacity", "margins", "share and peak", "shape (dwell)", "shape (step down)")
"""Beginnings of the causes that tuned settings may be."""

_Settings = tuple[PoolSettings | None, PoolSettings | None]

_NOTHING = ClassDemand(tokens_in_per_s=0, tokens_out_per_s=0, model_in="", model_out="")


@dataclass(frozen=True)
class Change:
    """A floor that changed over a span of time. `effects` are replicas by cause, in the order of the causes."""

    pool: str
    start: datetime
    end: datetime
    before: int
    after: int
    effects: tuple[tuple[str, int], ...]

    @property
    def replica_hours(self) -> float:
        return (self.after - self.before) * (self.end - self.start).total_seconds() / 3600


@dataclass(frozen=True)
class PoolDiff:
    """One pool over the time that both publications cover. `changes` are in order; a pool that only one of the two has
    is `added` or `removed` and has none."""

    pool: str
    changes: tuple[Change, ...]
    status: str = "kept"

    @property
    def replica_hours(self) -> float:
        return sum(change.replica_hours for change in self.changes)

    @property
    def causes(self) -> dict[str, float]:
        """Replica-hours by cause, what moved most first."""
        total: dict[str, float] = {}
        for change in self.changes:
            hours = (change.end - change.start).total_seconds() / 3600
            for cause, replicas in change.effects:
                total[cause] = total.get(cause, 0.0) + replicas * hours
        return dict(sorted(total.items(), key=lambda item: (-abs(item[1]), item[0])))


def diff(before: FloorSchedule, after: FloorSchedule) -> list[PoolDiff]:
    """Every pool of either publication, in name order, over the time that both cover.

    Of a publication that does not carry its settings, a replica counts as the tokens per second of the binding term
    that the reason divides by.
    """
    found = []
    for name in sorted(before.pools.keys() | after.pools.keys()):
        if name not in before.pools or name not in after.pools:
            found.append(PoolDiff(name, (), status="added" if name in after.pools else "removed"))
        else:
            found.append(PoolDiff(name, tuple(_merged(_changes(name, before.pools[name], after.pools[name])))))
    return found


def _changes(name: str, before: PoolSchedule, after: PoolSchedule) -> Iterator[Change]:
    for old, new in _overlaps(before.windows, after.windows):
        if old.min_replicas != new.min_replicas:
            rung = None if before.rung == after.rung else after.rung
            yield Change(
                pool=name,
                start=max(old.start, new.start),
                end=min(old.end, new.end),
                before=old.min_replicas,
                after=new.min_replicas,
                effects=attribute(
                    old.reason,
                    new.reason,
                    longer=_at_longer_lead(before.windows, old, after.windows, new),
                    settings=(before.settings, after.settings),
                    rung=rung,
                    tuned=tuned_when(before) != tuned_when(after),
                ),
            )


def _at_longer_lead(
    before: tuple[FloorWindow, ...], old: FloorWindow, after: tuple[FloorWindow, ...], new: FloorWindow
) -> Reason | None:
    """What the publication with the shorter lead would have asked for at the longer one; None where they are equal, or
    it does not say."""
    shorter, longer = sorted((old.reason.lead_s, new.reason.lead_s))
    windows, one = (before, old) if shorter == old.reason.lead_s else (after, new)
    step_s = math.gcd(*(int((window.end - window.start).total_seconds()) for window in windows))
    further = timedelta(seconds=step_s * (math.ceil(longer / step_s) - math.ceil(shorter / step_s)))
    reached = [
        window.reason
        for window in windows
        if window.end > one.start and window.start < one.end + further and window.reason.binding != Rung.FALLBACK.value
    ]
    return max(reached, key=lambda reason: reason.required_replicas) if further and reached else None


def tuned_when(pool: PoolSchedule) -> datetime | None:
    """When the settings that a pool's floors were planned with were tuned; None where they are as configured."""
    return pool.proof.as_of if pool.proof is not None and pool.proof.applied else None


def _overlaps(
    before: tuple[FloorWindow, ...], after: tuple[FloorWindow, ...]
) -> Iterator[tuple[FloorWindow, FloorWindow]]:
    """The pairs of windows that overlap, both being contiguous and in order."""
    old, new = 0, 0
    while old < len(before) and new < len(after):
        if max(before[old].start, after[new].start) < min(before[old].end, after[new].end):
            yield before[old], after[new]
        if before[old].end <= after[new].end:
            old += 1
        else:
            new += 1


def _merged(changes: Iterator[Change]) -> Iterator[Change]:
    """Neighbours that say the same, as one."""
    last: Change | None = None
    for change in changes:
        same = last and (last.end, last.before, last.after, last.effects) == (
            change.start,
            change.before,
            change.after,
            change.effects,
        )
        if last and same:
            last = Change(last.pool, last.start, change.end, last.before, last.after, last.effects)
            continue
        if last:
            yield last
        last = change
    if last:
        yield last


def attribute(
    before: Reason,
    after: Reason,
    *,
    longer: Reason | None = None,
    settings: _Settings = (None, None),
    rung: Rung | None = None,
    tuned: bool = False,
) -> tuple[tuple[str, int], ...]:
    """The effects, in replicas by cause, that lead from one floor to the other; a cause without an effect is left out.

    `longer` is the reason at the longer of two leads, of the publication with the shorter one; without it what another
    lead moved counts as demand. `settings` are the pool's before and after, None where not known. `rung` is that of the
    pool's floors after, where it is another than before: then it is what moved the demand. `tuned` says that the
    settings were tuned in between, which is said of the causes that they are.
    """
    effects: dict[str, int] = {}
    for cause, number in _steps(before, after, longer, settings, rung):
        named = f"{cause} (tuned)" if tuned and cause.startswith(_TUNED) else cause
        effects[named] = effects.get(named, 0) + number
    return tuple((cause, number) for cause, number in effects.items() if number)


def _steps(
    before: Reason, after: Reason, longer: Reason | None, settings: _Settings, rung: Rung | None
) -> Iterator[tuple[str, int]]:
    """Cause and effect in order; a cause may come several times."""
    if "fallback_replicas" in (before.binding, after.binding):
        yield f"rung {Rung.FALLBACK.value}", _buffered(after) - _buffered(before)
    else:
        yield from _demand_steps(before, after, longer, settings, rung)
    moved = [{move.rule: move.after - move.before for move in one.adjustments} for one in (before, after)]
    for rule in RULES:
        effect = moved[1].get(rule, 0) - moved[0].get(rule, 0)
        yield _CAUSES.get(rule, f"shape ({rule.replace('_', ' ')})"), effect


def _demand_steps(
    before: Reason, after: Reason, longer: Reason | None, settings: _Settings, rung: Rung | None
) -> Iterator[tuple[str, int]]:
    lengthened = longer is not None and after.lead_s > before.lead_s
    first, last = (longer or before, after) if lengthened else (before, longer or after)
    classes, taken, together = dict(before.classes), before, before
    replicas, buffers = _formula(before, after, settings[0]), _named(before)
    number = _buffered(before)

    def moved() -> int:
        nonlocal number
        was, number = number, int(apply_buffers(replicas(_rates(classes, together, taken)), buffers)[-1])
        return number - was

    if first is not before:
        classes, taken, together = dict(first.classes), first, first
        yield "lead", moved()
    levels = before.quantile, after.quantile
    for name in sorted(first.classes.keys() | last.classes.keys()):
        for cause, figures in _class_steps(name, first.classes.get(name), last.classes.get(name), levels, rung):
            classes[name] = figures
            yield cause, moved()
    together = last
    yield "share and peak", moved()
    taken = last
    yield "taken over", moved()
    if last is not after:
        classes, taken, together = dict(after.classes), after, after
        yield "lead", moved()
    replicas = _formula(after, before, settings[1])
    yield "capacity", moved()
    yield "margins", _buffered(after) - number


def _class_steps(
    name: str, was: ClassDemand | None, now: ClassDemand | None, levels: tuple[float, float], rung: Rung | None
) -> Iterator[tuple[str, ClassDemand]]:
    """Cause and the class's figures with it put in, in order."""
    rest = f"demand {name}" if rung is None else f"rung {rung.value}"
    if was is None or now is None:
        yield rest, now or _NOTHING
        return
    figures = was
    if was.share != now.share:
        if was.share == 0:
            # Of a class that was not here nothing is known but what there is now.
            figures = now
        figures = _times(figures, now.share / was.share if was.share else 1.0)
        yield f"placement {name}", figures
    if was.cached_share != now.cached_share:
        factor = (1 - now.cached_share) / (1 - was.cached_share) if was.share else 1.0
        figures = _times(figures, factor, sides=("in",))
        yield f"cached share {name}", figures
    waits = [one.deadline and one.deadline.wait_s for one in (was, now)]
    rest = f"deadline {name}" if waits[0] != waits[1] else rest
    if levels[0] == levels[1]:
        yield rest, now
    else:
        yield rest, _with_medians(figures, now)
        yield f"quantile {levels[0]:g} -> {levels[1]:g}", now


def _with_medians(one: ClassDemand, other: ClassDemand) -> ClassDemand:
    """With the medians of `other`, and the spreads of `one` in proportion to them; as they are above a median of 0."""
    found = {}
    for side in ("in", "out"):
        quantile, median = f"tokens_{side}_per_s", f"median_{side}_per_s"
        was, now = getattr(one, median), getattr(other, median)
        found[median] = now
        found[quantile] = getattr(one, quantile) * now / was if was else now + getattr(one, quantile)
    return one.model_copy(update=found)


def _times(one: ClassDemand, factor: float, *, sides: tuple[str, ...] = ("in", "out")) -> ClassDemand:
    names = [f"{figure}_{side}_per_s" for figure in ("tokens", "median") for side in sides]
    return one.model_copy(update={name: factor * getattr(one, name) for name in names})


def _formula(one: Reason, other: Reason, settings: PoolSettings | None) -> Callable[[dict[str, float]], float]:
    """What `one` makes of rates by binding term: replicas required. Where its settings are not known, a replica is what
    the reason divides by; for a term that bound only `other`, what that one does, unless it would have bound here too.
    """
    if settings is not None:
        return partial(_required, settings=settings)
    each, rates = {}, _rates(one.classes, one, one)
    for reason in (other, one):
        if reason.required_replicas > 0:
            replica = reason.demand_tokens_per_s / reason.required_replicas
            if reason is one or rates[reason.binding] / replica <= one.required_replicas + 1e-3:
                each[reason.binding] = replica
    return lambda rates: max((rates[term] / replica for term, replica in each.items()), default=0.0)


def _required(rates: dict[str, float], *, settings: PoolSettings) -> float:
    tokens_in, tokens_out = (rates[metric.value] for metric in METRICS)
    required, _ = required_replicas(
        tokens_in_per_s=tokens_in, tokens_out_per_s=tokens_out, capacity=settings.capacity, role=settings.role
    )
    return float(required)


def _rates(classes: Mapping[str, ClassDemand], together: Reason, taken: Reason) -> dict[str, float]:
    """The pool's tokens per second, by binding term: of its classes with the share and peak of `together`, and of what
    `taken` takes over from other pools."""
    figures = classes.values()
    quantile = np.array([[one.tokens_in_per_s, one.tokens_out_per_s] for one in figures]).reshape(-1, 2, 1)
    median = np.array([[one.median_in_per_s, one.median_out_per_s] for one in figures]).reshape(-1, 2, 1)
    share = np.array([[together.share_in], [together.share_out]])
    peak = np.array([[together.peak_in], [together.peak_out]])
    others = {
        name: (other.share, np.array([[other.tokens_in_per_s], [other.tokens_out_per_s]]))
        for name, other in taken.takes_over.items()
    }
    demand = total_demand(pool_demand(quantile, median, share, peak), others)[:, 0]
    return {
        **{metric.value: float(rate) for metric, rate in zip(METRICS, demand, strict=True)},
        "sum": float(demand.sum()),
    }


def _named(reason: Reason) -> tuple[Buffer, ...]:
    kinds = {kind.name: kind for kind in Buffer.__subclasses__()}
    return tuple(kinds[buffer.name](buffer.value) for buffer in reason.buffers)


def _buffered(reason: Reason) -> int:
    """Replicas after all buffers, as published."""
    return int(reason.buffers[-1].replicas if reason.buffers else reason.required_replicas)
