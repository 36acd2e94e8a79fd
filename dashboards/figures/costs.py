"""What the floors of the horizon cost, by the class that causes it."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboards.figures.style import figure, plain, values


def cost_figure(costs: pl.DataFrame) -> go.Figure:
    """USD over the horizon, a bar for each class, its pools beside one another in it.

    `costs` is COSTS with a price in every row. The dearest class is at the top.
    """
    by_pool = costs.group_by("workload_class", "pool").agg(pl.col("usd").sum()).sort("pool", "workload_class")
    dearest = by_pool.group_by("workload_class").agg(pl.col("usd").sum()).sort("usd", "workload_class")
    names = [plain(name) for name in dearest["workload_class"]]
    fig = figure(
        height=90 + 34 * len(names),
        barmode="stack",
        xaxis={"title": {"text": "USD over the horizon"}, "rangemode": "tozero", "tickformat": "$,~r"},
        yaxis={"categoryorder": "array", "categoryarray": names},
    )
    for (pool,), rows in by_pool.partition_by("pool", as_dict=True, maintain_order=True).items():
        fig.add_bar(
            x=values(rows["usd"]),
            y=[plain(name) for name in rows["workload_class"]],
            name=plain(str(pool)),
            orientation="h",
            hovertemplate="%{x:$,.2f}",
        )
    return fig
