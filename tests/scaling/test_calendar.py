"""Calendars on the grid, in local time: against `zoneinfo` window by window, and by hand."""

from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.calendar import DAYS, CalendarEntry
from floorcast.columns import DEMAND, empty
from floorcast.pool import MOST_REPLICAS
from floorcast.types import Reason
from scaling.calendar import limits
from scaling.floors import plan
from scaling.ladder import Grid
from scaling.pool_floors import Limits
from scaling.recompute import recompute

MINUTE, STEP, DAY = timedelta(minutes=1), timedelta(minutes=5), timedelta(days=1)
YEAR, WINDOWS = datetime(2026, 1, 1, tzinfo=UTC), 365 * 288

ZONES = (
    "Europe/Berlin",  # skips 02:00 to 03:00 in March
    "America/New_York",
    "America/Los_Angeles",  # its business hours cross midnight UTC
    "Australia/Lord_Howe",  # southern; clocks change by half an hour
    "America/Santiago",  # southern; skips midnight, shows 23:00 to 24:00 twice
    "Asia/Kolkata",  # clocks never change
)
HOURS = (
    ("08:00", "20:00", "weekdays"),
    ("22:00", "06:00", "all"),
    ("00:00", "24:00", "weekends"),
    ("23:30", "00:30", "all"),
    ("02:15", "02:45", "all"),
    ("01:40", "02:10", ["sun"]),
    ("02:00", "03:00", "all"),
    ("00:15", "23:15", ["sat", "sun"]),
)


def entry(start: str, end: str, **more: Any) -> CalendarEntry:
    return CalendarEntry.model_validate({"name": "hours", "start": start, "end": end, **more})


def grid_of(start: datetime, count: int) -> Grid:
    return Grid(start, STEP, count)


def limits_of(*calendar: CalendarEntry, start: datetime, windows: int, width: int = 1, zone: str = "UTC") -> Limits:
    return limits(calendar, grid_of(start, windows + width - 1), windows=windows, width=width, zone=zone)


