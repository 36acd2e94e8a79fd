"""The forecast fan of a workload class over what was observed."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import ZONED, figure, mark_time, on_grid, plotly_time, time_axis, values
from floorcast.columns import MEDIAN, QUANTILE_LEVELS, Metric, quantile_column

_SHOWN_BEFORE_CUTOFF = timedelta(days=3)


def forecast_fan(
    demand: pl.DataFrame, forecasts: pl.DataFrame, *, metric: Metric, step: timedelta, quantile: float
) -> go.Figure:
    """Observed rate, and median, 50 %, 80 % and floor quantile of the forecast, in tokens per second.

    `demand` is DEMAND and `forecasts` FORECASTS, both of one class; `quantile` is the floor's (0.5 to 0.99).
    A step without observation leaves a gap. Either frame may be empty.
    """
    fig = figure(
        height=380,
        hovermode="x unified",
        xaxis=time_axis(),
        yaxis={"rangemode": "tozero", "tickformat": "~s"},
    )
    ahead = forecasts.filter(pl.col("metric") == metric)
    if ahead.height:
        _add_bands(fig, ahead, step=step, quantile=quantile)
    if demand.height:
        _add_observed(fig, demand, metric=metric, step=step)
    if ahead.height:
        cutoff = ahead["cutoff"].max()
        if isinstance(cutoff, datetime):
            mark_time(fig, cutoff, f"cutoff {cutoff:%H:%M}", side="left")
            _start_near(fig, cutoff, last=ahead["step_start"].max())
    return fig


def _start_near(fig: go.Figure, cutoff: datetime, *, last: object) -> None:
    """Show the days just before the cutoff first, since a week before leaves the forecast little room."""
    if not isinstance(last, datetime):
        return
    first = cutoff - _SHOWN_BEFORE_CUTOFF
    hours = (last - first) // timedelta(hours=1)
    fig.update_xaxes(
        range=[plotly_time(first), plotly_time(last)],
        rangeselector={
            "x": 1,
            "xanchor": "right",
            "y": -0.19,
            "yanchor": "top",
            "bgcolor": "var(--button)",
            "activecolor": "var(--button-active)",
            "font": {"color": "var(--text)", "size": 12},
            "buttons": [
                {"label": "3 days", "step": "hour", "count": hours, "stepmode": "backward"},
                {"label": "all", "step": "all"},
            ],
        },
    )


def _add_observed(fig: go.Figure, demand: pl.DataFrame, *, metric: Metric, step: timedelta) -> None:
    observed_s = step.total_seconds() * pl.col("observed_fraction")
    x, grid = on_grid(
        demand.select("step_start", (pl.col(metric) / observed_s).alias("rate")), time="step_start", step=step
    )
    fig.add_scatter(
        **x,
        y=values(grid["rate"]),
        name="observed",
        mode="lines",
        connectgaps=False,
        line={"color": "var(--observed)", "width": 1.3},
        hovertemplate="%{y:,.4~r} tokens/s",
        meta=ZONED,
    )


def _add_bands(fig: go.Figure, ahead: pl.DataFrame, *, step: timedelta, quantile: float) -> None:
    x, grid = on_grid(ahead.with_columns(_at_quantile(quantile).alias("floor_quantile")), time="step_start", step=step)
    outline = {"width": 0}
    edges = [
        ("q10", "10 %", None),
        ("q25", None, "var(--band-80)"),
        ("q75", None, "var(--band-50)"),
        ("q90", "90 %", "var(--band-80)"),
    ]
    for column, level, fill in edges:
        fig.add_scatter(
            **x,
            y=values(grid[column]),
            mode="lines",
            line=outline,
            name={"q75": "50 % band", "q90": "80 % band"}.get(column, level or column),
            showlegend=column in ("q75", "q90"),
            fill=None if fill is None else "tonexty",
            fillcolor=fill,
            hoverinfo="skip" if level is None else None,
            hovertemplate=None if level is None else f"%{{y:,.4~r}} tokens/s ({level} at or under)<extra></extra>",
        )
    fig.add_scatter(
        **x,
        y=values(grid["floor_quantile"]),
        mode="lines",
        name=f"{quantile * 100:g} %",
        line={"color": "var(--quantile)", "width": 1.5, "dash": "dash"},
        fill="tonexty" if quantile > 0.9 else None,
        fillcolor="var(--band-95)",
        hovertemplate="%{y:,.4~r} tokens/s",
    )
    fig.add_scatter(
        **x,
        y=values(grid[MEDIAN]),
        mode="lines",
        name="median",
        line={"color": "var(--median)", "width": 2},
        hovertemplate="%{y:,.4~r} tokens/s",
        meta=ZONED,
    )


def _at_quantile(level: float) -> pl.Expr:
    """The forecast at a level, linear between the levels a forecast carries."""
    for low, high in pairwise(QUANTILE_LEVELS):
        if low <= level <= high:
            share = (level - low) / (high - low)
            return (1 - share) * pl.col(quantile_column(low)) + share * pl.col(quantile_column(high))
    raise ValueError(f"quantile {level} is outside {QUANTILE_LEVELS[0]} to {QUANTILE_LEVELS[-1]}")
