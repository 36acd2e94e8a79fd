"""Numbers and times as written, and file names from any class name."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import text


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(text).failed == 0


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 10, 25, 0, 30, tzinfo=UTC), "Sun 25 Oct 00:30 UTC (02:30 CEST)"),
        (datetime(2026, 10, 25, 1, 30, tzinfo=UTC), "Sun 25 Oct 01:30 UTC (02:30 CET)"),
    ],
)
def test_local_time_tells_the_hour_that_comes_twice_apart(moment: datetime, expected: str) -> None:
    assert text.when(moment, "Europe/Berlin").replace("\N{NO-BREAK SPACE}", " ") == expected


def test_utc_is_not_written_twice() -> None:
    assert text.when(datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "UTC", year=True) == "Fri 2 Jan 2026 03:04 UTC"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_what_is_not_known_is_not_zero(missing: float | None) -> None:
    assert text.number(missing) == text.percent(missing) == text.UNKNOWN


def test_horizons_are_in_order_of_reach() -> None:
    assert sorted(["48h", "24h", "lead", "6h"], key=text.horizon_order) == ["lead", "6h", "24h", "48h"]


@given(st.text(), st.text())
def test_page_names_are_safe_and_differ_where_names_do(one: str, other: str) -> None:
    page = text.page_name("class", one)
    assert set(page) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert len(page) < 100
    assert (page == text.page_name("class", other)) == (one == other)