@cache
def clock(zone: str) -> npt.NDArray[np.int64]:
    """What a clock in the zone shows at each step from three days before the year to three after it, in minutes since
    the year's beginning on that clock."""
    there, origin = ZoneInfo(zone), YEAR.replace(tzinfo=None)
    moments = (YEAR + step * STEP for step in range(-3 * 288, WINDOWS + 3 * 288))
    return np.array([(moment.astimezone(there).replace(tzinfo=None) - origin) // MINUTE for moment in moments])


def oracle(start: str, end: str, days: Any, zone: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """[WINDOWS] where a minimum holds and where a ceiling does, by looking at the clock in every window.

    The clock shows a time of the occurrence in some windows. The minimum holds from the first of them to the last; the
    ceiling in those before which the clock never showed the end, and after which it never shows less than the start.
    """
    shown, ahead = clock(zone), 3 * 288
    minimum, ceiling = (np.zeros(len(shown), dtype=bool) for _ in range(2))
    first, last = (int(text[:2]) * 60 + int(text[3:]) for text in (start, end))
    length = (last - first - 1) % 1440 + 1
    wanted = {"all": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}.get(str(days), days)
    for day in range(-2, 367):
        if DAYS[(date(2026, 1, 1) + day * DAY).weekday()] not in wanted:
            continue
        near = slice(max(ahead + (day - 2) * 288, 0), ahead + (day + 3) * 288)
        since = shown[near] - day * 1440 - first
        inside = np.flatnonzero((since >= 0) & (since < length))
        if not inside.size:
            change = int(np.argmax(since >= length))
            inside = np.arange(change, change + length // 5)
            minimum[near][inside] = True
            continue
        minimum[near][inside[0] : inside[-1] + 1] = True
        started = np.flatnonzero(since < 0).max() if (since < 0).any() else -1
        over = np.flatnonzero(since >= length).min() if (since >= length).any() else len(since)
        ceiling[near][inside[(inside > started) & (inside < over)]] = True
    return minimum[ahead:-ahead], ceiling[ahead:-ahead]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("start", "end", "days"), HOURS, ids=str)
def test_a_year_is_as_zoneinfo_says_window_by_window(zone: str, start: str, end: str, days: Any) -> None:
    minimum, ceiling = oracle(start, end, days, zone)
    made = limits_of(entry(start, end, days=days, minimum=3, ceiling=7), start=YEAR, windows=WINDOWS, zone=zone)
    np.testing.assert_array_equal(made.minimums, np.where(minimum, 3, 0))
    np.testing.assert_array_equal(made.ceilings, np.where(ceiling, 7, MOST_REPLICAS))
    assert minimum.any()
    assert made.minimum_rules == ["hours" if there else "" for there in minimum]


def test_the_year_has_both_changes_of_each_zone_that_has_them() -> None:
    """Or the test above would show less than it says."""
    changes = {zone: np.flatnonzero(np.diff(clock(zone)) != 5).size for zone in ZONES}
    assert changes == {zone: 0 if zone == "Asia/Kolkata" else 2 for zone in ZONES}
    assert set(np.diff(clock("Australia/Lord_Howe"))) == {5, 35, -25}


BERLIN = [
    # 29 March 2026: at 01:00 UTC the clock goes from 02:00 to 03:00.
    pytest.param("2026-03-28", "22:00", "06:00", ("21:00", "04:00"), ("21:00", "04:00"), id="seven hours of eight"),
    pytest.param("2026-03-29", "02:30", "04:00", ("01:00", "02:00"), ("01:00", "02:00"), id="starts while skipped"),
    pytest.param("2026-03-29", "01:00", "02:30", ("00:00", "01:00"), ("00:00", "01:00"), id="ends while skipped"),
    pytest.param("2026-03-29", "02:10", "02:40", ("01:00", "01:30"), None, id="all of it skipped"),
    # 25 October 2026: at 01:00 UTC the clock goes from 03:00 back to 02:00.
    pytest.param("2026-10-24", "22:00", "06:00", ("20:00", "05:00"), ("20:00", "05:00"), id="nine hours for eight"),
    pytest.param("2026-10-25", "02:30", "04:00", ("00:30", "03:00"), ("01:30", "03:00"), id="starts twice"),
    pytest.param("2026-10-25", "01:00", "02:30", ("23:00", "01:30"), ("23:00", "00:30"), id="ends twice"),
    pytest.param("2026-10-25", "02:10", "02:40", ("00:10", "01:40"), None, id="all of it twice"),
    pytest.param("2026-10-25", "01:00", "02:00", ("23:00", "00:00"), ("23:00", "00:00"), id="over as it comes twice"),
    pytest.param(
        "2026-10-25", "03:00", "04:00", ("02:00", "03:00"), ("02:00", "03:00"), id="starts once it came twice"
    ),
]


@pytest.mark.parametrize(("day", "start", "end", "wide", "narrow"), BERLIN)
def test_clock_changes_cost_no_capacity(day: str, start: str, end: str, wide: Any, narrow: Any) -> None:
    """In UTC by hand: a minimum gets the longer reading, a ceiling the shorter."""
    one = entry(start, end, zone="Europe/Berlin", first=day, last=day, minimum=1, ceiling=1)
    noon = datetime.fromisoformat(f"{day}T12:00+00:00")
    for times, is_wide in ((wide, True), (narrow, False)):
        found = one.between(noon - DAY, noon + DAY, zone="UTC", wide=is_wide)
        assert [tuple(f"{moment:%H:%M}" for moment in window) for window in found] == ([times] if times else [])


def test_a_minimum_covers_windows_that_it_touches_and_a_ceiling_those_that_it_fills() -> None:
    made = limits_of(
        entry("08:03", "08:16", minimum=2, ceiling=5), start=YEAR + timedelta(hours=7, minutes=55), windows=6
    )
    #                                     07:55  08:00  08:05  08:10  08:15  08:20
    assert made.minimums.tolist() == [0, 2, 2, 2, 2, 0]
    assert (made.ceilings < MOST_REPLICAS).tolist() == [False, False, True, True, False, False]


def test_replicas_are_there_when_a_minimum_starts() -> None:
    """A lead window of 3 steps: what is asked for at 07:50 serves at 08:00."""
    made = limits_of(
        entry("08:00", "08:10", minimum=4), start=YEAR + timedelta(hours=7, minutes=40), windows=7, width=3
    )
    assert made.minimums.tolist() == [0, 0, 4, 4, 4, 4, 0]


def test_overlaps_take_the_greatest_minimum_and_the_least_ceiling_and_name_the_first() -> None:
    made = limits_of(
        entry("00:00", "00:20", name="night", minimum=3, ceiling=9),
        entry("00:05", "00:15", name="report", minimum=5),
        entry("00:10", "00:25", name="backup", minimum=5, ceiling=7),
        start=YEAR,
        windows=6,
    )
    assert made.minimums.tolist() == [3, 5, 5, 5, 5, 0]
    assert made.minimum_rules == ["night", "report", "report", "backup", "backup", ""]
    assert made.ceilings.tolist() == [9, 9, 7, 7, 7, MOST_REPLICAS]
    assert made.ceiling_rules == ["night", "night", "backup", "backup", "backup", ""]


def test_a_minimum_goes_before_the_ceiling_of_hours_and_maintenance_before_a_minimum() -> None:
    quiet = entry("00:00", "00:15", name="quiet", ceiling=4)
    busy = entry("00:05", "00:20", name="busy", minimum=6)
    works = entry("00:10", "00:20", name="works", kind="maintenance", ceiling=1)
    made = limits_of(quiet, busy, works, start=YEAR, windows=4)
    assert made.minimums.tolist() == [0, 6, 6, 6]
    assert made.ceilings.tolist() == [4, 6, 1, 1]
    assert made.ceiling_rules == ["quiet", "quiet, not below busy", "works", "works"]


def test_dates_are_of_the_start_on_the_clock_of_the_zone() -> None:
    """From 22:00 of 3 March in Los Angeles, 06:00 UTC of the 4th, to 02:00 of the 4th there, 10:00 UTC."""
    one = entry("22:00", "02:00", zone="America/Los_Angeles", first="2026-03-03", last="2026-03-03", minimum=1)
    made = limits_of(one, start=datetime(2026, 3, 2, tzinfo=UTC), windows=4 * 288, zone="Asia/Tokyo")
    at = np.flatnonzero(made.minimums)
    assert (at[0], at[-1] + 1) == (2 * 288 + 6 * 12, 2 * 288 + 10 * 12)


def test_a_pool_without_a_calendar_has_no_limits() -> None:
    made = limits_of(start=YEAR, windows=3, width=2)
    assert made.minimums.tolist() == [0, 0, 0]
    assert made.ceilings.tolist() == [MOST_REPLICAS] * 3
    assert made.minimum_rules == made.ceiling_rules == ["", "", ""]


QUARTERS = st.integers(0, 95).map(lambda quarter: f"{quarter // 4:02}:{quarter % 4 * 15:02}")


@given(
    times=st.tuples(QUARTERS, QUARTERS).filter(lambda pair: pair[0] != pair[1]),
    zone=st.sampled_from(ZONES),
    offset=st.integers(0, 364 * 288),
    width=st.integers(1, 30),
)
def test_any_stretch_is_the_same_part_of_the_year(times: tuple[str, str], zone: str, offset: int, width: int) -> None:
    """Where a plan starts does not matter, and a longer lead never lowers a minimum nor moves a ceiling."""
    one = entry(*times, minimum=2, ceiling=2)
    start = YEAR + offset * STEP
    whole = limits_of(one, start=start - 2 * DAY, windows=5 * 288, width=1, zone=zone)
    part = limits_of(one, start=start, windows=288, width=width, zone=zone)
    here = slice(2 * 288, 3 * 288)
    assert (part.minimums >= whole.minimums[here]).all()
    expected = [whole.minimums[2 * 288 + window : 2 * 288 + window + width].max() for window in range(288)]
    assert part.minimums.tolist() == expected
    kept = np.maximum(whole.ceilings[here], np.where(whole.ceilings[here] < MOST_REPLICAS, part.minimums, 0))
    assert part.ceilings.tolist() == kept.tolist()


CALENDAR = [
    {"name": "morning", "start": "09:15", "end": "09:30", "minimum": 6},
    {"name": "quiet", "start": "09:00", "end": "09:25", "ceiling": 4},
    {"name": "works", "kind": "maintenance", "start": "09:30", "end": "09:40", "ceiling": 1},
]


def _planned(config: Any, forecasts: Any, now: datetime, published: Any = None) -> tuple[list[int], list[Reason]]:
    made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=published)
    reasons = [Reason.model_validate_json(reason) for reason in made.floors["reason"]]
    floors = made.floors["min_replicas"].to_list()
    assert [recompute(reason, config.pools["main"]) for reason in reasons] == floors
    return floors, reasons


def test_a_plan_follows_the_calendar_and_says_so(make_config: Any, make_forecasts: Any, now: datetime) -> None:
    """50 tokens per second need 5 replicas, 1 at the least; the lead is 10 minutes, 2 steps.

    From 08:50 on, by hand: 08:50 to 09:00 nothing holds: 5. 09:00: quiet allows 4, and nothing of the morning lies
    within the lead until 09:05: 4, 1 short. 09:05 to 09:30 the morning asks for 6 and goes before quiet: 6. 09:30 and
    09:35: works leaves 1, 4 short. From 09:40 on 5 again.
    """
    config = make_config(bounds={"min": 1, "max": 100}, calendar=CALENDAR)
    floors, reasons = _planned(config, make_forecasts({"chat": [50.0] * 14}), now)
    assert floors == [5, 5, 4, 6, 6, 6, 6, 6, 1, 1, 5, 5]
    assert [reason.shortfall_replicas for reason in reasons] == [0, 0, 1, 0, 0, 0, 0, 0, 4, 4, 0, 0]
    assert [reason.clamped for reason in reasons[:4]] == [None, None, "ceiling", None]
    moved = [[(move.rule, move.name, move.before, move.after) for move in reason.adjustments] for reason in reasons]
    assert moved[2] == [("ceiling", "quiet", 5, 4)]
    assert moved[3] == [("scheduled_minimum", "morning", 5, 6)]
    assert moved[8] == [("ceiling", "works", 5, 1)]


def test_a_ceiling_of_hours_says_the_minimum_that_lifts_it(
    make_config: Any, make_forecasts: Any, now: datetime
) -> None:
    """90 tokens per second need 9: quiet would leave 4, the morning's 6 lift that."""
    config = make_config(bounds={"min": 1, "max": 100}, calendar=CALENDAR)
    floors, reasons = _planned(config, make_forecasts({"chat": [90.0] * 14}), now)
    assert floors[3] == 6
    (move,) = reasons[3].adjustments
    assert (move.name, move.before, move.after) == ("quiet, not below morning", 9, 6)
    assert reasons[3].shortfall_replicas == 3


def test_maintenance_goes_before_bounds_min_and_what_was_published(
    make_config: Any, make_forecasts: Any, make_schedule: Any, now: datetime
) -> None:
    """Nor do dwell and a slow descent hold it up; after it the floor is at once what is needed."""
    shape = {"step_down": 1, "every": "10m", "dwell": "30m"}
    works = [{"name": "works", "kind": "maintenance", "start": "09:00", "end": "09:10", "ceiling": 0}]
    config = make_config(bounds={"min": 2, "max": 100}, calendar=works, shape=shape)
    published = make_schedule([8] * 13, start=now - STEP)
    floors, reasons = _planned(config, make_forecasts({"chat": [80.0] * 14}), now, published)
    assert floors == [8, 8, 0, 0, *[8] * 8]
    assert reasons[2].shortfall_replicas == 8
