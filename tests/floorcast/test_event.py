"""When events and holidays are: on clocks that change, repeated, and refused where they make no sense."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from floorcast.event import Event, Holidays, Window, day_window

HOUR = timedelta(hours=1)
EVER_SINCE = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
LOCAL = datetime(2025, 1, 1, tzinfo=UTC).replace(tzinfo=None)
EVER = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def event(start: str, end: str, **more: Any) -> Event:
    return Event.model_validate({"name": "launch", "start": start, "end": end, "multiply": 2, **more})


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("start", "end", "window"),
    [
        pytest.param("2026-11-30 09:00", "2026-11-30 11:00", (utc(2026, 11, 30, 8), utc(2026, 11, 30, 10)),
                     id="winter"),
        pytest.param("2026-07-01 09:00", "2026-07-01 11:00", (utc(2026, 7, 1, 7), utc(2026, 7, 1, 9)), id="summer"),
        # 29 March 2026: at 01:00 UTC clocks go from 02:00 to 03:00.
        pytest.param("2026-03-29 01:00", "2026-03-29 04:00", (utc(2026, 3, 29), utc(2026, 3, 29, 2)), id="short night"),
        pytest.param("2026-03-29 02:30", "2026-03-29 03:15", (utc(2026, 3, 29, 1), utc(2026, 3, 29, 1, 15)),
                     id="begins in the hour that is skipped"),
        pytest.param("2026-03-29 01:45", "2026-03-29 02:30", (utc(2026, 3, 29, 0, 45), utc(2026, 3, 29, 1)),
                     id="ends in the hour that is skipped"),
        # 25 October 2026: at 01:00 UTC clocks go from 03:00 back to 02:00.
        pytest.param("2026-10-25 01:00", "2026-10-25 04:00", (utc(2026, 10, 24, 23), utc(2026, 10, 25, 3)),
                     id="long night"),
        pytest.param("2026-10-25 02:15", "2026-10-25 02:45", (utc(2026, 10, 25, 0, 15), utc(2026, 10, 25, 1, 45)),
                     id="in the hour that comes twice, from its first time to its second"),
        pytest.param("2026-10-25 01:00", "2026-10-25 02:00", (utc(2026, 10, 24, 23), utc(2026, 10, 25)),
                     id="ends where that hour first begins"),
        pytest.param("2026-10-25 03:00", "2026-10-25 04:00", (utc(2026, 10, 25, 2), utc(2026, 10, 25, 3)),
                     id="begins where that hour is over"),
        pytest.param("2026-10-25T02:15:00+01:00", "2026-10-25T02:45:00+01:00",
                     (utc(2026, 10, 25, 1, 15), utc(2026, 10, 25, 1, 45)), id="an offset says which of the two"),
    ],
)  # fmt: skip
def test_a_local_time_is_right_on_both_sides_of_clock_changes(
    start: str, end: str, window: tuple[datetime, datetime]
) -> None:
    assert event(start, end, zone="Europe/Berlin").between(*EVER) == (window,)


def test_a_time_without_zone_or_offset_is_utc_and_a_date_is_its_midnight() -> None:
    assert event("2026-11-30", "2026-12-01").between(*EVER) == ((utc(2026, 11, 30), utc(2026, 12, 1)),)


def test_a_weekly_event_keeps_its_time_on_the_clock_through_both_changes() -> None:
    """Sundays from 9 to 10 in Berlin: at 8 UTC in winter, at 7 in summer."""
    weekly = event("2026-03-22 09:00", "2026-03-22 10:00", zone="Europe/Berlin", repeat="weekly")
    spring = weekly.between(utc(2026, 3, 20), utc(2026, 4, 1))
    autumn = weekly.between(utc(2026, 10, 18), utc(2026, 10, 26))
    assert [window.start for window in spring] == [utc(2026, 3, 22, 8), utc(2026, 3, 29, 7)]
    assert [window.start for window in autumn] == [utc(2026, 10, 18, 7), utc(2026, 10, 25, 8)]
    assert weekly.between(utc(2026, 3, 1), utc(2026, 3, 22)) == (), "nothing before its first time"


def test_a_weekly_event_in_the_hour_that_clocks_skip_is_left_out_that_week_and_covers_both_in_autumn() -> None:
    weekly = event("2026-03-22 02:15", "2026-03-22 02:45", zone="Europe/Berlin", repeat="weekly")
    assert [window.start for window in weekly.between(utc(2026, 3, 20), utc(2026, 4, 7))] == [
        utc(2026, 3, 22, 1, 15),
        utc(2026, 4, 5, 0, 15),
    ]
    (autumn,) = weekly.between(utc(2026, 10, 24), utc(2026, 10, 26))
    assert autumn == (utc(2026, 10, 25, 0, 15), utc(2026, 10, 25, 1, 45))


def test_a_yearly_event_comes_on_its_date_and_one_of_29_february_in_leap_years() -> None:
    yearly = event("2023-11-24 08:00", "2023-11-28 08:00", zone="America/New_York", repeat="yearly")
    assert [window.start for window in yearly.between(*EVER)] == [utc(2026, 11, 24, 13)]
    leap = event("2024-02-29", "2024-03-01", repeat="yearly")
    assert [window.start.year for window in leap.between(utc(2024, 1, 1), utc(2033, 1, 1))] == [2024, 2028, 2032]


def test_a_yearly_event_that_spans_new_year_is_found_from_either_side() -> None:
    yearly = event("2020-12-28", "2021-01-03", repeat="yearly")
    (found,) = yearly.between(utc(2026, 1, 2), utc(2026, 1, 2, 1))
    assert found.start == utc(2025, 12, 28)


def test_a_list_of_further_occasions() -> None:
    several = event("2026-05-01", "2026-05-02", repeat=[{"start": "2026-06-01", "end": "2026-06-03"}])
    assert [window.end - window.start for window in several.between(*EVER)] == [24 * HOUR, 48 * HOUR]


@given(
    at=st.datetimes(LOCAL, LOCAL + timedelta(days=1000)),
    lasts=st.timedeltas(timedelta(minutes=1), timedelta(days=3)),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    probe=st.integers(0, 60 * 24 * 3),
)
def test_a_moment_is_inside_wherever_clocks_show_a_time_inside(
    at: datetime, lasts: timedelta, zone: str, probe: int
) -> None:
    """The oracle asks the clock itself; only in an hour that comes twice may the event hold more than that."""
    at = at.replace(microsecond=0)
    try:
        windows = Event(name="e", start=at, end=at + lasts, zone=zone, multiply=2).between(*EVER_SINCE)
    except ValidationError:  # clocks skip it whole
        windows = ()
    moment = at.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC) + timedelta(minutes=probe) - timedelta(hours=2)
    shown = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    inside = any(window.start <= moment < window.end for window in windows)
    if at <= shown < at + lasts:
        assert inside
    elif inside:
        offsets = {(moment + shift).astimezone(ZoneInfo(zone)).utcoffset() for shift in (-2 * HOUR, 0 * HOUR, 2 * HOUR)}
        assert len(offsets) > 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"multiply": None}, "event launch has no effect"),
        ({"learn": True}, "has `multiply` and `learn`"),
        ({"multiply": -1}, "greater than or equal to 0"),
        ({"end": "2026-11-30 09:00"}, "not after its start"),
        ({"repeat": [{"start": "2026-11-02", "end": "2026-11-01"}]}, "not after its start"),
        ({"start": "2026-03-29 02:10", "end": "2026-03-29 02:50", "zone": "Europe/Berlin"}, "not after its start"),
        ({"end": "2026-12-08", "repeat": "weekly"}, "lasts longer than the time to its repetition"),
        ({"multiply": None, "learn": True, "repeat": "weekly"}, "no week without it"),
        ({"repeat": "daily"}, "'weekly' or 'yearly'"),
        ({"zone": "CEST"}, "not an IANA time zone"),
        ({"start": "soon"}, "'soon' is not a time"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(change: dict[str, Any], said: str) -> None:
    good = {"name": "launch", "start": "2026-11-30 09:00", "end": "2026-11-30 11:00", "multiply": 2}
    with pytest.raises(ValidationError, match=said):
        Event.model_validate({**good, **change})


def test_holidays_are_days_of_their_zone_without_those_on_a_weekend() -> None:
    """In 2026 the Day of German Unity is a Saturday, and Epiphany a holiday in Bavaria but not in Berlin."""
    bavaria = Holidays(country="DE", subdivision="BY", zone="Europe/Berlin").between(*EVER)
    berlin = Holidays(country="DE", subdivision="BE", zone="Europe/Berlin").between(*EVER)
    epiphany = Window(utc(2026, 1, 5, 23), utc(2026, 1, 6, 23))
    assert epiphany in bavaria
    assert epiphany not in berlin
    assert not [window for window in bavaria if window.start <= utc(2026, 10, 3, 12) < window.end]
    assert Window(utc(2026, 5, 31, 22), utc(2026, 6, 1, 22)) not in bavaria
    assert Window(utc(2026, 5, 24, 22), utc(2026, 5, 25, 22)) in bavaria, "Whit Monday, in summer time"


def test_a_day_has_23_or_25_hours_where_clocks_change() -> None:
    lengths = [day_window(day, "Europe/Berlin") for day in (date(2026, 3, 29), date(2026, 6, 1), date(2026, 10, 25))]
    assert [(window.end - window.start) / HOUR for window in lengths] == [23, 24, 25]


def test_the_rest_day_is_the_last_of_the_countrys_weekend() -> None:
    assert Holidays(country="DE", zone="Europe/Berlin").rest_day() == 6
    assert Holidays(country="IL", zone="Asia/Jerusalem").rest_day() == 5


@pytest.mark.parametrize(
    ("calendar", "said"),
    [
        ({"country": "XX"}, "XX has no calendar"),
        ({"country": "DE", "subdivision": "Bavaria"}, "no subdivision Bavaria"),
    ],
)
def test_an_unknown_calendar_is_refused(calendar: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Holidays.model_validate({**calendar, "zone": "Europe/Berlin"})
