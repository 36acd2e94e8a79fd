"""Times and durations at the edges."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.units import ceil_to_step, floor_to_step, format_duration, format_time, parse_duration, parse_time

STEPS = st.sampled_from([timedelta(minutes=m) for m in (1, 5, 10, 15, 60)])
MOMENTS = st.datetimes(datetime(1999, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172800), ("500ms", 0.5), ("1.5h", 5400)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["5", "", "m", "5 minutes", "-5m", "5m later", 300])
def test_a_duration_without_a_known_unit_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="write a number and a unit"):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_a_duration_is_written_the_way_it_is_read(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "500ms"), (9.25, "9s250ms"), (12.4, "12s"), (0, "0s"), (59.6, "1m")]
)
def test_below_ten_seconds_milliseconds_are_kept(seconds: float, text: str) -> None:
    assert format_duration(seconds) == format_duration(timedelta(seconds=seconds)) == text


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_converted() -> None:
    assert parse_time("2026-11-30T08:55") == datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
    assert parse_time("2026-11-30 09:55+01:00") == datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
    assert format_time(parse_time("2026-11-30 09:55+01:00")) == "2026-11-30T08:55:00Z"


def test_what_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="2026-11-30T08:55"):
        parse_time("yesterday")


@given(MOMENTS, STEPS)
def test_every_moment_lies_in_its_step(moment: datetime, step: timedelta) -> None:
    start = floor_to_step(moment, step)
    assert start <= moment < start + step
    assert floor_to_step(start, step) == ceil_to_step(start, step) == start
    assert ceil_to_step(moment, step) - start in (timedelta(0), step)
