"""Calendar entries: what is read, and what is refused with its line, its key and a remedy."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from floorcast.calendar import DAYS, CalendarEntry
from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

POOL = """\
zone: Europe/Berlin
pools:
  chat-70b:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
    calendar:
"""
CLASSES = "classes:\n  chat: {pools: [chat-70b]}\n"


def parse(*entries: str) -> Config:
    text = POOL + "".join(f"      - {{{entry}}}\n" for entry in entries) + CLASSES
    return parse_config(text, file="floorcast.yaml", environment={})


def test_an_entry_is_read() -> None:
    (entry,) = (
        parse('name: day, days: weekdays, start: "8:00", end: "24:00", minimum: 6, first: 2026-12-01')
        .pools["chat-70b"]
        .calendar
    )
    assert (entry.start, entry.end, entry.days) == (timedelta(hours=8), timedelta(days=1), DAYS[:5])
    assert (entry.first, entry.last, entry.zone, entry.kind) == (date(2026, 12, 1), None, None, "hours")


@pytest.mark.parametrize(
    ("days", "read"),
    [("all", DAYS), ("weekdays", DAYS[:5]), ("weekends", DAYS[5:]), (["tue", "sun"], ("tue", "sun"))],
)
def test_days_have_names(days: Any, read: tuple[str, ...]) -> None:
    entry = CalendarEntry.model_validate({"name": "a", "days": days, "start": "01:00", "end": "02:00", "minimum": 1})
    assert entry.days == read
    starts = {DAYS[window.start.weekday()] for window in entry.between(*WEEK, zone="UTC", wide=True)}
    assert starts == set(read)


WEEK = (datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 8, tzinfo=UTC))


def test_an_entry_is_written_as_it_is_read() -> None:
    entry = CalendarEntry.model_validate({"name": "a", "start": "07:05", "end": "24:00", "ceiling": 1})
    assert (entry.model_dump()["start"], entry.model_dump()["end"]) == ("07:05", "24:00")
    assert CalendarEntry.model_validate(entry.model_dump()) == entry


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"name": "quiet", "days": "weekdays", "start": "22:00", "end": "6:00", "ceiling": 10},
            "quiet: weekdays 22:00 to 06:00 Europe/Berlin, ceiling 10",
        ),
        (
            {"name": "day", "days": ["mon", "sun"], "start": "08:00", "end": "24:00", "minimum": 2, "ceiling": 3},
            "day: mon, sun 08:00 to 24:00 Europe/Berlin, minimum 2, ceiling 3",
        ),
        (
            {"name": "works", "kind": "maintenance", "start": "02:00", "end": "04:00"}
            | {"ceiling": 0, "zone": "Asia/Tokyo", "first": "2026-12-06", "last": "2026-12-20"},
            "works: every day 02:00 to 04:00 Asia/Tokyo, from 2026-12-06, until 2026-12-20, maintenance, ceiling 0",
        ),
    ],
)
def test_an_entry_is_said_in_one_line(entry: dict[str, Any], said: str) -> None:
    assert CalendarEntry.model_validate(entry).said("Europe/Berlin") == said


REFUSED = {
    "unquoted_morning": (
        "name: a, start: 8:00, end: '20:00', minimum: 3",
        "start: calendar entry a has a number for a time of day, as YAML reads 08:00 without quotes (value 480)",
        'write "08:00"',
    ),
    "unquoted": (
        "name: a, start: 08:00, end: 20:00, minimum: 3",
        "end: calendar entry a has a number for a time of day, as YAML reads 20:00 without quotes (value 1200)",
        'write "20:00"',
    ),
    "no_time": ('name: a, start: "8 am", end: "20:00", minimum: 3', "start: '8 am' is not a time of day", "00:00"),
    "past_24": ('name: a, start: "08:00", end: "24:30", minimum: 3', "end: '24:30' is not a time of day", "24:00"),
    "minute_60": ('name: a, start: "08:60", end: "10:00", minimum: 3', "start: '08:60' is not a time of day", "08:30"),
    "unknown_day": (
        'name: a, days: [monday], start: "08:00", end: "20:00", minimum: 3',
        "'mon', 'tue'",
        "did you mean mon?",
    ),
    "unknown_days": (
        'name: a, days: workdays, start: "08:00", end: "20:00", minimum: 3',
        "days: names no days",
        "write weekdays, weekends, all",
    ),
    "no_days": ('name: a, days: [], start: "08:00", end: "20:00", minimum: 3', "days: is empty", "give at least one"),
    "unknown_zone": (
        'name: a, start: "08:00", end: "20:00", minimum: 3, zone: Europe/Berlim',
        "zone: Europe/Berlim is not an IANA time zone",
        "did you mean Europe/Berlin?",
    ),
    "no_length": ('name: a, start: "08:00", end: "08:00", minimum: 3', "end: calendar entry a ends at 08:00", "24:00"),
    "start_24": (
        'name: a, start: "24:00", end: "08:00", minimum: 3',
        "start: calendar entry a starts at 24",
        "next day",
    ),
    "ends_first": (
        'name: a, start: "08:00", end: "20:00", minimum: 3, first: 2026-12-02, last: 2026-12-01',
        "last: calendar entry a is over on 2026-12-01, before its first day 2026-12-02",
        "correct `first` or `last`",
    ),
    "never": (
        'name: a, days: weekends, start: "08:00", end: "20:00", minimum: 3, first: 2026-12-01, last: 2026-12-04',
        "days: calendar entry a never starts",
        "correct `days`, `first` or `last`",
    ),
    "nothing": ('name: a, start: "08:00", end: "20:00"', "has neither minimum nor ceiling", "give one of them"),
    "crossed": (
        'name: a, start: "08:00", end: "20:00", minimum: 9, ceiling: 8',
        "minimum: calendar entry a has minimum 9 above its ceiling 8",
        "raise the ceiling or lower the minimum",
    ),
    "minimum_above_max": (
        'name: a, start: "08:00", end: "20:00", minimum: 41',
        "minimum: calendar entry a has minimum 41 above bounds.max 40 of pool chat-70b",
        "raise bounds.max or lower the minimum",
    ),
    "ceiling_below_min": (
        'name: a, start: "08:00", end: "20:00", ceiling: 1',
        "ceiling: calendar entry a has ceiling 1 below bounds.min 2 of pool chat-70b",
        "lower bounds.min or raise the ceiling",
    ),
    "maintenance_minimum": (
        'name: a, kind: maintenance, start: "08:00", end: "20:00", minimum: 3',
        "kind: calendar entry a is maintenance, which has a ceiling and no minimum",
        "give it a ceiling alone",
    ),
}


@pytest.mark.parametrize(("entry", "what", "remedy"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused(entry: str, what: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(entry)
    said = str(caught.value)
    assert said.startswith("floorcast.yaml:9: pools.chat-70b.calendar.0.")
    assert what in said
    assert "\n  remedy: " in said
    assert remedy in said


def works(name: str, start: str, end: str, more: str = "") -> str:
    return f'name: {name}, kind: maintenance, start: "{start}", end: "{end}", ceiling: 0{more}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(works("a", "08:00", "10:00"), works("b", "09:59", "11:00"), id="by a minute"),
        pytest.param(
            works("a", "23:00", "01:00", ", days: [sat]"), works("b", "00:30", "02:00", ", days: [sun]"), id="midnight"
        ),
        pytest.param(
            works("a", "08:00", "09:00"), works("b", "17:30", "18:30", ", zone: Australia/Lord_Howe"), id="half an hour"
        ),
        pytest.param(
            # Clocks change on 8 March in New York and on the 29th in Berlin: three weeks of five hours, else six.
            works("a", "12:00", "13:00"),
            works("b", "07:30", "07:45", ", zone: America/New_York"),
            id="only while clocks differ",
        ),
        pytest.param(
            works("a", "08:00", "10:00", ", first: 2030-01-01, last: 2030-01-05"),
            works("b", "09:00", "11:00", ", first: 2030-01-05"),
            id="on one day",
        ),
    ],
)
def test_maintenance_of_a_pool_must_not_overlap(one: str, other: str) -> None:
    with pytest.raises(ConfigError, match="is maintenance of pool chat-70b at the same time as a, at ") as caught:
        parse(one, other)
    assert str(caught.value).startswith("floorcast.yaml:10: pools.chat-70b.calendar.1: ")
    assert "remedy: make one entry of them" in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(works("a", "08:00", "10:00"), works("b", "10:00", "11:00"), id="one after the other"),
        pytest.param(
            works("a", "08:00", "10:00", ", days: [sat]"), works("b", "08:00", "10:00", ", days: [sun]"), id="days"
        ),
        pytest.param(
            works("a", "08:00", "10:00", ", last: 2026-12-01"),
            works("b", "08:00", "10:00", ", first: 2026-12-02"),
            id="dates",
        ),
        pytest.param(
            works("a", "08:00", "10:00"),
            'name: b, start: "09:00", end: "11:00", ceiling: 5',
            id="with hours, which may",
        ),
    ],
)
def test_maintenance_may_follow_and_lie_within_hours(one: str, other: str) -> None:
    assert len(parse(one, other).pools["chat-70b"].calendar) == 2


def test_two_entries_of_one_name_are_refused() -> None:
    day = 'name: a, start: "08:00", end: "10:00", minimum: 3'
    with pytest.raises(ConfigError, match="calendar entry a is there twice, in pool chat-70b"):
        parse(day, day)
