"""What all figures share: layout, colours by role, time axes and the regular grid that keeps gaps open.

Colours are written as `var(--role)`. The page replaces them by the values of its style sheet, once for light and
once for dark, so that a figure never holds a colour of its own.
"""

from __future__ import annotations

import html
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import plotly.graph_objects as go
import polars as pl

ZONED = "zoned"
"""`meta` of a trace whose tooltip the page completes with the time in the configured zone."""


def figure(*, height: int, **layout: Any) -> go.Figure:
    """An empty figure with the shared layout, transparent, so that the page's own background shows."""
    grid = {
        "gridcolor": "var(--grid)",
        "zerolinecolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "automargin": True,
        "ticklabelstandoff": 4,
    }
    shared: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "var(--text)"},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--border)",
            "font": {"color": "var(--text)", "size": 13},
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12.5},
        },
        "xaxis": grid,
        "yaxis": grid,
    }
    return go.Figure(layout=shared).update_layout(**layout)


def time_axis() -> dict[str, Any]:
    """An x axis of UTC times."""
    return {
        "type": "date",
        "hoverformat": "%a %-d %b %H:%M UTC",
        "tickformatstops": [
            {"dtickrange": [None, 43_200_000], "value": "%H:%M\n%a %-d"},
            {"dtickrange": [43_200_000, None], "value": "%a\n%-d %b"},
        ],
        "tickangle": 0,
    }


def plotly_time(moment: datetime) -> str:
    """The moment as Plotly reads it: UTC without a zone."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def mark_time(fig: go.Figure, moment: datetime, text: str, *, side: Literal["left", "right"]) -> None:
    """Draw a vertical line through the whole plot at `moment`, named at its top, on one side of it."""
    at = plotly_time(moment)
    fig.add_shape(
        type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"color": "var(--mark)", "width": 1.5, "dash": "dot"}
    )
    fig.add_annotation(
        x=at,
        y=1,
        yref="paper",
        text=text,
        showarrow=False,
        xanchor="right" if side == "left" else "left",
        yanchor="top",
        xshift=-4 if side == "left" else 4,
        font={"size": 12, "color": "var(--muted)"},
    )


def on_grid(frame: pl.DataFrame, *, time: str, step: timedelta) -> tuple[dict[str, Any], pl.DataFrame]:
    """The frame on a regular grid from its first to its last time, with null rows where it has none.

    Returns Plotly's `x0` and `dx` for that grid, and the frame. `frame` must have a row, and times on the grid.
    """
    first, last = frame[time].min(), frame[time].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        raise ValueError(f"column {time} of a frame of {frame.height} rows holds no times to make a grid from")
    grid = pl.datetime_range(first, last, step, time_unit="us", eager=True).alias(time).to_frame()
    x = {"x0": plotly_time(first), "dx": round(step.total_seconds() * 1000)}
    return x, grid.join(frame, on=time, how="left", maintain_order="left")


def values(series: pl.Series) -> list[float | None]:
    """The series for a figure: four significant digits, and None where there is no number."""
    return series.cast(pl.Float64).fill_nan(None).round_sig_figs(4).to_list()


def plain(text: str) -> str:
    """A name from data, as text that Plotly does not read as markup."""
    return html.escape(text, quote=False)
