"""Missing is not zero; an outage recorded as zeros is missing; true idleness stays zero."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from floorcast.columns import DEMAND, Metric, conform
from forecasting.cleaning import fill_missing, to_series
from forecasting.quality import outage_steps

START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=15)
DAY_STEPS = 96


def demand(values: dict[str, np.ndarray], *, fraction: float = 1.0) -> pl.DataFrame:
    frames = [
        pl.DataFrame({"tokens_in": series, "tokens_out": series / 2}).with_columns(
            workload_class=pl.lit(name),
            step_start=pl.Series([START + i * STEP for i in range(len(series))]),
            requests=pl.lit(1.0),
            peak_tokens_in_per_s=pl.lit(0.0),
            peak_tokens_out_per_s=pl.lit(0.0),
            observed_fraction=pl.lit(fraction),
            source=pl.lit("test"),
        )
        for name, series in values.items()
    ]
    return conform(pl.concat(frames), DEMAND)


def busy(days: int) -> np.ndarray:
    return np.full(days * DAY_STEPS, 900.0)


def test_rates_are_tokens_over_the_observed_seconds() -> None:
    series, _ = to_series(
        demand({"chat": busy(1)}, fraction=0.5), step=STEP, classes=["chat"], end=START + DAY_STEPS * STEP
    )
    assert series["chat", Metric.TOKENS_IN].values[0] == 900 / 450
    assert series["chat", Metric.TOKENS_OUT].values[0] == 450 / 450


def test_a_step_without_a_row_is_missing_not_zero() -> None:
    frame = demand({"chat": busy(1)}).filter(pl.col("step_start") != START + 5 * STEP)
    series, _ = to_series(frame, step=STEP, classes=["chat"], end=START + DAY_STEPS * STEP)
    values = series["chat", Metric.TOKENS_IN].values
    assert np.isnan(values[5])
    assert np.isfinite(np.delete(values, 5)).all()


def test_a_step_observed_for_less_than_half_is_masked() -> None:
    series, _ = to_series(demand({"chat": busy(1)}, fraction=0.4), step=STEP, classes=["chat"], end=START + STEP * 9)
    assert np.isnan(series["chat", Metric.TOKENS_IN].values).all()


def test_all_classes_at_zero_together_at_a_busy_time_is_an_outage() -> None:
    chat, code = busy(4), busy(4)
    hole = slice(2 * DAY_STEPS + 40, 2 * DAY_STEPS + 44)
    chat[hole] = code[hole] = 0
    steps = outage_steps(demand({"chat": chat, "code": code}), step=STEP)
    for name in ("chat", "code"):
        mine = steps.filter(pl.col("workload_class") == name)["step_start"].to_list()
        assert mine == [START + i * STEP for i in range(hole.start, hole.stop)]


@pytest.mark.parametrize("days", [1, 3, 6, 9])
def test_an_outage_is_believed_no_more_the_longer_it_lasts(days: int) -> None:
    chat = busy(14)
    chat[-days * DAY_STEPS :] = 0
    assert outage_steps(demand({"chat": chat}), step=STEP).height == days * DAY_STEPS


def test_an_outage_after_a_long_one_is_one_too() -> None:
    chat = busy(14)
    chat[5 * DAY_STEPS : 8 * DAY_STEPS] = 0
    chat[-10:] = 0
    assert outage_steps(demand({"chat": chat}), step=STEP).height == 3 * DAY_STEPS + 10


def test_one_source_out_while_another_works_is_an_outage_of_its_own_classes() -> None:
    chat, code, batch = busy(4), busy(4), busy(4)
    chat[300:312] = code[300:312] = 0
    frame = pl.concat(
        [demand({"chat": chat, "code": code}), demand({"batch": batch}).with_columns(source=pl.lit("other"))]
    )
    steps = outage_steps(frame, step=STEP)
    assert steps["workload_class"].unique().sort().to_list() == ["chat", "code"]
    assert steps.height == 2 * 12


def test_an_edge_that_the_outage_cut_into_is_masked_with_it_and_a_whole_one_is_kept() -> None:
    chat = busy(4)
    chat[300:304] = 0
    chat[304] = 400
    steps = outage_steps(demand({"chat": chat}), step=STEP)["step_start"].to_list()
    assert steps == [START + i * STEP for i in range(300, 305)]


def test_the_first_step_after_an_outage_waits_until_the_next_one_vouches_for_it() -> None:
    chat = busy(4)
    chat[300:304] = 0
    masked = [outage_steps(demand({"chat": chat[:end]}), step=STEP).height for end in (304, 305, 306)]
    assert masked == [4, 5, 4]


def test_one_class_at_zero_while_others_work_is_idle() -> None:
    chat, code = busy(4), busy(4)
    code[200:300] = 0
    assert outage_steps(demand({"chat": chat, "code": code}), step=STEP).is_empty()


def test_a_fleet_that_sleeps_every_night_is_idle_not_out() -> None:
    chat = busy(6).reshape(6, DAY_STEPS)
    chat[:, :20] = 0
    assert outage_steps(demand({"chat": chat.ravel()}), step=STEP).is_empty()


def test_what_lies_at_or_after_the_end_changes_nothing() -> None:
    frame = demand({"chat": busy(3)})
    end = START + 2 * DAY_STEPS * STEP
    later = pl.when(pl.col("step_start") >= end)
    altered = frame.with_columns(
        tokens_in=later.then(0.0).otherwise("tokens_in"), tokens_out=later.then(0.0).otherwise("tokens_out")
    )
    before, _ = to_series(frame, step=STEP, classes=["chat"], end=end)
    after, _ = to_series(altered, step=STEP, classes=["chat"], end=end)
    for key, series in before.items():
        np.testing.assert_array_equal(series.values, after[key].values)
        assert series.end == end


def test_filling_keeps_what_was_observed_and_follows_the_season() -> None:
    place = np.arange(5 * DAY_STEPS)
    truth = 100 + 50 * np.sin(2 * np.pi * place / DAY_STEPS)
    holed = truth.copy()
    holed[250:270] = np.nan
    filled = fill_missing(holed, season=DAY_STEPS)
    np.testing.assert_allclose(filled, truth, rtol=1e-9)


def test_filling_a_short_history_interpolates() -> None:
    filled = fill_missing(np.array([1.0, np.nan, 3.0, np.nan]), season=96)
    assert filled.tolist() == [1, 2, 3, 3]
