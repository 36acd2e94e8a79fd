"""What the user knows of the future: the configuration's `events` and `holidays`, and when they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from floorcast.section import Name, Section
from floorcast.units import EPOCH

WEEK = timedelta(weeks=1)
_SECOND = timedelta(seconds=1)


class Window(NamedTuple):
    """From `start` (included) to `end` (excluded), aware UTC."""

    start: datetime
    end: datetime


def _known_zone(zone: str) -> str:
    zones = available_timezones()
    if zone not in zones:
        # By the place alone: every name of a continent is near to every other, and an abbreviation is no place.
        places = {known.rpartition("/")[2].casefold(): known for known in sorted(zones) if "/" in known}
        near = difflib.get_close_matches(zone.rpartition("/")[2].casefold(), places, n=1, cutoff=0.8)
        hint = f"did you mean {places[near[0]]}?" if near else "name a city that the zone has, as in Europe/Berlin"
        raise PydanticCustomError("unknown_zone", "{zone} is not an IANA time zone", {"zone": zone, "hint": hint})
    return zone


Zone = Annotated[str, AfterValidator(_known_zone)]


def _clock_time(value: object) -> datetime:
    """An ISO 8601 time, kept without a zone where it has none: what a clock on a wall shows."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    with suppress(ValueError):
        return datetime.fromisoformat(str(value).strip())
    raise ValueError(f"{value!r} is not a time; write it as in 2026-11-30T08:55 or 2026-11-30 09:55+01:00")


ClockTime = Annotated[datetime, BeforeValidator(_clock_time)]


class Rates(Section):
    """Tokens per second."""

    tokens_in_per_s: float = Field(default=0.0, ge=0, description="tokens in per second")
    tokens_out_per_s: float = Field(default=0.0, ge=0, description="tokens out per second")


class Occasion(Section):
    """One more occurrence of an event."""

    start: ClockTime = Field(description="as the event's `start`")
    end: ClockTime = Field(description="as the event's `end`")


def _repeat_tag(value: object) -> str:
    return "every" if isinstance(value, str) else "windows"


Repeat = Annotated[
    Annotated[Literal["weekly", "yearly"], Tag("every")] | Annotated[tuple[Occasion, ...], Tag("windows")],
    Discriminator(_repeat_tag),
]


