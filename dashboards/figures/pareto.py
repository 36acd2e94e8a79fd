"""Cost against service: what each policy pays for how few late tokens."""

from __future__ import annotations

from math import log10

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import figure, plain, values

_LEAST_LATE = 1e-5
"""Drawn for this share and less, since a logarithmic axis has no place for none."""
_COLOURS = {
    "floorcast": "var(--floor)",
    "hybrid": "var(--published)",
    "target_tracking": "var(--observed)",
    "lookahead": "var(--good)",
    "last_value": "var(--last-value)",
    "seasonal_naive": "var(--seasonal-naive)",
}
_OTHER = ("var(--muted)", "var(--bound)", "var(--candidate)")
_ROOM = 0.04
"""Of the axis, left free on both sides."""
_SYMBOLS = ("circle", "square", "triangle-up", "x")


def pareto_figure(figures: pl.DataFrame, *, on_time: float, clairvoyant_gpu_hours: float | None) -> go.Figure:
    """Share of tokens late over GPU-hours, a line per policy through its margins. Lower and to the left is better.

    `figures` has columns policy, margin (null for none), gpu_hours, on_time_share and on_front, ordered by policy and
    cost; points on the common front are filled. A dotted line marks the promise, a dashed one the clairvoyant's cost.
    """
    costs = [*figures["gpu_hours"], *([] if clairvoyant_gpu_hours is None else [clairvoyant_gpu_hours])]
    room = _ROOM * (max(costs) - min(costs))
    fig = figure(
        height=560,
        legend={
            "xref": "container",
            "yref": "container",
            "x": 0,
            "y": 1,
            "yanchor": "top",
            "font": {"size": 12},
        },
        xaxis={
            "title": {"text": "GPU-hours"},
            "tickformat": ",~r",
            **({"range": [min(costs) - room, max(costs) + room]} if room else {}),
        },
        yaxis={
            "type": "log",
            "title": {"text": "tokens late, %"},
            "tickvals": [0.001, 0.01, 0.1, 1, 10, 100],
            "ticktext": ["≤ 0.001", "0.01", "0.1", "1", "10", "100"],
            "range": [-3.15, 2.1],
        },
    )
    others = 0
    for (policy,), own in figures.group_by("policy", maintain_order=True):
        name = str(policy)
        colour = _COLOURS.get(name)
        if colour is None:
            colour, others = _OTHER[others % len(_OTHER)], others + 1
        late = (1 - own["on_time_share"]).clip(lower_bound=_LEAST_LATE) * 100
        fig.add_scatter(
            x=values(own["gpu_hours"]),
            y=values(late),
            name=plain(name.replace("_", " ")),
            mode="lines+markers" if own.height > 1 else "markers",
            line={"color": colour, "width": 2.4 if name == "floorcast" else 1.4},
            marker={
                "color": colour,
                "size": 9 if name == "floorcast" else 7,
                "symbol": [
                    _SYMBOLS[others % len(_SYMBOLS)] + ("" if on_front else "-open") for on_front in own["on_front"]
                ],
            },
            customdata=[
                ["" if margin is None else f", margin {margin:+.0%}", f"{share:.3%}"]
                for margin, share in zip(own["margin"], own["on_time_share"], strict=True)
            ],
            hovertemplate="%{x:,.0f} GPU-hours, %{customdata[1]} on time%{customdata[0]}",
        )
    promise = max(1 - on_time, _LEAST_LATE) * 100
    fig.add_hline(y=promise, line={"color": "var(--mark)", "width": 1.5, "dash": "dot"})
    _name_line(fig, f"promise: {100 * on_time:g} % on time", x=1, xref="paper", y=promise, anchor="right")
    if clairvoyant_gpu_hours is not None:
        fig.add_vline(x=clairvoyant_gpu_hours, line={"color": "var(--mark)", "width": 1.5, "dash": "dash"})
        _name_line(fig, "clairvoyant", x=clairvoyant_gpu_hours, xref="x", y=50, anchor="left")
    return fig


def _name_line(fig: go.Figure, text: str, *, x: float, xref: str, y: float, anchor: str) -> None:
    # Annotations on a logarithmic axis are placed by the logarithm.
    fig.add_annotation(
        x=x,
        xref=xref,
        y=log10(y),
        text=text,
        showarrow=False,
        xanchor=anchor,
        xshift=4 if anchor == "left" else 0,
        yanchor="bottom",
        font={"size": 12, "color": "var(--muted)"},
    )
