"""What a load test showed of one replica: latency over load, and its edges over the capacities fitted to them."""

from __future__ import annotations

from typing import Literal

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import figure, plain, values

_COLOURS = ("var(--published)", "var(--floor)", "var(--seasonal-naive)", "var(--last-value)", "var(--observed)")


def latency_figure(runs: pl.DataFrame, edges: pl.DataFrame) -> go.Figure:
    """Latency over its target against requests per second of one replica, a line for each mix.

    `runs` has columns mix, requests_per_s and strain (the largest latency over its target; null where too many requests
    failed), in the order drawn; `edges` has mix, requests_per_s, and knee_per_s with knee_strain, null for none. The
    targets are met below the line at 1.
    """
    fig = figure(
        height=380,
        xaxis={"rangemode": "tozero", "title": {"text": "requests/s of one replica"}},
        yaxis={"type": "log", "title": {"text": "latency / target"}, "tickformat": ".3~r"},
    )
    fig.add_hline(y=1, line={"color": "var(--mark)", "width": 1.5, "dash": "dot"})
    for place, mix in enumerate(edges["mix"]):
        colour, own = _COLOURS[place % len(_COLOURS)], runs.filter(mix=mix)
        fig.add_scatter(
            x=values(own["requests_per_s"]),
            y=values(own["strain"]),
            name=plain(mix),
            mode="lines+markers",
            line={"color": colour, "width": 1.8},
            hovertemplate="%{x:.3~r} requests/s: %{y:.3~r} of the target",
        )
    _add_points(fig, edges["requests_per_s"], pl.Series([1.0] * edges.height), "edge", "diamond")
    knees = edges.filter(pl.col("knee_per_s").is_not_null())
    _add_points(fig, knees["knee_per_s"], knees["knee_strain"], "knee", "circle-open")
    return fig


def capacity_figure(
    edges: pl.DataFrame,
    *,
    prefill_tokens_per_s: float | None,
    decode_tokens_per_s: float | None,
    combine: Literal["max", "sum"],
) -> go.Figure:
    """The edges in tokens in and out per second, over what one replica sustains by the capacities fitted.

    `edges` has columns mix, tokens_in_per_s, tokens_out_per_s. A capacity that is None limits nothing.
    """
    fig = figure(
        height=380,
        xaxis={"rangemode": "tozero", "title": {"text": "tokens in per s"}, "tickformat": "~s"},
        yaxis={"rangemode": "tozero", "title": {"text": "tokens out per s"}, "tickformat": "~s"},
    )
    most_in, most_out = (max(edges[name].to_list()) for name in ("tokens_in_per_s", "tokens_out_per_s"))
    right, top = prefill_tokens_per_s or 1.1 * most_in, decode_tokens_per_s or 1.1 * most_out
    corner = [(right, top)] if combine == "max" else []
    outline = [(0.0, top), *corner, (right, 0.0)]
    fig.add_scatter(
        x=[x for x, _ in outline],
        y=[y for _, y in outline],
        name=f"sustained ({combine})",
        mode="lines",
        fill="tozeroy",
        fillcolor="var(--band-95)",
        line={"color": "var(--median)", "width": 1.8},
        hoverinfo="skip",
    )
    fig.add_scatter(
        x=values(edges["tokens_in_per_s"]),
        y=values(edges["tokens_out_per_s"]),
        text=[plain(mix) for mix in edges["mix"]],
        name="edge",
        mode="markers",
        marker={"color": "var(--floor)", "symbol": "diamond", "size": 11},
        hovertemplate="%{text}: %{x:,.0f} in, %{y:,.0f} out",
    )
    return fig


def _add_points(fig: go.Figure, x: pl.Series, y: pl.Series, name: str, symbol: str) -> None:
    if x.is_empty():
        return
    fig.add_scatter(
        x=values(x),
        y=values(y),
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 12, "color": "var(--text)", "line": {"width": 2, "color": "var(--text)"}},
        hovertemplate=f"{name} at %{{x:.3~r}} requests/s",
    )
