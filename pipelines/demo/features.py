"""The events planted in the demo history, so that what floorcast makes of them can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

JOB_ZONE = ZoneInfo("Europe/Berlin")
JOB_ABSENT_SHARE = 0.2
DAY = timedelta(days=1)


@dataclass(frozen=True)
class PlantedFeature:
    """Something that happens in the history from `start` (included) to `end` (excluded), aware UTC.

    `workload_class` is None where every class is hit. `factor` multiplies the class's rate: throughout a
    level shift, fading linearly to 1 over a spike; 0 is an outage recorded as zeros; a gap has no rows at all.
    """

    kind: Literal["spike", "job_run", "level_shift", "gap", "outage"]
    workload_class: str | None
    start: datetime
    end: datetime
    factor: float = 1.0


def planted_features(*, end: datetime, days: int, rng: np.random.Generator) -> tuple[PlantedFeature, ...]:
    """Every event of a history of `days` up to `end`, sorted by start; those that start before it are left out.

    Takes the same draws from `rng` as `generate_minutes` does first: a generator of the same seed gives the
    events of that history.
    """
    midnight = datetime.combine(end.astimezone(UTC), time(), UTC)
    code_gap = _weekday_before(midnight - 16 * DAY) + timedelta(hours=9, minutes=34)
    short_gap = _weekday_before(midnight - 6 * DAY) + timedelta(hours=14, minutes=41)
    launch = _weekday_before(midnight - 9 * DAY) + timedelta(hours=14)
    outage = _weekday_before(midnight - 4 * DAY) + timedelta(hours=13, minutes=12)
    found = [
        PlantedFeature("gap", "code-generation", code_gap, code_gap + timedelta(hours=2, minutes=40)),
        PlantedFeature("gap", "code-generation", short_gap, short_gap + timedelta(minutes=7)),
        PlantedFeature("level_shift", "summarization", midnight - 11 * DAY + timedelta(hours=6), end, 1.45),
        PlantedFeature("spike", "chat", launch, launch + timedelta(hours=6), 2.0),
        PlantedFeature("outage", None, outage, outage + timedelta(minutes=50), 0.0),
        *_job_runs(midnight, days=days, rng=rng),
    ]
    start = end - days * DAY
    inside = [
        PlantedFeature(each.kind, each.workload_class, each.start, min(each.end, end), each.factor)
        for each in found
        if start <= each.start < end
    ]
    return tuple(sorted(inside, key=lambda each: each.start))


def _job_runs(midnight: datetime, *, days: int, rng: np.random.Generator) -> list[PlantedFeature]:
    """A job every night at about 00:30 local time for about 3.5 hours, on most nights."""
    runs = []
    for age in range(days, -1, -1):
        late_min, length_min = rng.normal(0, 12), rng.normal(210, 25)
        if rng.random() < JOB_ABSENT_SHARE:
            continue
        planned = datetime.combine(midnight - age * DAY, time(0, 30), JOB_ZONE).astimezone(UTC)
        begin = planned + timedelta(minutes=round(late_min))
        runs.append(PlantedFeature("job_run", "batch", begin, begin + timedelta(minutes=max(60, round(length_min)))))
    return runs


def _weekday_before(day: datetime) -> datetime:
    """`day`, or the Friday before where it falls on a weekend: launches and outages that hurt are on workdays."""
    return day - max(0, day.weekday() - 4) * DAY
