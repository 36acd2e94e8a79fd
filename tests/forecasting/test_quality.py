"""Each kind of finding where it was planted, with exactly its steps masked, and none in traffic that is real."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, FINDINGS, Metric, conform, empty
from forecasting.cleaning import to_series
from forecasting.quality import clock_skew, find, masked_steps
from forecasting.quality.grid import median, runs

START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=10)
DAY = 144
DAYS = 14
SIZE = DAYS * DAY
END = START + SIZE * STEP
CLASSES = ["agent", "chat"]


def traffic(seed: int, *, scale: float = 1.0) -> np.ndarray:
    """Whole requests by step: a daily cycle with noise, never idle."""
    rng = np.random.default_rng(seed)
    cycle = 1 + 0.6 * np.sin(2 * np.pi * np.arange(SIZE) / DAY)
    return np.rint(scale * 4000 * cycle * np.exp(0.15 * rng.standard_normal(SIZE)))


def rows(name: str, requests: np.ndarray, **columns: Any) -> pl.DataFrame:
    """DEMAND of a class whose prompts and answers differ a little in length from step to step."""
    lengths = np.exp(0.05 * np.random.default_rng(len(name)).standard_normal((2, len(requests))))
    given = {
        "workload_class": pl.lit(name),
        "step_start": pl.Series([START + n * STEP for n in range(len(requests))]),
        "tokens_in": pl.Series(np.rint(requests * 700 * lengths[0])),
        "tokens_out": pl.Series(np.rint(requests * 200 * lengths[1])),
        "requests": pl.Series(requests),
        "peak_tokens_in_per_s": pl.lit(None),
        "peak_tokens_out_per_s": pl.lit(None),
        "observed_fraction": pl.lit(1.0),
        "source": pl.lit("test"),
    }
    return conform(pl.select(**given | columns), DEMAND)


def fleet(chat: pl.DataFrame | None = None) -> pl.DataFrame:
    return pl.concat([rows("agent", traffic(1)), rows("chat", traffic(2)) if chat is None else chat])


def changed(chat: pl.DataFrame, first: int, last: int, **values: Any) -> pl.DataFrame:
    """The rows first to before last with other values."""
    inside = pl.col("step_start").is_between(START + first * STEP, START + last * STEP, closed="left")
    return chat.with_columns(
        pl.when(inside).then(value).otherwise(pl.col(name)).alias(name) for name, value in values.items()
    )


def found(demand: pl.DataFrame) -> list[tuple[Any, ...]]:
    """(kind, class, metric, first step, last step + 1, masked), by time."""
    findings = find(demand, step=STEP, classes=CLASSES, end=END)
    assert findings.schema == dict(FINDINGS)
    return [
        (
            one["kind"],
            one["workload_class"],
            one["metric"],
            (one["start"] - START) // STEP,
            (one["end"] - START) // STEP,
            one["masked"],
        )
        for one in findings.to_dicts()
    ]


def evidence(demand: pl.DataFrame) -> dict[str, Any]:
    """Of the only finding."""
    (text,) = find(demand, step=STEP, classes=CLASSES, end=END)["evidence"]
    figures: dict[str, Any] = json.loads(text)
    return figures


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_traffic_has_no_finding(seed: int) -> None:
    busy, quiet = rows("chat", traffic(seed)), rows("agent", traffic(seed + 100, scale=0.001))
    assert found(pl.concat([busy, quiet])) == []


def test_nothing_at_all_has_no_finding() -> None:
    assert find(empty(DEMAND), step=STEP, classes=CLASSES, end=END).equals(empty(FINDINGS))


@pytest.mark.parametrize("steps", range(1, 12))
def test_the_first_steps_of_a_history_can_be_looked_at(steps: int) -> None:
    start = fleet().filter(pl.col("step_start") < START + steps * STEP)
    assert find(start, step=STEP, classes=CLASSES, end=START + steps * STEP).is_empty()


def test_outage_of_all_classes() -> None:
    """The steps beside it read high enough not to have been cut by it."""
    dead = changed(fleet(), 600, 606, tokens_in=0.0, tokens_out=0.0, requests=0.0)
    for edge in (599, 606):
        dead = changed(dead, edge, edge + 1, tokens_in=pl.col("tokens_in") * 2)
    assert found(dead) == [("outage", "", "", 600, 606, True)]
    assert evidence(dead)["steps"] == 6
    assert evidence(dead)["usual_tokens_per_s"] > 1000


def test_a_class_that_stops_while_another_goes_on_is_idle() -> None:
    stopped = changed(rows("chat", traffic(2)), 600, SIZE, tokens_in=0.0, tokens_out=0.0, requests=0.0)
    assert found(fleet(stopped)) == []


def test_gap_of_one_class_and_of_all() -> None:
    chat = rows("chat", traffic(2))
    assert found(fleet(pl.concat([chat[:500], chat[512:]]))) == [("gap", "chat", "", 500, 512, False)]
    hole = pl.col("step_start").is_between(START + 500 * STEP, START + 512 * STEP, closed="left")
    assert found(fleet().filter(~hole)) == [("gap", "", "", 500, 512, False)]


def test_a_history_that_begins_late_or_ends_early_has_no_gap() -> None:
    assert found(fleet(rows("chat", traffic(2))[300:1500])) == []


def test_a_class_that_comes_and_goes_has_one_finding_of_its_gaps() -> None:
    sparse = rows("chat", traffic(2)).gather_every(3)
    assert found(fleet(sparse)) == [("gap", "chat", "", 1, SIZE - 3, False)]
    assert evidence(fleet(sparse)) == {"gaps": SIZE // 3 - 1, "steps_missing": 2 * (SIZE // 3 - 1)}


def test_partial_step() -> None:
    thin = changed(rows("chat", traffic(2)), 700, 702, observed_fraction=pl.lit(0.3), tokens_in=pl.col("tokens_in") / 3)
    assert found(fleet(thin)) == [("partial", "chat", "", 700, 702, True)]
    assert evidence(fleet(thin)) == {"observed_fraction": 0.3}


def test_flat_line_is_masked_but_for_the_last_reading_that_was_real() -> None:
    chat = rows("chat", traffic(2))
    stuck = changed(chat, 801, 810, **{m: pl.lit(chat[m][800]) for m in ("tokens_in", "tokens_out", "requests")})
    assert found(fleet(stuck)) == [("flat_line", "chat", "", 801, 810, True)]
    assert evidence(fleet(stuck)) == {
        "steps": 9,
        "tokens_in": float(f"{chat['tokens_in'][800]:.4g}"),
        "tokens_out": float(f"{chat['tokens_out'][800]:.4g}"),
    }


@pytest.mark.parametrize("metric", ["tokens_in", "tokens_out"])
def test_one_metric_that_stays_equal_is_no_flat_line(metric: str) -> None:
    chat = rows("chat", traffic(2))
    assert found(fleet(changed(chat, 801, 815, **{metric: pl.lit(chat[metric][800])}))) == []


def test_a_constant_load_is_no_flat_line() -> None:
    constant = rows("chat", np.full(SIZE, 900.0), tokens_in=pl.lit(5e6), tokens_out=pl.lit(1e6))
    assert found(fleet(constant)) == []


def test_a_probe_that_runs_alone_every_night_is_no_flat_line() -> None:
    chat = rows("chat", traffic(2))
    night = pl.col("step_start").dt.hour() < 3
    probe = chat.with_columns(
        pl.when(night).then(pl.lit(value)).otherwise(name).alias(name)
        for name, value in (("tokens_in", 60.0), ("tokens_out", 6.0), ("requests", 6.0))
    )
    masked = masked_steps(
        find(fleet(probe), step=STEP, classes=CLASSES, end=END).filter(pl.col("kind") == "flat_line"),
        step=STEP,
        classes=CLASSES,
    )
    assert masked.is_empty()


@pytest.mark.parametrize("factor", [60.0, 1000.0, 1 / 60, 1 / 1000])
@pytest.mark.parametrize("metric", ["tokens_in", "tokens_out"])
def test_unit_jump_is_masked_until_it_comes_back(metric: str, factor: float) -> None:
    jumped = changed(rows("chat", traffic(2)), 900, 1010, **{metric: pl.col(metric) * factor})
    kept = [one for one in found(fleet(jumped)) if one[0] == "unit_jump"]
    assert kept == [("unit_jump", "chat", metric, 900, 1010, True)]


@pytest.mark.parametrize("factor", [60.0, 1000.0, 1 / 60, 1 / 1000])
def test_unit_jump_of_two_hours_is_found_at_any_time_of_a_daily_cycle(factor: float) -> None:
    """Also where the cycle itself rises or falls by a half within them."""
    rng = np.random.default_rng(13)
    cycle = 1 + 0.75 * np.sin(2 * np.pi * np.arange(SIZE) / DAY)
    requests = 4000 * cycle * np.exp(0.08 * rng.standard_normal(SIZE))
    chat, missed = rows("chat", requests), []
    for start in range(12 * DAY + 8, 13 * DAY - 20, 8):
        jumped = changed(chat, start, start + 12, tokens_in=pl.col("tokens_in") * factor)
        if ("unit_jump", "chat", "tokens_in", start, start + 12, True) not in found(jumped):
            missed.append(start % DAY)
    assert missed == []


def test_unit_jump_that_falls_inside_a_step_takes_that_step_with_it() -> None:
    jumped = changed(rows("chat", traffic(2)), 901, 1010, tokens_in=pl.col("tokens_in") * 1000)
    jumped = changed(jumped, 900, 901, tokens_in=pl.col("tokens_in") * 100)
    jumped = changed(jumped, 1010, 1011, tokens_in=pl.col("tokens_in") * 100)
    assert found(fleet(jumped)) == [("unit_jump", "chat", "tokens_in", 900, 1011, True)]


def test_unit_jump_that_stays_is_a_warning_and_kept() -> None:
    stays = changed(rows("chat", traffic(2)), 900, SIZE, tokens_in=pl.col("tokens_in") * 1000)
    findings = find(fleet(stays), step=STEP, classes=CLASSES, end=END).filter(pl.col("kind") == "unit_jump")
    assert findings["masked"].to_list() == [False]
    assert findings["severity"].to_list() == ["warning"]
    assert json.loads(findings["evidence"][0])["factor"] == pytest.approx(1000, rel=0.3)


def test_a_surge_in_which_requests_rise_alike_is_traffic() -> None:
    requests = traffic(2)
    requests[900:940] *= 60
    assert not any(masked for *_, masked in found(fleet(rows("chat", requests))))


def test_a_job_that_runs_at_sixty_times_the_rest_now_and_then_is_traffic() -> None:
    """Without a count of requests that could tell."""
    requests = traffic(2, scale=0.1)
    for night in range(0, DAYS, 2):
        requests[night * DAY + 60 : night * DAY + 80] *= 60
    assert not any(masked for *_, masked in found(fleet(rows("chat", requests).with_columns(requests=None))))


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_level_shift_of_a_day_is_told_and_kept(factor: float) -> None:
    requests = traffic(2)
    requests[-DAY:] *= factor
    shifts = found(fleet(rows("chat", requests)))
    assert {one[:3] for one in shifts} == {("level_shift", "chat", metric) for metric in Metric}
    assert not any(one[-1] for one in shifts)
    assert all(abs(one[3] - (SIZE - DAY)) <= DAY / 12 and one[4] == SIZE for one in shifts)


def test_a_shift_too_small_or_too_short_is_none() -> None:
    small, short = traffic(2), traffic(3)
    small[-DAY:] *= 1.3
    short[-DAY // 3 :] *= 2
    assert found(pl.concat([rows("chat", small), rows("agent", short)])) == []


def test_spike_is_told_and_kept() -> None:
    requests = traffic(2)
    requests[900:903] *= 6
    assert found(fleet(rows("chat", requests))) == [
        ("spike", "chat", "tokens_in", 900, 903, False),
        ("spike", "chat", "tokens_out", 900, 903, False),
    ]


def test_a_nightly_job_is_no_spike() -> None:
    requests = np.zeros(SIZE)
    for night in range(DAYS):
        requests[night * DAY : night * DAY + 20] = traffic(night)[:20]
    assert found(fleet(rows("chat", requests))) == []


def test_duplicated_interval_masks_the_later() -> None:
    chat = rows("chat", traffic(2))
    twice = chat.with_columns(
        pl.concat([chat[name][:1000], chat[name][400:424], chat[name][1024:]]).alias(name)
        for name in ("tokens_in", "tokens_out")
    )
    duplicates = [one for one in found(fleet(twice)) if one[0] != "level_shift"]
    assert duplicates == [("duplicated_interval", "chat", "", 1000, 1024, True)]
    text = find(fleet(twice), step=STEP, classes=CLASSES, end=END).filter(pl.col("masked"))["evidence"][0]
    assert json.loads(text) == {"steps": 24, "repeats": "2026-11-04T18:40Z"}


def test_two_classes_that_read_alike_repeat_nothing() -> None:
    chat = rows("chat", traffic(2))
    assert found(pl.concat([chat, chat.with_columns(workload_class=pl.lit("agent"))])) == []


def test_a_class_replayed_day_by_day_is_told_once_and_kept() -> None:
    day = rows("chat", traffic(2))[:DAY]
    replay = rows("chat", traffic(2)).with_columns(
        pl.concat([day[name]] * DAYS).alias(name) for name in ("tokens_in", "tokens_out")
    )
    assert found(fleet(replay)) == [("duplicated_interval", "chat", "", DAY, SIZE, False)]


def test_rows_of_the_future_are_not_looked_at() -> None:
    """The findings are those of a demand without them."""
    chat = rows("chat", traffic(2))
    end, stuck = END - 20 * STEP, {m: pl.lit(chat[m][SIZE - 20]) for m in ("tokens_in", "tokens_out")}
    demand = fleet(changed(chat, SIZE - 20, SIZE, **stuck))
    assert find(demand, step=STEP, classes=CLASSES, end=END)["kind"].to_list() == ["flat_line"]
    assert find(demand, step=STEP, classes=CLASSES, end=end).is_empty()


def test_a_clock_that_is_ahead_is_one_finding_with_the_figures_of_each_source() -> None:
    """Of the last complete step, since what is found about the present must have begun before it."""
    now = END + 2 * STEP / 5
    latest = now + timedelta(minutes=90)
    found = clock_skew({"prod": (12, latest), "old": (3, None)}, present=now, step=STEP)
    assert found.schema == dict(FINDINGS)
    one = found.row(0, named=True)
    assert (one["kind"], one["start"], one["end"], one["masked"]) == ("clock_skew", END - STEP, latest, False)
    assert json.loads(one["evidence"]) == {
        "old_rows": 3,
        "old_ahead_h": "over 700",
        "prod_rows": 12,
        "prod_ahead_h": 1.5,
    }
    assert clock_skew({}, present=now, step=STEP).is_empty()


def test_classes_that_are_not_asked_for_are_not_looked_at() -> None:
    dead = fleet(rows("other", np.zeros(SIZE)))
    assert found(dead) == []


def test_only_the_masked_steps_of_the_class_are_missing_to_the_forecaster() -> None:
    chat = rows("chat", traffic(2))
    stuck = changed(chat, 801, 810, **{m: pl.lit(chat[m][800]) for m in ("tokens_in", "tokens_out")})
    series, masked = to_series(fleet(stuck), step=STEP, classes=CLASSES, end=END)
    assert masked.columns == ["workload_class", "step_start", "reason"]
    assert masked.rows() == [("chat", START + n * STEP, "flat_line") for n in range(801, 810)]
    for metric in Metric:
        assert np.flatnonzero(np.isnan(series["chat", metric].values)).tolist() == list(range(801, 810))
        assert np.isfinite(series["agent", metric].values).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=3), st.integers(1, 4))
def test_runs_are_what_a_walk_over_the_flags_finds(flags: list[list[bool]], least: int) -> None:
    expected = []
    for row, line in enumerate(flags):
        start = None
        for place, flag in enumerate([*line, False]):
            if flag and start is None:
                start = place
            elif not flag and start is not None:
                expected += [(row, start, place)] if place - start >= least else []
                start = None
    assert list(runs(np.array(flags), least=least)) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.just(np.nan), st.floats(-1e9, 1e9)), min_size=1, max_size=9))
def test_median_is_that_of_what_is_known(values: list[float]) -> None:
    known = [value for value in values if np.isfinite(value)]
    expected = np.median(known) if known else np.nan
    np.testing.assert_allclose(median(np.array(values)), expected)
