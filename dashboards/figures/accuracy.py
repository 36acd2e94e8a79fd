"""How good past forecasts were, and how the candidates did in backtests."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import figure, plain, values
from dashboards.text import FEW

MODELS = {
    "published": ("published", "var(--published)", "circle"),
    "last_value": ("last value", "var(--last-value)", "diamond-open"),
    "seasonal_naive": ("seasonal naive", "var(--seasonal-naive)", "square-open"),
}
"""Of each model in ACCURACY: name shown, colour and marker; the markers differ for readers who see few colours."""

_FAINT = 0.35


def wape_figure(accuracy: pl.DataFrame, *, by: str) -> go.Figure:
    """WAPE in percent of published forecasts and of both baselines, one line of dots for each value of `by`.

    `accuracy` is ACCURACY with one row per model and value of `by`, in the order to be shown.
    """
    fig = _dots(accuracy, by=by, unit="WAPE, % (less is better)")
    for model, (name, colour, symbol) in MODELS.items():
        rows = accuracy.filter(pl.col("model") == model)
        fig.add_scatter(
            x=values(rows["wape"] * 100),
            y=[plain(label) for label in rows[by]],
            name=name,
            mode="markers",
            marker={
                "color": colour,
                "symbol": symbol,
                "size": 10,
                "opacity": _opacity(rows),
                "line": {"width": 2, "color": colour},
            },
            hovertemplate="%{x:.3~r} % WAPE",
        )
    return fig.update_xaxes(rangemode="tozero")


def calibration_figure(accuracy: pl.DataFrame, *, by: str, nominal: Mapping[str, float]) -> go.Figure:
    """By how many points the share of steps at or under the published quantile misses its nominal value.

    `accuracy` is ACCURACY, of which only `published` rows are drawn; `nominal` gives each class its quantile.
    Below zero demand passed the quantile too often.
    """
    rows = accuracy.filter((pl.col("model") == "published") & pl.col("calibration").is_not_null())
    levels = [nominal[name] for name in rows["workload_class"]]
    miss = rows["calibration"] - pl.Series(levels, dtype=pl.Float64)
    fig = _dots(rows, by=by, unit="miss, percentage points")
    fig.add_scatter(
        x=values(miss * 100),
        y=[plain(label) for label in rows[by]],
        name="published",
        mode="markers",
        marker={"color": "var(--published)", "symbol": "circle", "size": 10, "opacity": _opacity(rows)},
        customdata=list(zip(values(rows["calibration"] * 100), values(pl.Series(levels) * 100), strict=True)),
        hovertemplate="%{customdata[0]} % of steps at or under the %{customdata[1]} % quantile",
        showlegend=False,
    )
    fig.add_vrect(x0=-2, x1=2, fillcolor="var(--band-95)", line_width=0, layer="below")
    fig.add_vline(x=0, line={"color": "var(--mark)", "width": 1.5, "dash": "dot"})
    reach = max([3.0, *(abs(x) * 100 * 1.15 for x in miss)])
    return fig.update_xaxes(range=[-reach, reach], ticksuffix="", zeroline=False)


def backtest_figure(scores: pl.DataFrame) -> go.Figure:
    """Pinball loss of each candidate of one class and metric, best on top, the chosen one filled.

    `scores` is SCORES of one class and metric; candidates without a score (disqualified) are left out.
    """
    rows = scores.filter(pl.col("pinball").is_not_null()).sort("pinball", descending=True)
    fig = figure(
        height=90 + 30 * max(rows.height, 1),
        hovermode="closest",
        showlegend=False,
        bargap=0.35,
        xaxis={"rangemode": "tozero", "tickformat": "~s", "title": _title("pinball, tokens/s (less is better)")},
    )
    fig.add_bar(
        x=values(rows["pinball"]),
        y=[plain(model) for model in rows["model"]],
        orientation="h",
        marker={
            "color": ["var(--published)" if chosen else "var(--candidate)" for chosen in rows["chosen"]],
        },
        customdata=values(rows["wape"] * 100),
        hovertemplate="pinball %{x:,.4~r} tokens/s; WAPE of the median %{customdata} %<extra>%{y}</extra>",
    )
    return fig


def _opacity(accuracy: pl.DataFrame) -> list[float]:
    """Faint where the accuracy rests on few forecasts."""
    return [_FAINT if steps < FEW else 1.0 for steps in accuracy["steps"]]


def _dots(rows: pl.DataFrame, *, by: str, unit: str) -> go.Figure:
    labels = [plain(label) for label in rows[by].unique(maintain_order=True)]
    return figure(
        height=130 + 34 * max(len(labels), 1),
        hovermode="y unified",
        xaxis={"title": _title(unit), "tickformat": "~r"},
        yaxis={"type": "category", "categoryorder": "array", "categoryarray": labels, "autorange": "reversed"},
    )


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 12, "color": "var(--muted)"}}
