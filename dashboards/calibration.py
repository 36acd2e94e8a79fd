"""The page of one calibration: a single file that opens from disk, offline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from dashboards.figures.calibration import capacity_figure, latency_figure
from dashboards.pages import chart
from dashboards.standalone import standalone_page


def calibration_page(
    runs: pl.DataFrame,
    edges: pl.DataFrame,
    *,
    prefill_tokens_per_s: float | None,
    decode_tokens_per_s: float | None,
    combine: Literal["max", "sum"],
    headline: str,
    snippet: str,
    notes: Sequence[str],
) -> str:
    """The HTML. `runs` and `edges` are as `figures.calibration` wants them."""
    plane = capacity_figure(
        edges, prefill_tokens_per_s=prefill_tokens_per_s, decode_tokens_per_s=decode_tokens_per_s, combine=combine
    )
    charts = [
        chart(
            latency_figure(runs, edges),
            title="Latency over load",
            caption="The largest latency of each run over its target. The targets are met below 1; a run of which too "
            "many requests failed is not drawn.",
            label="Lines of latency over its target against requests per second, one for each mix of tokens",
        ),
        chart(
            plane,
            title="Edges and capacity",
            caption="What one replica sustained of each mix at the edge of its targets, over the capacities fitted.",
            label="Points of tokens in and out per second at the edge, over the area that the capacities allow",
        ),
    ]
    return standalone_page("calibration.html", charts=charts, headline=headline, snippet=snippet, notes=notes)
