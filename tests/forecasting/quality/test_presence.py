"""When silence is an outage, by what the source knows of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import DEMAND, Metric, conform
from forecasting.cleaning import to_series
from forecasting.quality import find, outage_steps

START, STEP, DAY = datetime(2026, 11, 2, tzinfo=UTC), timedelta(minutes=15), 96


def demand(source: str, **classes: np.ndarray) -> pl.DataFrame:
    frames = [
        pl.DataFrame({"tokens_in": tokens, "tokens_out": tokens / 2}).with_columns(
            workload_class=pl.lit(name),
            step_start=pl.Series([START + k * STEP for k in range(tokens.size)]),
            requests=pl.lit(None, pl.Float64),
            peak_tokens_in_per_s=pl.lit(None, pl.Float64),
            peak_tokens_out_per_s=pl.lit(None, pl.Float64),
            observed_fraction=pl.lit(1.0),
            source=pl.lit(source),
        )
        for name, tokens in classes.items()
    ]
    return conform(pl.concat(frames), DEMAND)


def stopped(step: int, until: int = 4 * DAY) -> np.ndarray:
    """Four busy days but for the steps from one to before another."""
    tokens = np.full(4 * DAY, 900.0)
    tokens[step:until] = 0
    return tokens


def test_the_only_class_of_counters_that_stand_still_is_idle_and_of_a_log_without_rows_it_is_out() -> None:
    rows = pl.concat([demand("prod", chat=stopped(300)), demand("log", batch=stopped(300))])
    out = outage_steps(rows, step=STEP, counted=["prod"])
    assert out["workload_class"].unique().to_list() == ["batch"]
    assert outage_steps(rows, step=STEP)["workload_class"].unique().sort().to_list() == ["batch", "chat"]


def test_counters_of_several_classes_that_stand_still_at_once_are_out() -> None:
    """What is in front of the servers failed: a floor must not fall for it."""
    rows = demand("prod", chat=stopped(300, 310), code=stopped(300, 310))
    assert outage_steps(rows, step=STEP, counted=["prod"]).height == 20


def test_the_last_class_of_counters_that_have_no_other_any_more_is_idle() -> None:
    rows = demand("prod", chat=stopped(300), code=stopped(4 * DAY)[: 2 * DAY])
    assert outage_steps(rows, step=STEP, counted=["prod"]).is_empty()


def test_what_counters_prove_is_no_finding_and_reaches_the_forecaster_as_zero() -> None:
    rows, end = demand("prod", chat=stopped(300)), START + 4 * DAY * STEP
    assert find(rows, step=STEP, classes=["chat"], end=end)["kind"].to_list() == ["outage"]
    assert find(rows, step=STEP, classes=["chat"], end=end, counted=["prod"]).filter("masked").is_empty()
    series, masked = to_series(rows, step=STEP, classes=["chat"], end=end, counted=["prod"])
    assert masked.is_empty()
    assert (series["chat", Metric.TOKENS_IN].values[300:] == 0).all()
