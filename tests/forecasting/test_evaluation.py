"""Accuracy of the forecasts that were really made."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from floorcast.columns import ACCURACY, FORECASTS, QUANTILE_COLUMNS, Metric, conform
from forecasting.evaluation import evaluate
from forecasting.series import Series

START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(hours=1)

QUANTILE = {("chat", Metric.TOKENS_OUT): 0.95}


def forecasts(cutoff: datetime, values: list[float]) -> pl.DataFrame:
    frame = pl.DataFrame(dict.fromkeys(QUANTILE_COLUMNS, values)).with_columns(
        workload_class=pl.lit("chat"),
        metric=pl.lit("tokens_out"),
        cutoff=pl.lit(cutoff),
        step_start=pl.Series([cutoff + i * STEP for i in range(len(values))]),
        model=pl.lit("last_value"),
    )
    return conform(frame, FORECASTS)


def test_the_lead_window_is_judged_on_its_greatest_rate_against_both_baselines() -> None:
    """Day one is 0 to 23, day two 100 to 123. From the start of day two, forecast 110 and 90 for its first two hours:
    the greatest of them against 101; last value 23; seasonal naive 0 and 1."""
    values = np.concatenate([np.arange(24.0), 100 + np.arange(24.0)])
    series = {("chat", Metric.TOKENS_OUT): Series("chat", Metric.TOKENS_OUT, START, STEP, values)}
    result = evaluate(
        forecasts(START + timedelta(days=1), [110.0, 90.0]), series, lead={"chat": 2 * STEP}, quantile=QUANTILE
    )
    assert dict(result.schema) == dict(ACCURACY)
    rows = {row["model"]: row for row in result.to_dicts()}
    assert {row["horizon"] for row in rows.values()} == {"lead"}
    assert {row["steps"] for row in rows.values()} == {1}
    assert rows["published"]["wape"] == pytest.approx(9 / 101)
    assert rows["last_value"]["wape"] == pytest.approx(78 / 101)
    assert rows["seasonal_naive"]["wape"] == pytest.approx(100 / 101)
    assert rows["published"]["calibration"] == 1
    assert rows["published"]["pinball"] == pytest.approx(0.05 * 9)
    assert rows["last_value"]["pinball"] is None


def test_after_the_lead_window_a_band_is_judged_step_by_step() -> None:
    """Beyond the first hour, forecast 110 against 101 and 102."""
    values = np.concatenate([np.arange(24.0), 100 + np.arange(24.0)])
    series = {("chat", Metric.TOKENS_OUT): Series("chat", Metric.TOKENS_OUT, START, STEP, values)}
    result = evaluate(
        forecasts(START + timedelta(days=1), [110.0] * 3), series, lead={"chat": STEP}, quantile=QUANTILE
    ).filter(model="published", horizon="6h")
    assert result["wape"].to_list() == [pytest.approx((9 + 8) / 203)]
    assert result["steps"].to_list() == [2]


def test_a_lead_window_of_which_a_step_is_missing_is_not_judged() -> None:
    """The greatest rate may have been in it. The forecast an hour later has a whole window."""
    values = np.concatenate([np.full(24, 10.0), [10.0, np.nan, 10.0, 10.0]])
    series = {("chat", Metric.TOKENS_OUT): Series("chat", Metric.TOKENS_OUT, START, STEP, values)}
    both = pl.concat([forecasts(START + timedelta(hours=24 + late), [10.0, 10.0]) for late in (0, 2)])
    result = evaluate(both, series, lead={"chat": 2 * STEP}, quantile=QUANTILE).filter(model="published")
    assert result["steps"].to_list() == [1]
    assert result["first_step"].to_list() == [START + timedelta(hours=26)]


def test_a_horizon_past_a_day_takes_the_seasonal_naive_from_before_the_cutoff() -> None:
    """Thirty hours ahead the same time yesterday was not yet known; two days back was."""
    values = np.concatenate([np.full(24, 10.0), np.full(24, 20.0), np.full(24, 30.0)])
    series = {("chat", Metric.TOKENS_OUT): Series("chat", Metric.TOKENS_OUT, START, STEP, values)}
    result = evaluate(forecasts(START + timedelta(days=1), [1.0] * 36), series, lead={"chat": STEP}, quantile=QUANTILE)
    far = result.filter(pl.col("model") == "seasonal_naive", pl.col("horizon") == "48h")
    assert far["wape"][0] == pytest.approx(20 / 30)


def test_steps_that_were_not_observed_are_not_judged() -> None:
    values = np.concatenate([np.full(24, 10.0), np.full(24, np.nan)])
    series = {("chat", Metric.TOKENS_OUT): Series("chat", Metric.TOKENS_OUT, START, STEP, values)}
    result = evaluate(forecasts(START + timedelta(days=1), [10.0] * 4), series, lead={"chat": STEP}, quantile=QUANTILE)
    assert result.is_empty()
