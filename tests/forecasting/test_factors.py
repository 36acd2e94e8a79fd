"""What past events and holidays teach, from what was over by the cutoff alone."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.event import Window
from forecasting import factors
from forecasting.factors import Rates, as_rest_day, learn, looked_at, merged, microseconds, touched, within
from forecasting.series import FloatArray

HOUR, DAY, WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
HOURS = 24 * 7 * 10


def rates(values: FloatArray, start: datetime = MONDAY) -> Rates:
    return Rates(HOUR, microseconds(start) + np.arange(len(values)) * 3_600_000_000, np.asarray(values, dtype=float))


def weekly() -> FloatArray:
    """Another rate at each hour of the week, the same each week."""
    return np.resize(100 + 10 * np.random.default_rng(1).permutation(168), HOURS).astype(float)


def window(day: int, hours: int = 4, start: datetime = MONDAY) -> Window:
    begin = start + timedelta(days=day, hours=9)
    return Window(begin, begin + hours * HOUR)


def with_factors(*pairs: tuple[Window, float]) -> FloatArray:
    values = weekly()
    for (begin, end), factor in pairs:
        values[(begin - MONDAY) // HOUR : (end - MONDAY) // HOUR] *= factor
    return values


def learned(values: FloatArray, occurrences: list[Window], cutoff: datetime, *, zone: str = "UTC") -> factors.Factor:
    return learn(rates(values), occurrences=occurrences, avoid=[], zone=zone, cutoff=cutoff)


def test_the_factor_is_the_median_of_occurrences_against_the_same_hours_of_other_weeks() -> None:
    past = [(window(15), 1.4), (window(30), 1.6), (window(45), 9.0)]
    factor = learned(with_factors(*past), [each for each, _ in past], MONDAY + 70 * DAY)
    assert factor.value == pytest.approx(1.6)
    assert factor.known == 3


@pytest.mark.parametrize("known", [0, 1])
def test_fewer_than_two_occurrences_teach_nothing(known: int) -> None:
    past = [window(15), window(30)][:known]
    assert learned(with_factors(), past, MONDAY + 70 * DAY) == factors.Factor(None, known)


def test_an_occurrence_that_is_not_over_at_the_cutoff_is_not_known() -> None:
    both = [window(15), window(30)]
    assert learned(weekly(), both, both[1].end).known == 2
    assert learned(weekly(), both, both[1].end - HOUR).known == 1


@pytest.mark.parametrize(("factor", "value"), [(1000.0, 10.0), (0.0, 0.1)])
def test_no_factor_leaves_a_tenth_to_ten(factor: float, value: float) -> None:
    past = [(window(15), factor), (window(30), factor)]
    assert learned(with_factors(*past), [each for each, _ in past], MONDAY + 70 * DAY).value == value


def test_an_occurrence_that_was_hardly_observed_does_not_count() -> None:
    values = with_factors()
    values[(window(15).start - MONDAY) // HOUR :][:3] = np.nan
    assert learned(values, [window(15), window(30)], MONDAY + 70 * DAY).known == 1


def test_ordinary_weeks_are_those_without_any_event() -> None:
    """Another event made six of the eight weeks around each occurrence ten times as high."""
    past = [window(28), window(31)]
    around = [window(day + 7 * week) for day in (28, 31) for week in (-3, -2, -1, 1, 2, 3)]
    values = rates(with_factors(*((each, 1.5) for each in past), *((each, 10.0) for each in around)))
    options = {"occurrences": past, "zone": "UTC", "cutoff": MONDAY + 70 * DAY}
    assert learn(values, avoid=around, **options).value == pytest.approx(1.5)  # type: ignore[arg-type]
    assert learn(values, avoid=[], **options).value == pytest.approx(0.15)  # type: ignore[arg-type]
    everywhere = [window(day) for day in range(70)]
    assert learn(values, avoid=everywhere, **options).known == 0  # type: ignore[arg-type]


def test_the_same_time_is_the_same_on_the_clock_across_a_change() -> None:
    """A service that follows clocks in Berlin: 9 to 17 is busy. Events on the Mondays beside the change of 29 March."""
    times = microseconds(MONDAY) + np.arange(HOURS) * 3_600_000_000
    summer = times >= microseconds(datetime(2026, 3, 29, 1, tzinfo=UTC))
    clock = (times // 3_600_000_000 + np.where(summer, 2, 1)) % 24
    values = np.where((clock >= 9) & (clock < 17), 1000.0, 10.0)
    before = Window(datetime(2026, 3, 23, 8, tzinfo=UTC), datetime(2026, 3, 23, 9, tzinfo=UTC))
    after = Window(datetime(2026, 3, 30, 7, tzinfo=UTC), datetime(2026, 3, 30, 8, tzinfo=UTC))
    for each in (before, after):
        values[(each.start - MONDAY) // HOUR] *= 2
    assert learned(values, [before, after], MONDAY + 70 * DAY, zone="Europe/Berlin").value == pytest.approx(2)


@given(cut=st.integers(0, HOURS), seed=st.integers(0, 99))
def test_nothing_after_the_cutoff_is_looked_at(cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.lognormal(size=HOURS)
    other = np.concatenate([values[:cut], rng.lognormal(size=HOURS - cut) * 50])
    cutoff = MONDAY + cut * HOUR
    past = [window(10), window(20), window(31), window(52)]
    assert learned(values, past, cutoff) == learned(other, past, cutoff)
    days = {"weekday": 2, "rest_day": 6, "avoid": past, "zone": "Europe/Berlin", "cutoff": cutoff}
    assert as_rest_day(rates(values), **days) == as_rest_day(rates(other), **days)  # type: ignore[arg-type]


def test_a_rest_day_against_a_weekday() -> None:
    """Sundays at a quarter of Tuesdays, in the days of New York."""
    values = np.repeat(np.resize([400.0, 400, 400, 400, 400, 200, 100], 70), 24)
    series = rates(values, MONDAY + 5 * HOUR)  # midnight in New York
    days = {"avoid": [], "zone": "America/New_York", "cutoff": datetime(2026, 3, 8, tzinfo=UTC)}
    assert as_rest_day(series, weekday=1, rest_day=6, **days) is None, "one week"  # type: ignore[arg-type]
    days["cutoff"] = datetime(2026, 3, 24, tzinfo=UTC)
    assert as_rest_day(series, weekday=1, rest_day=6, **days) == pytest.approx(0.25, rel=0.2)  # type: ignore[arg-type]
    assert as_rest_day(rates(values * 0), weekday=1, rest_day=6, **days) is None  # type: ignore[arg-type]


def test_what_learning_looks_at_covers_all_it_needs_and_ends_before_what_is_known() -> None:
    past = [window(30), window(37)]
    before = MONDAY + 50 * DAY
    spans = looked_at(past, before=before)
    assert all(left.end < right.start for left, right in pairwise(spans))
    assert max(span.end for span in spans) <= before
    values = with_factors((past[0], 1.5), (past[1], 2.5))
    whole = rates(values)
    kept = within(whole.times, HOUR, spans) | (whole.times >= microseconds(before))
    part = Rates(HOUR, whole.times[kept], whole.values[kept])
    options = {"occurrences": past, "avoid": [], "zone": "Europe/Berlin", "cutoff": MONDAY + 70 * DAY}
    assert learn(part, **options) == learn(whole, **options)  # type: ignore[arg-type]
    assert kept.sum() < len(values) / 2


moments = st.integers(0, 400).map(lambda quarter: MONDAY + quarter * timedelta(minutes=15))
windows = st.lists(
    st.tuples(moments, moments).filter(lambda pair: pair[0] < pair[1]).map(lambda p: Window(*p)), max_size=5
)


@given(windows=windows)
def test_steps_touched_and_within_are_those_of_a_plain_loop(windows: list[Window]) -> None:
    times = rates(np.zeros(110)).times
    starts = [MONDAY + place * HOUR for place in range(110)]
    quarters = [timedelta(minutes=15) * place for place in range(4)]

    def inside(start: datetime) -> list[bool]:
        return [any(w.start <= start + quarter < w.end for w in windows) for quarter in quarters]

    assert touched(times, HOUR, windows).tolist() == [any(inside(start)) for start in starts]
    assert within(times, HOUR, windows).tolist() == [all(inside(start)) for start in starts]
    assert merged(merged(windows)) == merged(windows)
