"""Figures from tiny frames, with the numbers worked out by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import plotly.graph_objects as go
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.figures.accuracy import backtest_figure, calibration_figure, wape_figure
from dashboards.figures.fan import forecast_fan
from dashboards.figures.floors import floors_over_required
from dashboards.figures.style import on_grid, values
from floorcast.columns import (
    ACCURACY,
    DEMAND,
    FLOORS,
    FORECASTS,
    QUANTILE_COLUMNS,
    SCORES,
    Metric,
    conform,
    empty,
)
from floorcast.pool import Bounds

START = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
STEP = timedelta(minutes=5)


def trace(fig: go.Figure, name: str) -> go.Scatter:
    return next(t for t in fig.data if t.name == name)


def demand(*rows: tuple[int, float, float]) -> pl.DataFrame:
    """(step number, tokens in of the step, observed fraction)"""
    return conform(
        pl.DataFrame(
            [
                {
                    "workload_class": "chat",
                    "step_start": START + number * STEP,
                    "tokens_in": tokens,
                    "tokens_out": 0.0,
                    "requests": 1.0,
                    "peak_tokens_in_per_s": 0.0,
                    "peak_tokens_out_per_s": 0.0,
                    "observed_fraction": fraction,
                    "source": "made",
                }
                for number, tokens, fraction in rows
            ]
        ),
        DEMAND,
    )


def forecast(steps: int) -> pl.DataFrame:
    """Quantiles 10, 25, 50, 75, 90, 95, 97.5 and 99 tokens/s, at every step."""
    levels = dict(zip(QUANTILE_COLUMNS, (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0), strict=True))
    return conform(
        pl.DataFrame(
            [
                {
                    "workload_class": "chat",
                    "metric": "tokens_in",
                    "horizon": "lead",
                    "cutoff": START,
                    "step_start": START + number * STEP,
                    "model": "m",
                    **levels,
                }
                for number in range(steps)
            ]
        ),
        FORECASTS,
    )


def floors(*rows: tuple[int, int, float, str]) -> pl.DataFrame:
    """(window number, floor, required replicas, rung); the median is half of the quantile's demand."""
    return conform(
        pl.DataFrame(
            [
                {
                    "pool": "p",
                    "window_start": START + number * STEP,
                    "window_end": START + (number + 1) * STEP,
                    "min_replicas": floor,
                    "required_replicas": required,
                    "rung": rung,
                    "reason": json.dumps(
                        {"binding": "tokens_in", "median_tokens_per_s": 500.0, "demand_tokens_per_s": 1000.0}
                    ),
                }
                for number, floor, required, rung in rows
            ]
        ),
        FLOORS,
    )


def fan(observed: pl.DataFrame, ahead: pl.DataFrame, quantile: float = 0.95) -> go.Figure:
    return forecast_fan(observed, ahead, metric=Metric.TOKENS_IN, step=STEP, quantile=quantile)


def plan(frame: pl.DataFrame, bounds: Bounds | None = None) -> go.Figure:
    return floors_over_required(frame, bounds=bounds or Bounds(min=1, max=4), quantile=0.95, now=START, step=STEP)


def test_observed_is_tokens_per_second_and_open_where_nothing_was_observed() -> None:
    """300 tokens in 300 s are 1/s; a recorded zero stays zero; steps 2 and 3 have no row and become None."""
    line = trace(fan(demand((0, 300.0, 1.0), (1, 0.0, 1.0), (4, 600.0, 1.0)), empty(FORECASTS)), "observed")
    assert line.y == (1.0, 0.0, None, None, 2.0)
    assert (line.x0, line.dx, line.connectgaps) == ("2026-11-30 08:00:00", 300_000, False)


def test_a_partly_observed_step_is_a_rate_over_what_was_observed() -> None:
    """150 tokens in half of 300 s are 1/s."""
    assert trace(fan(demand((0, 150.0, 0.5)), empty(FORECASTS)), "observed").y == (1.0,)


def test_fan_draws_its_bands_from_the_lowest_quantile_up() -> None:
    """Each band fills down to the trace before it, so the order of the edges is what makes them right."""
    fig = fan(empty(DEMAND), forecast(2))
    assert [t.y[0] for t in fig.data] == [10.0, 25.0, 75.0, 90.0, 95.0, 50.0]
    assert [t.fill for t in fig.data] == [None, "tonexty", "tonexty", "tonexty", "tonexty", None]
    assert "cutoff 08:00" in [note.text for note in fig.layout.annotations]


@pytest.mark.parametrize(("quantile", "value"), [(0.5, 50.0), (0.92, 92.0), (0.99, 99.0)])
def test_floor_quantile_is_interpolated_between_levels(quantile: float, value: float) -> None:
    line = trace(fan(empty(DEMAND), forecast(1), quantile), f"{quantile * 100:g} %")
    assert line.y == pytest.approx((value,))


def test_a_quantile_that_no_forecast_carries_is_refused() -> None:
    with pytest.raises(ValueError, match="is outside"):
        fan(empty(DEMAND), forecast(1), 0.999)


def test_fan_of_nothing_is_an_empty_figure() -> None:
    assert fan(empty(DEMAND), empty(FORECASTS)).data == ()


def test_floors_step_with_required_replicas_at_quantile_and_median() -> None:
    """The last window is drawn to its end, so every line has one point more than windows."""
    fig = plan(floors((0, 3, 2.5, "fresh"), (1, 2, 1.5, "fresh")))
    assert trace(fig, "floor").y == (3.0, 2.0, 2.0)
    assert trace(fig, "required, 95 %").y == (2.5, 1.5, 1.5)
    assert trace(fig, "required, median").y == (1.25, 0.75, 0.75)
    assert {t.line.shape for t in fig.data} == {"hv"}


