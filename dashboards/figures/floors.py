"""The floors of a pool over the replicas that its forecast demand requires."""

from __future__ import annotations

from datetime import datetime, timedelta

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import ZONED, figure, mark_time, on_grid, plotly_time, time_axis, values
from floorcast.pool import Bounds
from floorcast.types import Rung

_PARTS = pl.Struct({"median_tokens_per_s": pl.Float64(), "demand_tokens_per_s": pl.Float64()})


def floors_over_required(
    floors: pl.DataFrame, *, bounds: Bounds, quantile: float, now: datetime, step: timedelta
) -> go.Figure:
    """Step lines of floor, and of required replicas at the quantile and at the median, with bounds and `now`.

    `floors` is FLOORS of one pool, with a row at least. Required replicas are those of the deciding step of each
    window; a window whose floor is the fallback was not computed from demand, so it leaves a gap there.
    """
    known = pl.col("rung") != Rung.FALLBACK
    parts = pl.col("reason").str.json_decode(_PARTS)
    demand, median = (parts.struct.field(f"{name}_tokens_per_s") for name in ("demand", "median"))
    required = floors.select(
        "window_start",
        "min_replicas",
        pl.when(known).then("required_replicas").alias("required"),
        # Required replicas are proportional to the binding demand, so the median's follow from the quantile's.
        pl.when(known & (demand > 0)).then(pl.col("required_replicas") * median / demand).alias("median"),
    )
    x, grid = on_grid(_closed(required, step), time="window_start", step=step)
    fig = figure(
        height=400, hovermode="x unified", xaxis=time_axis(), yaxis={"rangemode": "tozero", "tickformat": ",~r"}
    )
    lines = [
        ("median", "required, median", {"color": "var(--median)", "width": 1.5, "dash": "dot"}, ",.2f"),
        ("required", f"required, {quantile * 100:g} %", {"color": "var(--median)", "width": 1.8}, ",.2f"),
        ("min_replicas", "floor", {"color": "var(--floor)", "width": 2.6}, ",d"),
    ]
    for column, name, line, number in lines:
        fig.add_scatter(
            **x,
            y=values(grid[column]),
            name=name,
            mode="lines",
            connectgaps=False,
            line={**line, "shape": "hv"},
            hovertemplate=f"%{{y:{number}}} replicas",
            meta=ZONED if column == "min_replicas" else None,
        )
    _add_bounds(fig, bounds, peak=max(_peak(grid["min_replicas"]), _peak(grid["required"])))
    first, last = required["window_start"].min(), required["window_start"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        fig.update_xaxes(range=[plotly_time(min(first, now)), plotly_time(max(last + step, now))])
    mark_time(fig, now, f"now {now:%H:%M}", side="right")
    return fig


def _closed(required: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    """With one more row, so that the last window is drawn as wide as it is."""
    last = required.sort("window_start").tail(1)
    return pl.concat([required, last.with_columns(pl.col("window_start") + step)])


def _add_bounds(fig: go.Figure, bounds: Bounds, *, peak: float) -> None:
    """Lines at both bounds. An upper bound far above the floors is left out of view; panning finds it."""
    fig.update_yaxes(range=[0, max(1.0, bounds.min, peak, bounds.max if bounds.max <= 2 * peak else 0) * 1.12])
    for name, value in (("min", bounds.min), ("max", bounds.max)):
        if value == 0:
            continue
        fig.add_shape(
            type="line",
            xref="paper",
            x0=0,
            x1=1,
            y0=value,
            y1=value,
            line={"color": "var(--bound)", "width": 1.2, "dash": "longdash"},
            label={
                "text": f"{name} {value}",
                "textposition": "end",
                "yanchor": "bottom" if name == "max" else "top",
                "font": {"size": 12, "color": "var(--muted)"},
            },
        )


def _peak(series: pl.Series) -> float:
    peak = series.max()
    return float(peak) if isinstance(peak, int | float) else 0.0