class Event(Section):
    """Something known to change demand: a launch, a campaign, maintenance. `docs/events.md` has the rules."""

    name: Name = Field(description="shown with every forecast that it changed; entries of one name are learned as one")
    classes: tuple[str, ...] = Field(default=(), description="the classes it concerns; all unless given")
    start: ClockTime = Field(description="when it begins: with an offset, or as a clock in `zone` shows it")
    end: ClockTime = Field(description="when it is over, written likewise")
    zone: Zone = Field(default="UTC", description="IANA zone of times without an offset, and of repetitions")
    repeat: Repeat | None = Field(
        default=None,
        description="`weekly` or `yearly`, at the same time on the clock; or a list of further `start` and `end`",
    )
    multiply: float | None = Field(default=None, ge=0, le=100, description="demand becomes so many times as large")
    add: Rates | None = Field(default=None, description="so much demand comes on top")
    at_least: Rates | None = Field(default=None, description="demand is so much or more")
    learn: Literal[True] | None = Field(default=None, description="take the factor from how it was the times before")

    @model_validator(mode="after")
    def _one_effect(self) -> Self:
        given = [key for key in ("multiply", "add", "at_least", "learn") if getattr(self, key) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "event_effect",
                "event {name} has {given}",
                {
                    "name": self.name,
                    "given": " and ".join(f"`{key}`" for key in given) if given else "no effect",
                    "hint": "give exactly one of multiply, add, at_least and learn",
                },
            )
        if self.learn and self.repeat == "weekly":
            raise PydanticCustomError(
                "learned_weekly",
                "event {name} is weekly, so no week without it tells its factor",
                {"name": self.name, "at": ("learn",), "hint": "leave it out: models learn weeks; or give `multiply`"},
            )
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        further = self.repeat if isinstance(self.repeat, tuple) else ()
        for start, end in ((self.start, self.end), *((occasion.start, occasion.end) for occasion in further)):
            window = self._window(start, end)
            if window.end <= window.start:
                raise PydanticCustomError(
                    "event_ends_first",
                    "event {name} ends at {end}, which is not after its start {start}",
                    {
                        "name": self.name,
                        "start": start.isoformat(),
                        "end": end.isoformat(),
                        "at": ("end",) if (start, end) == (self.start, self.end) else ("repeat",),
                        "hint": "correct `end`, or `zone`; clocks going forward skip an hour",
                    },
                )
        lasts = self._window(self.start, self.end)
        longest = {"weekly": WEEK, "yearly": timedelta(days=365)}.get(str(self.repeat))
        if longest and lasts.end - lasts.start > longest:
            raise PydanticCustomError(
                "event_overlaps_itself",
                "event {name} lasts longer than the time to its repetition",
                {"name": self.name, "at": ("end",), "hint": "shorten it, or repeat it less often"},
            )
        return self

    def between(self, start: datetime, end: datetime) -> tuple[Window, ...]:
        """Its occurrences that overlap [start, end), in order."""
        found = {window for window in self._occurrences(start, end) if window.start < end and window.end > start}
        return tuple(sorted(window for window in found if window.start < window.end))

    def _occurrences(self, start: datetime, end: datetime) -> Iterator[Window]:
        """`start` to `end` as given, and its repetitions, those in between at the least."""
        yield self._window(self.start, self.end)
        if isinstance(self.repeat, tuple):
            yield from (self._window(occasion.start, occasion.end) for occasion in self.repeat)
            return
        first, last = self._on_the_clock(self.start), self._on_the_clock(self.end)
        if self.repeat == "weekly":
            began = clock_instant(first, self.zone, last=False)
            for week in range(max((start - began) // WEEK - 1, 1), (end - began) // WEEK + 2):
                yield self._window(first + week * WEEK, last + week * WEEK)
        elif self.repeat == "yearly":
            for year in range(max(start.year - 2, first.year + 1), end.year + 2):
                with suppress(ValueError):  # 29 February
                    begins = first.replace(year=year)
                    yield self._window(begins, begins + (last - first))

    def _on_the_clock(self, moment: datetime) -> datetime:
        return moment if moment.tzinfo is None else moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)

    def _window(self, start: datetime, end: datetime) -> Window:
        return Window(clock_instant(start, self.zone, last=False), clock_instant(end, self.zone, last=True))


class Holidays(Section):
    """Public holidays, from the calendars of the `holidays` library."""

    country: str = Field(description="ISO 3166 code, as DE")
    subdivision: str | None = Field(default=None, description="its code there, as BY; the whole country unless given")
    zone: Zone = Field(description="IANA zone that the days are of")
    until_learned: Literal["sunday", "ordinary"] = Field(
        default="sunday", description="what a holiday is like while fewer than two past ones are known"
    )

    @model_validator(mode="after")
    def _known_calendar(self) -> Self:
        import holidays  # noqa: PLC0415 - takes long, and few configurations have holidays

        calendars = holidays.list_supported_countries()
        if self.country not in calendars:
            raise PydanticCustomError(
                "unknown_country",
                "country {country} has no calendar of holidays",
                {"country": self.country, "at": ("country",), "hint": "use its ISO 3166 code, as DE or US"},
            )
        if self.subdivision is not None and self.subdivision not in calendars[self.country]:
            raise PydanticCustomError(
                "unknown_subdivision",
                "{country} has no subdivision {subdivision}",
                {
                    "country": self.country,
                    "subdivision": self.subdivision,
                    "at": ("subdivision",),
                    "hint": f"use one of {', '.join(calendars[self.country]) or 'none'}",
                },
            )
        return self

    @property
    def label(self) -> str:
        """As `holiday DE-BY`."""
        return "holiday " + "-".join(part for part in (self.country, self.subdivision) if part)

    def between(self, start: datetime, end: datetime) -> tuple[Window, ...]:
        """The holidays that overlap [start, end), each from midnight to midnight in `zone`, in order.

        Those on the country's weekend are left out: they are as that day is anyway.
        """
        years = range(start.year - 1, end.year + 2)
        days = (day for year in years for day in _calendar(self.country, self.subdivision, year).days)
        windows = (day_window(day, self.zone) for day in days)
        return tuple(window for window in windows if window.start < end and window.end > start)

    def rest_day(self) -> int:
        """The last day of the country's weekend, Monday being 0; Sunday nearly everywhere."""
        return _calendar(self.country, self.subdivision, EPOCH.year).rest_day


class _Calendar(NamedTuple):
    """The holidays of a year that are not on a weekend, in order, and the weekend's last day."""

    days: tuple[date, ...]
    rest_day: int


@lru_cache(maxsize=1024)
def _calendar(country: str, subdivision: str | None, year: int) -> _Calendar:
    import holidays  # noqa: PLC0415

    calendar = holidays.country_holidays(country, subdiv=subdivision, years=year)
    # Asking for a year may bring days of the next.
    days = (day for day in sorted(calendar) if day.year == year and day.weekday() not in calendar.weekend)
    return _Calendar(tuple(days), max(calendar.weekend))


def day_window(day: date, zone: str) -> Window:
    """A day in a zone, from midnight to midnight: 23 or 25 hours where clocks change."""
    midnight = datetime.combine(day, time())
    return Window(
        clock_instant(midnight, zone, last=False), clock_instant(midnight + timedelta(days=1), zone, last=False)
    )


def clock_instant(moment: datetime, zone: str, *, last: bool) -> datetime:
    """When clocks in `zone` show `moment`, in UTC; one that has an offset is an instant already.

    Of an hour that clocks show twice it is the first time, or the `last` (but the hour's beginning, which ends what
    came before it, only once). A time that clocks skip stands for the moment they go forward.
    """
    if moment.tzinfo is not None:
        return moment.astimezone(UTC)
    there = ZoneInfo(zone)
    first, second = _both(moment, there)
    if first <= second:
        return second if last and len(set(_both(moment - _SECOND, there))) > 1 else first
    offset = first.astimezone(there).utcoffset()
    before, change = second, first
    while change - before > _SECOND:
        middle = before + (change - before) / 2
        if middle.astimezone(there).utcoffset() == offset:
            change = middle
        else:
            before = middle
    return change.replace(microsecond=0)


def _both(moment: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The instants that a time on the clock may mean; they are one except around changes."""
    first, second = (moment.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first, second