def test_floors_not_made_from_demand_leave_the_required_lines_open() -> None:
    fig = plan(floors((0, 3, 2.5, "fresh"), (1, 4, 4.0, "fallback_replicas"), (3, 2, 1.5, "fresh")))
    assert trace(fig, "floor").y == (3.0, 4.0, None, 2.0, 2.0)
    assert trace(fig, "required, 95 %").y == (2.5, None, None, 1.5, 1.5)
    assert trace(fig, "required, median").y == (1.25, None, None, 0.75, 0.75)


def test_bounds_and_now_are_lines() -> None:
    fig = plan(floors((0, 3, 2.5, "fresh")), Bounds(min=1, max=4))
    assert [(s.y0, s.label.text) for s in fig.layout.shapes[:2]] == [(1, "min 1"), (4, "max 4")]
    assert fig.layout.shapes[2].x0 == "2026-11-30 08:00:00"
    assert fig.layout.yaxis.range[1] > 4


def test_what_a_short_pool_requires_is_not_cut_off_at_its_upper_bound() -> None:
    assert plan(floors((0, 4, 6.5, "fresh")), Bounds(min=1, max=4)).layout.yaxis.range[1] > 6.5


def test_a_far_upper_bound_does_not_flatten_the_floors() -> None:
    assert plan(floors((0, 3, 2.5, "fresh")), Bounds(min=0, max=500)).layout.yaxis.range[1] < 6


def accuracy(calibration: float) -> pl.DataFrame:
    rows = [
        {"workload_class": name, "model": model, "wape": wape, "calibration": share}
        for name in ("b", "a<b>")
        for model, wape, share in (("published", 0.05, calibration), ("last_value", 0.1, None))
    ]
    shared = {"metric": "tokens_in", "horizon": "lead", "first_step": START, "last_step": START, "steps": 9}
    rest = {"mase": None, "pinball": None, "bias": 0.0}
    return conform(pl.DataFrame([{**row, **shared, **rest} for row in rows]), ACCURACY)


def test_wape_is_in_percent_by_model_and_names_are_not_markup() -> None:
    fig = wape_figure(accuracy(0.9), by="workload_class")
    assert trace(fig, "published").x == (5.0, 5.0)
    assert trace(fig, "last value").x == (10.0, 10.0)
    assert trace(fig, "seasonal naive").x == ()
    assert trace(fig, "published").y == ("b", "a&lt;b&gt;")
    assert len({t.marker.symbol for t in fig.data}) == 3


def test_what_rests_on_few_forecasts_is_faint() -> None:
    few = accuracy(0.9).with_columns(pl.when(workload_class="b").then(99).otherwise(100).cast(pl.Int64).alias("steps"))
    for fig in (
        wape_figure(few, by="workload_class"),
        calibration_figure(few, by="workload_class", nominal={"b": 0.95, "a<b>": 0.8}),
    ):
        dots = trace(fig, "published")
        assert dict(zip(dots.y, dots.marker.opacity, strict=True)) == {"b": 0.35, "a&lt;b&gt;": 1.0}


def test_calibration_is_the_miss_from_each_class_own_quantile_in_points() -> None:
    fig = calibration_figure(accuracy(0.9), by="workload_class", nominal={"b": 0.95, "a<b>": 0.8})
    assert trace(fig, "published").x == pytest.approx((-5.0, 10.0))
    low, high = fig.layout.xaxis.range
    assert low < -10
    assert high > 10


def test_backtest_puts_the_best_on_top_marks_the_chosen_and_leaves_out_the_disqualified() -> None:
    """Plotly draws the last bar on top."""
    rows = [("good", 1.0, True), ("bad", 3.0, False), ("broken", None, False)]
    scores = conform(
        pl.DataFrame(
            [
                {
                    "workload_class": "chat",
                    "metric": "tokens_in",
                    "horizon": "lead",
                    "cutoff": START,
                    "model": model,
                    "chosen": chosen,
                    "weight": float(chosen),
                    "origins": 3,
                    "pinball": pinball,
                    "wape": pinball,
                    "bias": pinball,
                    "seconds": 1.0,
                    "error": None,
                }
                for model, pinball, chosen in rows
            ]
        ),
        SCORES,
    )
    (bar,) = backtest_figure(scores).data
    assert bar.y == ("bad", "good")
    assert bar.x == (3.0, 1.0)
    assert bar.marker.color == ("var(--candidate)", "var(--published)")


@given(st.sets(st.integers(0, 60), min_size=1))
def test_on_grid_keeps_every_value_in_its_place_and_nothing_else(present: set[int]) -> None:
    frame = pl.DataFrame(
        {"at": [START + n * STEP for n in sorted(present)], "v": [float(n) for n in sorted(present)]},
        schema_overrides={"at": pl.Datetime("us", "UTC")},
    )
    x, grid = on_grid(frame, time="at", step=STEP)
    first = min(present)
    assert x["x0"] == (START + first * STEP).strftime("%Y-%m-%d %H:%M:%S")
    expected = [float(n) if n in present else None for n in range(first, max(present) + 1)]
    assert grid["v"].to_list() == expected


def test_values_have_four_digits_and_no_nan() -> None:
    assert values(pl.Series([123456.0, float("nan"), None, 0.00012345678])) == [123500.0, None, None, 0.0001235]
