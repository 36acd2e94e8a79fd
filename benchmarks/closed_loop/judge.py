"""What a run is held to, and what its table says. Pure: from what was seen to rows and failures."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from benchmarks.closed_loop.paths import Path, Sample, Seen, Span
from benchmarks.closed_loop.scenario import STEP_S, TICK
from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import floor_due

AFTER_MIN = 15.0
"""Simulated minutes after a fault that count as its own, unless the next one begins before."""
MINUTE_S = 60.0
ByMinute = Mapping[str, Mapping[str, Sequence[float]]]
TICKS_BEHIND = 3.0
"""Ticks by which a reading may be behind what was published: one until the service reads it, one until it is read, and
one for a busy machine."""


@dataclass(frozen=True)
class Row:
    """What one fault did. Replicas are of the pool for which the figure is worst."""

    name: str
    what: str
    begin_min: float
    end_min: float
    said: str
    over_published: int | None
    """The smallest of floor in force less floor published, over pools and readings; None without readings."""
    over_floor: int | None
    """The same of decision less floor in force."""
    unanswered_s: float
    """Real seconds without an answer."""
    tokens_late: float
    """Of the tokens that came from its beginning to AFTER_MIN after it."""
    share_late: float
    """The same as a share, of the pool with most."""
    share_late_calm: float | None
    """That of the same time in a run without faults, where there was one."""
    rise: int
    """The most that a decision rose by within the real minute after it, beyond what its floor asked for."""
    fall: int
    rise_allowed: int
    fall_allowed: int
    failures: tuple[str, ...]


class Published:
    """The floors that good publications gave, by real time."""

    def __init__(self, publications: Sequence[tuple[float, FloorSchedule]]) -> None:
        self._written = [at for at, _ in publications]
        self._schedules = [schedule for _, schedule in publications]

    def due(self, pool: str, at: float, *, by: float | None = None) -> int | None:
        """At `at`, by the newest one written until `by`, or until then; None where it says nothing of it."""
        place = bisect.bisect_right(self._written, at if by is None else by) - 1
        if place < 0:
            return None
        try:
            return floor_due(self._schedules[place], pool, datetime.fromtimestamp(at, UTC)).min_replicas
        except NotFoundError:
            return None

    def least(self, pool: str, at: float, *, within_s: float) -> int | None:
        """The least that was due within the time before `at`, by what was written within it: readings lag."""
        moments = [at - within_s, at - within_s / 2, at]
        found = [self.due(pool, moment, by=by) for moment in moments for by in moments if by >= moment]
        known = [due for due in found if due is not None]
        return min(known, default=None)


def judge(seen: Seen, calm: ByMinute | None = None) -> list[Row]:
    """A row for each fault, and a last one for the whole run. `calm` is of a run without faults."""
    published = Published(seen.publications)
    whole = Span("whole_run", "from beginning to end", seen.epoch, seen.epoch + seen.minutes * 60 / seen.speed)
    begins = [*(one.began for one in seen.spans), whole.ended][1:]
    after = [min(one.ended + AFTER_MIN * 60 / seen.speed, begin) for one, begin in zip(seen.spans, begins, strict=True)]
    return [
        _row(span, until, seen, published, calm)
        for span, until in zip((*seen.spans, whole), (*after, whole.ended), strict=True)
    ]


def _row(span: Span, until: float, seen: Seen, published: Published, calm: ByMinute | None) -> Row:
    samples = [one for one in seen.samples if span.began <= one.at < until]
    answered = [one for one in samples if one.fault is None]
    lag_s = TICKS_BEHIND * TICK.total_seconds() / seen.speed
    over_published, over_floor = [], []
    for one in answered:
        for pool, decision in one.decisions.items():
            due = published.least(pool, one.until, within_s=lag_s + one.until - one.at)
            if due is not None:
                over_published.append(min(decision["floor"], one.floors[pool]) - due)
            over_floor.append(decision["desired"] - decision["floor"])
    low, high = round(seen.minute(span.began)), round(seen.minute(until))
    tokens_late, share_late = late_between(by_minute(seen), low, high)
    moves = [_moves(name, path, span, seen) for name, path in seen.paths.items()]
    rise, rise_allowed = max((move[:2] for move in moves), key=lambda pair: pair[0] - pair[1])
    fall, fall_allowed = max((move[2:] for move in moves), key=lambda pair: pair[0] - pair[1])
    said = words(one for one in seen.samples if span.began <= one.at < span.ended + 2 * lag_s)
    row = Row(
        name=span.name,
        what=span.what,
        begin_min=round(seen.minute(span.began), 1),
        end_min=round(seen.minute(span.ended), 1),
        said=said if span.name != "whole_run" else "",
        over_published=min(over_published, default=None),
        over_floor=min(over_floor, default=None),
        unanswered_s=round(_unanswered(samples), 1),
        tokens_late=tokens_late,
        share_late=share_late,
        share_late_calm=None if calm is None else late_between(calm, low, high)[1],
        rise=rise,
        fall=fall,
        rise_allowed=rise_allowed,
        fall_allowed=fall_allowed,
        failures=(),
    )
    return _judged(row, span, seen, answered)


def _judged(row: Row, span: Span, seen: Seen, answered: Sequence[Sample]) -> Row:
    failures = []
    if not answered:
        failures.append("the service never answered")
    if row.over_published is not None and row.over_published < 0:
        failures.append(f"a floor was {-row.over_published} under what was published")
    if row.over_floor is not None and row.over_floor < 0:
        failures.append(f"a decision was {-row.over_floor} under its floor")
    if row.rise > row.rise_allowed:
        failures.append(f"a decision rose by {row.rise} within a minute, {row.rise_allowed} are allowed")
    if row.fall > row.fall_allowed:
        failures.append(f"a decision fell by {row.fall} within a minute, {row.fall_allowed} are allowed")
    failures += [f"the service did not say `{word}`" for word in span.expects if word not in row.said]
    if row.name == "whole_run" and seen.exit_code != 0:
        failures.append(f"the service ended with {seen.exit_code} when told to")
    return Row(**{**vars(row), "failures": tuple(failures)})


def words(samples: Iterator[Sample]) -> str:
    """All that the service said was wrong, each once, in the order in which it came; times of day are left out."""
    said: dict[str, None] = {}
    for one in samples:
        if one.fault is not None:
            said["no answer"] = None
            continue
        if one.validity != "valid":
            said[f"publication {one.validity}"] = None
        said |= dict.fromkeys(map(_short, one.told))
        sources = {decision["floor_source"] for decision in one.decisions.values()} - {"schedule"}
        said |= dict.fromkeys(f"floors {source}" for source in sorted(sources))
        if any(decision["lost"] for decision in one.decisions.values()):
            said["signals lost"] = None
        if any(decision["alert"] for decision in one.decisions.values()):
            said["alert: no signal"] = None
    return "; ".join(said)


def _short(told: str) -> str:
    """Without paths, numbers and what differs from one reading to the next."""
    if told.startswith("source "):
        source, _, fault = told.partition(": ")
        return f"{source}: {re.split(r'[(,;]', fault.rpartition(': ')[2])[0].strip()}"
    return re.sub(r"/\S+/", "", re.sub(r" for \d+ s\b", "", told))


def _unanswered(samples: Sequence[Sample]) -> float:
    """Real seconds from the first reading that failed to the next that did not."""
    total = 0.0
    for one, following in pairwise(samples):
        total += following.at - one.at if one.fault is not None else 0.0
    return total


def by_minute(seen: Seen) -> ByMinute:
    """Tokens that came, and those of them that were late, of each pool in each simulated minute."""
    steps = round(MINUTE_S / STEP_S)
    return {
        name: {
            "tokens": path.tokens.reshape(-1, steps).sum(axis=1).round().tolist(),
            "late": path.late.reshape(-1, steps).sum(axis=1).round().tolist(),
        }
        for name, path in seen.paths.items()
    }


def late_between(minutes: ByMinute, low: int, high: int) -> tuple[float, float]:
    """Tokens late of those that came from one minute to before another, and their share in the pool with most."""
    total, worst = 0.0, 0.0
    for pool in minutes.values():
        late, tokens = sum(pool["late"][low:high]), sum(pool["tokens"][low:high])
        total, worst = total + late, max(worst, late / tokens if tokens else 0.0)
    return total, worst


def _moves(pool: str, path: Path, span: Span, seen: Seen) -> tuple[int, int, int, int]:
    """Rise and what is allowed, fall and what is allowed, of the worst minute that ends within a minute of the end.

    A floor is reached at once: what it asks for above a minute's first decision does not count as a rise.
    """
    lag_s = 2 * TICK.total_seconds() / seen.speed
    near = [one for one in seen.samples if span.began <= one.at < span.ended + MINUTE_S and one.fault is None]
    at = [one.at for one in near]
    desired = [int(one.decisions[pool]["desired"]) for one in near]
    floors = [int(one.decisions[pool]["floor"]) for one in near]
    rise = fall = 0
    for place, moment in enumerate(at):
        last = bisect.bisect_left(at, moment + MINUTE_S - lag_s)
        if last - place < 2:
            continue
        highest = max(floors[place:last])
        rise = max(rise, max(desired[place:last]) - max(desired[place], highest))
        fall = max(fall, desired[place] - min(desired[place:last]))
    return rise, path.rise_per_minute, fall, path.fall_per_minute
