"""The page of one calibration: a single file that opens from disk, offline."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards.figures.calibration import capacity_figure, latency_figure
from dashboards.pages import chart
from floorcast import __version__

_HERE = Path(__file__).parent


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
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    assets = {name: Markup((_HERE / "assets" / f"site.{name}").read_text(encoding="utf-8")) for name in ("css", "js")}
    plotly_js = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return environment.get_template("calibration.html").render(
        charts=charts,
        headline=headline,
        snippet=snippet,
        notes=notes,
        floorcast_version=__version__,
        plotly_js=Markup(plotly_js),
        **assets,
    )
