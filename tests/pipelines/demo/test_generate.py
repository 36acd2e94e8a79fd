"""The demo traffic is deterministic, well formed, and shaped like an LLM fleet's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import TIME
from floorcast.errors import DataError
from pipelines.demo.features import PlantedFeature
from pipelines.demo.fleet import FLEET
from pipelines.demo.generate import generate_minutes


def hourly(minutes: pl.DataFrame, name: str) -> pl.DataFrame:
    """Mean requests per minute by UTC hour, on weekdays and at weekends."""
    time = pl.col("minute_start").dt
    return (
        minutes.filter(pl.col("workload_class") == name)
        .group_by(time.hour().alias("hour"), (time.weekday() >= 6).alias("weekend"))
        .agg(pl.mean("requests"))
    )


def test_the_same_seed_gives_the_same_frame_and_another_seed_another(end: datetime, minutes: pl.DataFrame) -> None:
    assert generate_minutes(end=end, rng=np.random.default_rng(7)).equals(minutes)
    assert not generate_minutes(end=end, rng=np.random.default_rng(8)).equals(minutes)


def test_the_zone_of_the_end_does_not_matter(end: datetime) -> None:
    tokyo = end.astimezone(timezone(timedelta(hours=9)))
    same = [generate_minutes(end=each, days=2, rng=np.random.default_rng(1)) for each in (end, tokyo)]
    assert same[0].equals(same[1])


@settings(max_examples=15, deadline=None)
@given(
    minute=st.integers(0, 6 * 365 * 24 * 60),
    days=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_history_is_well_formed(minute: int, days: int, seed: int) -> None:
    """Six classes up to the end, unique sorted minutes, counts not negative, tokens exactly where requests are."""
    end = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    frame = generate_minutes(end=end, days=days, rng=np.random.default_rng(seed))
    counts = ("requests", "tokens_in", "tokens_out")
    assert frame.schema == {
        "minute_start": TIME,
        "workload_class": pl.String(),
        **dict.fromkeys(counts, pl.Int64()),
    }
    assert frame.null_count().sum_horizontal().item() == 0
    assert frame.select("workload_class", "minute_start").equals(
        frame.select("workload_class", "minute_start").unique().sort("workload_class", "minute_start")
    )
    assert set(frame["workload_class"]) == set(FLEET)
    assert frame["minute_start"].min() == end - timedelta(days=days)
    assert frame["minute_start"].max() == end - timedelta(minutes=1)
    assert frame.select(pl.min_horizontal(pl.min(*counts))).item() >= 0
    assert frame.filter(
        (pl.col("tokens_in") < pl.col("requests"))
        | (pl.col("tokens_out") < pl.col("requests"))
        | ((pl.col("requests") == 0) & (pl.col("tokens_in") + pl.col("tokens_out") > 0))
    ).is_empty()
    assert frame["tokens_in"].max() < 50_000_000


@pytest.mark.parametrize(
    ("end", "days"),
    [
        (datetime(2026, 11, 30, 8, 50), 28),  # noqa: DTZ001
        (datetime(2026, 11, 30, 8, 50, 1, tzinfo=UTC), 28),
        (datetime(2026, 11, 30, 8, 50, 0, 1, tzinfo=UTC), 28),
        (datetime(2026, 11, 30, 8, 50, tzinfo=UTC), 0),
    ],
)
def test_an_end_off_the_grid_or_no_days_are_refused(end: datetime, days: int) -> None:
    with pytest.raises(DataError, match=r"demo history: cannot generate .*\n.*whole minute with a time zone"):
        generate_minutes(end=end, days=days, rng=np.random.default_rng(7))


@pytest.mark.parametrize(
    ("name", "day_over_night", "week_over_weekend"),
    [
        ("chat", (3, 8), (1.4, 2.2)),
        ("code-generation", (6, 25), (3.5, 8)),
        ("document-analysis", (5, 30), (4, 9)),
        ("summarization", (2.5, 8), (1.8, 4)),
        ("agent", (1.2, 2), (1.2, 2)),
    ],
)
def test_days_and_weeks_have_their_shape(
    minutes: pl.DataFrame, name: str, day_over_night: tuple[float, float], week_over_weekend: tuple[float, float]
) -> None:
    table = hourly(minutes, name)
    weekday = table.filter(~pl.col("weekend"))["requests"].to_numpy()
    weekend = table.filter(pl.col("weekend"))["requests"].to_numpy()
    assert day_over_night[0] < weekday.max() / weekday.min() < day_over_night[1]
    assert week_over_weekend[0] < weekday.mean() / weekend.mean() < week_over_weekend[1]


def test_chat_has_a_european_and_an_american_peak(minutes: pl.DataFrame) -> None:
    """On weekdays a peak from 8 to 10 UTC, a dip, and a second peak from 14 to 18 UTC while Europe goes home."""
    rate = dict(hourly(minutes, "chat").filter(~pl.col("weekend")).select("hour", "requests").iter_rows())
    first, second = max(rate[h] for h in (8, 9)), max(rate[h] for h in range(14, 18))
    assert rate[11] < 0.95 * min(first, second)
    assert rate[3] < 0.45 * first
    code = dict(hourly(minutes, "code-generation").filter(~pl.col("weekend")).select("hour", "requests").iter_rows())
    assert rate[19] / second > 2 * code[19] / max(code.values())


def test_agents_burst_on_the_hour(minutes: pl.DataFrame) -> None:
    agent = minutes.filter(pl.col("workload_class") == "agent")
    at = dict(agent.group_by(pl.col("minute_start").dt.minute()).agg(pl.mean("requests")).iter_rows())
    assert 1.6 < at[0] / np.mean([at[m] for m in range(40, 60)]) < 2.2


def test_local_clocks_move_with_daylight_saving() -> None:
    """Code generation at 06:00 UTC, a steep hour, is later in the working day in summer time than in winter time."""
    rates = []
    for month in (1, 7):
        end = datetime(2026, month, 24, tzinfo=UTC)
        table = hourly(generate_minutes(end=end, days=14, rng=np.random.default_rng(7)), "code-generation")
        rates.append(table.filter(pl.col("hour") == 6, ~pl.col("weekend"))["requests"].item())
    assert rates[1] > 1.4 * rates[0]


@pytest.mark.parametrize("name", ["chat", "code-generation", "document-analysis", "summarization"])
def test_traffic_grows_by_a_few_percent_a_week(end: datetime, name: str) -> None:
    """Over 8 weeks the last two stand above the first two, as compounded (a level shift comes on top)."""
    frame = generate_minutes(end=end, days=56, rng=np.random.default_rng(7)).filter(pl.col("workload_class") == name)
    weeks = [timedelta(weeks=count) for count in (8, 6, 2, 0)]
    first, last = (
        frame.filter(pl.col("minute_start") >= end - a, pl.col("minute_start") < end - b)["requests"].to_numpy().mean()
        for a, b in (weeks[:2], weeks[2:])
    )
    expected = (1 + FLEET[name].growth_per_week) ** 6 * (1.45 * 0.9 if name == "summarization" else 1)
    assert 0.9 < last / first / expected < 1.12


@pytest.mark.parametrize("name", sorted(FLEET))
def test_minutes_are_burstier_than_poisson(
    minutes: pl.DataFrame, features: tuple[PlantedFeature, ...], name: str
) -> None:
    """The variance of a count over its mean is at least the stated cv^2, taken from neighbouring minutes.

    Half the squared difference of two minutes estimates the variance, since the rate hardly moves between them;
    pairs across the edge of an event are kept out.
    """
    edges = [edge for each in features for edge in (each.start, each.end)]
    ratio = (
        minutes.filter(pl.col("workload_class") == name)
        .with_columns(pl.col("requests").diff().pow(2).alias("squared"))
        .filter(~pl.col("minute_start").is_in(edges))
        .select(pl.sum("squared") / 2 / pl.sum("requests"))
        .item()
    )
    stated = FLEET[name].interarrival_cv ** 2
    assert stated > 1.2
    assert 0.9 * stated < ratio < 2.1 * stated


@pytest.mark.parametrize("name", ["chat", "code-generation"])
def test_bursts_last_minutes(minutes: pl.DataFrame, features: tuple[PlantedFeature, ...], name: str) -> None:
    """In working hours, what is left beside the running hour correlates at two minutes, and hardly at thirty."""
    eventful = [each.start.date() for each in features if each.kind in ("spike", "outage", "gap")]
    residual = (
        minutes.filter(pl.col("workload_class") == name)
        .with_columns(pl.col("requests") / pl.col("requests").rolling_mean(61, center=True) - 1)
        .filter(pl.col("minute_start").dt.weekday() < 6, ~pl.col("minute_start").dt.date().is_in(eventful))
        .filter(pl.col("minute_start").dt.hour().is_between(9, 14))
    )

    def correlation(lag: int) -> float:
        day = pl.col("minute_start").dt.date()
        pairs = residual.with_columns(pl.col("requests").shift(lag).over(day).alias("earlier")).drop_nulls()
        return pairs.select(pl.corr("requests", "earlier")).item()

    assert correlation(2) > 0.3
    assert abs(correlation(30)) < 0.3


@pytest.mark.parametrize("name", sorted(FLEET))
def test_token_lengths_have_their_means(minutes: pl.DataFrame, name: str) -> None:
    totals = minutes.filter(pl.col("workload_class") == name).select(pl.sum("requests", "tokens_in", "tokens_out"))
    requests, tokens_in, tokens_out = totals.row(0)
    assert tokens_in / requests == pytest.approx(FLEET[name].tokens_in.mean, rel=0.04)
    assert tokens_out / requests == pytest.approx(FLEET[name].tokens_out.mean, rel=0.04)


def test_single_requests_are_lognormal_and_their_sums_narrower(minutes: pl.DataFrame) -> None:
    """Minutes of one document show the mean and cv of a request; those of about 120 a cv of 0.9 / sqrt(120)."""
    lengths = FLEET["document-analysis"].tokens_in
    documents = minutes.filter(pl.col("workload_class") == "document-analysis")
    single = documents.filter(pl.col("requests") == 1)["tokens_in"].to_numpy()
    assert len(single) > 500
    assert single.mean() == pytest.approx(lengths.mean, rel=0.1)
    assert single.std() / single.mean() == pytest.approx(lengths.cv, rel=0.2)
    assert np.log(single).mean() == pytest.approx(np.log(lengths.mean) - np.log1p(lengths.cv**2) / 2, abs=0.1)
    many = documents.filter(pl.col("requests") >= 100).select(pl.col("tokens_in") / pl.col("requests")).to_series()
    assert many.std() / many.mean() == pytest.approx(np.hypot(lengths.cv / np.sqrt(120), 0.04), rel=0.3)
