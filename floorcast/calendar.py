"""What the configuration says of a pool by the clock: minimums and ceilings at times of day in a zone.

A clock that changes skips some times and shows some twice. A skipped time stands for the moment the clock goes
forward. A time that comes twice counts so that capacity is not lost: a minimum starts the first time and ends the last,
a ceiling starts the last time and ends the first. Where the clock skips all of an occurrence, a minimum holds for as
long from the change on, and a ceiling does not occur.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Annotated, Literal, LiteralString, Self
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from floorcast.event import Window, Zone, clock_instant
from floorcast.section import Name, Section
from floorcast.units import format_time

if TYPE_CHECKING:
    from floorcast.config import Config

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SETS = {"all": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}
_DAY = timedelta(days=1)
_A_YEAR_OF_CHANGES = timedelta(days=400)
_ANY_YEAR = date(2026, 1, 1)


def _time_of_day(value: object, info: ValidationInfo) -> timedelta:
    """`08:00` to `24:00`, as the time since midnight."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int):
        # YAML reads 20:00 without quotes as the number 1200, in base 60.
        meant = _written(timedelta(minutes=value)) if 0 <= value <= _DAY // timedelta(minutes=1) else "20:00"
        raise PydanticCustomError(
            "time_not_quoted",
            "calendar entry {name} has a number for a time of day, as YAML reads {meant} without quotes",
            {"name": info.data.get("name", "without a name"), "meant": meant, "hint": f'write "{meant}"'},
        )
    found = re.fullmatch(r"(\d{1,2}):(\d{2})", str(value).strip())
    since = timedelta(hours=int(found[1]), minutes=int(found[2])) if found else None
    if found is None or since is None or int(found[2]) > 59 or since > _DAY:
        raise PydanticCustomError(
            "bad_time_of_day",
            "{value} is not a time of day",
            {"value": repr(value), "hint": 'write hours and minutes from "00:00" to "24:00", as in "08:30"'},
        )
    return since


def _written(since_midnight: timedelta) -> str:
    minutes = since_midnight // timedelta(minutes=1)
    return f"{minutes // 60:02}:{minutes % 60:02}"


TimeOfDay = Annotated[timedelta, BeforeValidator(_time_of_day), PlainSerializer(_written, return_type=str)]


def _named_days(value: object) -> object:
    if isinstance(value, str) and value not in _SETS:
        raise PydanticCustomError(
            "unknown_days",
            "names no days",
            {"hint": "write weekdays, weekends, all, or a list of names as in [mon, tue]"},
        )
    return _SETS[value] if isinstance(value, str) else value


class CalendarEntry(Section):
    """A minimum or a ceiling of a pool's floors at times of day. `docs/planning.md` has the rules."""

    name: Name = Field(description="said in the reason of each floor that it moves; unique within the pool")
    kind: Literal["hours", "maintenance"] = Field(
        default="hours",
        description="the ceiling of `hours` gives way to minimums, that of `maintenance` goes before them",
    )
    days: Annotated[tuple[Day, ...], BeforeValidator(_named_days)] = Field(
        default=DAYS,
        min_length=1,
        description="the days on which it starts: a list, as in [mon, tue], or one of all, weekdays and weekends",
    )
    start: TimeOfDay = Field(description='time of day, as in "08:00", from which it holds')
    end: TimeOfDay = Field(
        description='time of day, up to "24:00", at which it is over; on the next day where it is not after `start`'
    )
    zone: Zone | None = Field(
        default=None, description="IANA zone of its clock; the configuration's `zone` unless given"
    )
    minimum: int | None = Field(
        default=None, ge=1, description="no floor is lower, from a lead time before `start`, so that replicas are there"
    )
    ceiling: int | None = Field(
        default=None, ge=0, description="no floor is higher; what is wanted above it is reported as a shortfall"
    )
    first: date | None = Field(default=None, description="the first day on which it starts; since ever unless given")
    last: date | None = Field(default=None, description="the last day on which it starts; for ever unless given")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.minimum is None and self.ceiling is None:
            raise _refused(self, "says_nothing", "has neither minimum nor ceiling", "give one of them", "name")
        if self.minimum is not None and self.ceiling is not None and self.minimum > self.ceiling:
            what = f"has minimum {self.minimum} above its ceiling {self.ceiling}"
            raise _refused(self, "limits_crossed", what, "raise the ceiling or lower the minimum", "minimum")
        if self.kind == "maintenance" and (self.ceiling is None or self.minimum is not None):
            hint = "give it a ceiling alone; a minimum belongs in an entry of its own"
            raise _refused(
                self, "maintenance_limits", "is maintenance, which has a ceiling and no minimum", hint, "kind"
            )
        return self

    @model_validator(mode="after")
    def _happens(self) -> Self:
        if self.start == _DAY:
            raise _refused(self, "starts_at_24", "starts at 24:00", 'start it at "00:00" of the next day', "start")
        if self.start == self.end:
            hint = 'for a whole day write start: "00:00" and end: "24:00"'
            raise _refused(self, "no_length", f"ends at {_written(self.end)}, when it starts", hint, "end")
        if self.first is None or self.last is None:
            return self
        if self.last < self.first:
            what = f"is over on {self.last}, before its first day {self.first}"
            raise _refused(self, "calendar_ends_first", what, "correct `first` or `last`", "last")
        days = (self.first + day * _DAY for day in range(min((self.last - self.first).days, 6) + 1))
        if not any(DAYS[day.weekday()] in self.days for day in days):
            what = f"never starts: none of its days lies between {self.first} and {self.last}"
            raise _refused(self, "never_starts", what, "correct `days`, `first` or `last`", "days")
        return self

    def said(self, zone: str) -> str:
        """As `quiet-hours: weekdays 22:00 to 06:00 Europe/Berlin, ceiling 10`, on the clock of its own zone, else of
        `zone`."""
        days = next((name for name, days in _SETS.items() if set(days) == set(self.days)), ", ".join(self.days))
        every = "every day" if days == "all" else days
        hours = f"{every} {_written(self.start)} to {_written(self.end)} {self.zone or zone}"
        dates = [f"{word} {day}" for word, day in (("from", self.first), ("until", self.last)) if day]
        limits = [f"{key} {value}" for key in ("minimum", "ceiling") if (value := getattr(self, key)) is not None]
        kind = [self.kind] if self.kind != "hours" else []
        return f"{self.name}: {', '.join([hours, *dates, *kind, *limits])}"

    def between(self, start: datetime, end: datetime, *, zone: str, wide: bool) -> tuple[Window, ...]:
        """Its occurrences that overlap [start, end), in order, on the clock of its own zone, else of `zone`.

        `wide` is for its minimum, else for its ceiling: where a clock change leaves a choice, the longer one.
        """
        there = ZoneInfo(self.zone or zone)
        day = max(start.astimezone(there).date() - 2 * _DAY, self.first or date.min)
        last = min(end.astimezone(there).date(), self.last or date.max)
        days = (day + ahead * _DAY for ahead in range((last - day).days + 1))
        windows = (self._on(day, there.key, wide=wide) for day in days if DAYS[day.weekday()] in self.days)
        return tuple(one for one in windows if one.start < one.end and one.start < end and one.end > start)

    def _on(self, day: date, zone: str, *, wide: bool) -> Window:
        midnight = datetime.combine(day, time())
        starts, ends = midnight + self.start, midnight + self.end + (_DAY if self.end <= self.start else timedelta(0))
        first, last = clock_instant(starts, zone, last=not wide), clock_instant(ends, zone, last=wide)
        return Window(first, first + (ends - starts) if wide and first == last else last)


