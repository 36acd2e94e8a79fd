"""The planted events are where they are said to be, in the calendar and in the data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.demo.features import PlantedFeature, planted_features

DAY = timedelta(days=1)
WEEK = timedelta(days=7)


def only(features: tuple[PlantedFeature, ...], kind: str) -> PlantedFeature:
    (found,) = [each for each in features if each.kind == kind]
    return found


def rows(minutes: pl.DataFrame, name: str | None, start: datetime, end: datetime) -> pl.DataFrame:
    inside = minutes.filter(pl.col("minute_start") >= start, pl.col("minute_start") < end)
    return inside if name is None else inside.filter(pl.col("workload_class") == name)


def mean_rate(minutes: pl.DataFrame, name: str | None, start: datetime, end: datetime) -> float:
    return rows(minutes, name, start, end)["requests"].to_numpy().mean()


@given(
    minute=st.integers(0, 6 * 365 * 24 * 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_events_keep_their_place_before_any_end(minute: int, seed: int) -> None:
    """Launch in the third week, level shift on day 17, outage in the last week, all inside, workdays where it says."""
    end = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    start = end - 28 * DAY
    features = planted_features(end=end, days=28, rng=np.random.default_rng(seed))
    assert all(start <= each.start < each.end <= end for each in features)
    assert [each.start for each in features] == sorted(each.start for each in features)
    spike, shift, outage = (only(features, kind) for kind in ("spike", "level_shift", "outage"))
    assert 14 * DAY <= spike.start - start < 21 * DAY
    assert 16 * DAY <= shift.start - start < 18 * DAY
    assert 21 * DAY <= outage.start - start < 25 * DAY
    assert shift.end == end
    assert spike.start.weekday() < 5
    assert outage.start.weekday() < 5
    assert len([each for each in features if each.kind == "gap"]) == 2


@pytest.mark.parametrize(
    ("days", "kinds"),
    [(1, {"job_run"}), (7, {"job_run", "outage", "gap"}), (9, {"job_run", "outage", "gap"})],
)
def test_a_short_history_leaves_out_what_came_before_it(end: datetime, days: int, kinds: set[str]) -> None:
    found = planted_features(end=end, days=days, rng=np.random.default_rng(7))
    assert {each.kind for each in found} == kinds


def test_a_gap_has_no_rows_and_only_in_its_class(minutes: pl.DataFrame, features: tuple[PlantedFeature, ...]) -> None:
    gaps = [each for each in features if each.kind == "gap"]
    missing = 0
    for each in gaps:
        length = (each.end - each.start) // timedelta(minutes=1)
        missing += length
        assert rows(minutes, each.workload_class, each.start, each.end).is_empty()
        assert rows(minutes, None, each.start, each.end).height == 5 * length
    assert minutes.height == 6 * 28 * 24 * 60 - missing


def test_the_outage_reads_zero_in_every_class_at_a_busy_time(
    minutes: pl.DataFrame, features: tuple[PlantedFeature, ...]
) -> None:
    outage = only(features, "outage")
    inside = rows(minutes, None, outage.start, outage.end)
    assert inside.height == 6 * 50
    assert inside.select(pl.sum("requests", "tokens_in", "tokens_out")).row(0) == (0, 0, 0)
    hour = timedelta(hours=1)
    for name in ("chat", "code-generation", "summarization", "document-analysis"):
        before = mean_rate(minutes, name, outage.start - hour, outage.start)
        after = mean_rate(minutes, name, outage.end, outage.end + hour)
        usual = mean_rate(minutes, name, outage.start - WEEK, outage.start)
        assert min(before, after) > 1.2 * usual
    before_and_after = pl.concat(
        [
            rows(minutes, "chat", outage.start - hour, outage.start),
            rows(minutes, "chat", outage.end, outage.end + hour),
        ]
    )
    assert before_and_after["requests"].min() > 0


def test_the_launch_doubles_chat_and_fades(minutes: pl.DataFrame, features: tuple[PlantedFeature, ...]) -> None:
    """Against the same time a week before: about 2 in the first 20 minutes, 1.25 in the fifth hour, 1 after."""
    spike = only(features, "spike")

    def ratio(start: datetime, end: datetime) -> float:
        return mean_rate(minutes, "chat", start, end) / mean_rate(minutes, "chat", start - WEEK, end - WEEK)

    assert spike.workload_class == "chat"
    assert 1.6 < ratio(spike.start, spike.start + timedelta(minutes=20)) < 2.4
    assert 1.0 < ratio(spike.start + timedelta(hours=4), spike.start + timedelta(hours=5)) < 1.55
    assert 0.8 < ratio(spike.end, spike.end + timedelta(hours=2)) < 1.25


def test_the_level_shift_lasts(minutes: pl.DataFrame, features: tuple[PlantedFeature, ...]) -> None:
    """Whole weeks after it stand 1.45 times as high as whole weeks before it, times 2 % of growth."""
    shift = only(features, "level_shift")
    assert shift.workload_class == "summarization"

    def ratio(name: str) -> float:
        before = mean_rate(minutes, name, shift.start - WEEK, shift.start)
        return mean_rate(minutes, name, shift.start, shift.start + WEEK) / before

    assert 1.3 < ratio("summarization") < 1.65
    assert 0.85 < ratio("document-analysis") < 1.2


def test_the_nightly_job_comes_and_goes(minutes: pl.DataFrame, features: tuple[PlantedFeature, ...]) -> None:
    """Busy in its runs, an observed zero in every other minute, absent on some nights and never at the same minute."""
    runs = [each for each in features if each.kind == "job_run"]
    assert 18 <= len(runs) <= 26
    assert len({(each.start.hour, each.start.minute) for each in runs}) > len(runs) / 2
    batch = minutes.filter(pl.col("workload_class") == "batch")
    assert batch.height == 28 * 24 * 60
    running = pl.any_horizontal(
        [(pl.col("minute_start") >= each.start) & (pl.col("minute_start") < each.end) for each in runs]
    )
    assert batch.filter(running)["requests"].min() > 0
    assert batch.filter(~running).select(pl.sum("requests", "tokens_in", "tokens_out")).row(0) == (0, 0, 0)