def check_calendars(config: Config) -> None:
    """Calendars keep within their pool's bounds, name entries apart, and no maintenance overlaps another."""
    for name, pool in config.pools.items():
        where, bounds, names = ("pools", name, "calendar"), pool.bounds, set()
        for place, entry in enumerate(pool.calendar):
            at = (*where, str(place))
            if entry.name in names:
                hint = "rename one of them"
                raise _refused(entry, "duplicate_entry", f"is there twice, in pool {name}", hint, *at, "name")
            names.add(entry.name)
            if (entry.minimum or 0) > bounds.max:
                what = f"has minimum {entry.minimum} above bounds.max {bounds.max} of pool {name}"
                raise _refused(
                    entry, "minimum_above_max", what, "raise bounds.max or lower the minimum", *at, "minimum"
                )
            if entry.kind == "hours" and entry.ceiling is not None and entry.ceiling < bounds.min:
                what = f"has ceiling {entry.ceiling} below bounds.min {bounds.min} of pool {name}"
                hint = "lower bounds.min or raise the ceiling; the ceiling of `kind: maintenance` may be below it"
                raise _refused(entry, "ceiling_below_min", what, hint, *at, "ceiling")
        works = [entry for entry in pool.calendar if entry.kind == "maintenance"]
        for one, other in combinations(works, 2):
            if (both := _overlap(one, other, config.zone)) is not None:
                what = f"is maintenance of pool {name} at the same time as {one.name}, at {format_time(both)}"
                hint = "make one entry of them, with the lower ceiling, or move one"
                at = (*where, str(pool.calendar.index(other)))
                raise _refused(other, "maintenance_overlaps", what, hint, *at)


def _overlap(one: CalendarEntry, other: CalendarEntry, zone: str) -> datetime | None:
    """When two entries first overlap; they repeat weekly, so a year with its clock changes shows it."""
    begins = max((day for day in (one.first, other.first) if day), default=None)
    ends = min((day for day in (one.last, other.last) if day), default=None)
    begins = begins or (ends or _ANY_YEAR) - _A_YEAR_OF_CHANGES
    ends = min(ends or date.max, begins + _A_YEAR_OF_CHANGES)
    start, end = (datetime.combine(day, time(), UTC) for day in (begins - 2 * _DAY, ends + 3 * _DAY))
    windows = sorted(window for entry in (one, other) for window in entry.between(start, end, zone=zone, wide=False))
    return next((after.start for before, after in pairwise(windows) if after.start < before.end), None)


def _refused(entry: CalendarEntry, kind: LiteralString, what: str, hint: str, *at: str) -> PydanticCustomError:
    context = {"name": entry.name, "what": what, "at": at, "hint": hint}
    return PydanticCustomError(kind, "calendar entry {name} {what}", context)
