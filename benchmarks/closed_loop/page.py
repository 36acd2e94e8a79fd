"""The page of a run: what each pool asked for, had and owed, with the faults as shaded spans; and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path as FilePath

import numpy as np
import plotly.graph_objects as go

from benchmarks.closed_loop.judge import Published, Row
from benchmarks.closed_loop.paths import Path, Seen
from benchmarks.closed_loop.scenario import EXPECTED, START, STEP_S, UNEXPECTED
from dashboards.figures.style import figure, plotly_time, time_axis
from dashboards.pages import Chart, chart
from dashboards.standalone import standalone_page

STRIDE = 6
"""Steps of a path that are drawn as one."""


def closed_loop_page(seen: Seen, rows: Sequence[Row], workloads: Mapping[str, str], machine: str) -> str:
    """The HTML. `workloads` names each pool's class."""
    published = Published(seen.publications)
    shown = [
        {"pool": pool, "chart": _chart(pool, path, seen, published, workloads[pool]), "late": _late_of(path)}
        for pool, path in seen.paths.items()
    ]
    hours = timedelta(minutes=seen.minutes)
    return standalone_page(
        "closed_loop.html",
        folder=FilePath(__file__).parent,
        rows=[vars(row) for row in rows],
        shown=shown,
        hours=f"{hours.total_seconds() / 3600:.1f}",
        speed=f"{seen.speed:g}",
        failed=sum(bool(row.failures) for row in rows),
        machine=machine,
    )


def _chart(pool: str, path: Path, seen: Seen, published: Published, workload_class: str) -> Chart:
    fig = figure(
        height=460,
        hovermode="x unified",
        xaxis=time_axis(),
        yaxis={"rangemode": "tozero", "title": {"text": "replicas"}, "domain": [0.27, 1]},
        yaxis2={
            "rangemode": "tozero",
            "title": {"text": "late, %"},
            "domain": [0, 0.17],
            "range": [0, 100],
            "gridcolor": "var(--grid)",
            "anchor": "x",
        },
    )
    fig.update_xaxes(anchor="y2")
    _shade(fig, seen)
    at, steps = _times(len(path.demand))
    mean = [float(one.mean()) for one in np.split(path.demand / 0.75, steps[1:])]
    fig.add_scatter(
        x=at, y=_rounded(mean), name="needed by demand", mode="lines", fill="tozeroy", line=_line("median", 1)
    )
    fig.data[-1].fillcolor = "var(--band-95)"
    fig.add_scatter(x=at, y=path.ready[steps].tolist(), name="ready", mode="lines", line=_line("good", 2, hv=True))
    answered = [one for one in seen.samples if one.fault is None]
    read_at = [plotly_time(START + timedelta(minutes=seen.minute(one.at))) for one in answered]
    decided = [one.decisions[pool]["desired"] for one in answered]
    in_force = [one.decisions[pool]["floor"] for one in answered]
    fig.add_scatter(x=read_at, y=decided, name="decision", mode="lines", line=_line("published", 4, hv=True))
    fig.add_scatter(x=read_at, y=in_force, name="floor in force", mode="lines", line=_line("floor", 1.8, hv=True))
    due = [published.due(pool, one.at) for one in answered]
    fig.add_scatter(
        x=read_at, y=due, name="floor published", mode="lines", line=_line("muted", 1.2, hv=True) | {"dash": "dot"}
    )
    late = [float(one.sum()) for one in np.split(path.late, steps[1:])]
    came = [float(one.sum()) for one in np.split(path.tokens, steps[1:])]
    share = [100 * part / whole if whole else 0.0 for part, whole in zip(late, came, strict=True)]
    fig.add_bar(
        x=at, y=_rounded(share), name="tokens late", yaxis="y2", marker={"color": "var(--bad)"}, showlegend=False
    )
    return chart(
        fig,
        title=pool,
        caption=_caption(workload_class),
        label=f"Replicas of pool {pool} over the run: needed, ready, decided, floor; below, the share of late tokens",
    )


def _caption(workload_class: str) -> str:
    parts = ["Needed: demand at a utilization of 75 %. Shaded: faults, by the numbers of the table."]
    for name, of, begin, end, factor in (EXPECTED, *UNEXPECTED):
        if of == workload_class:
            known = "published as an event" if name == EXPECTED[0] else "which nobody announced"
            clock = [f"{START + timedelta(minutes=minute):%H:%M}" for minute in (begin, end)]
            parts.append(f"From {clock[0]} to {clock[1]} demand is {factor:g} times as large, {known}.")
    return " ".join(parts)


def _shade(fig: go.Figure, seen: Seen) -> None:
    for number, span in enumerate(seen.spans, start=1):
        begin, end = (plotly_time(START + timedelta(minutes=seen.minute(at))) for at in (span.began, span.ended))
        fig.add_shape(
            type="rect",
            x0=begin,
            x1=end,
            y0=0,
            y1=1,
            yref="paper",
            layer="below",
            line_width=0,
            fillcolor="var(--grid)",
        )
        fig.add_annotation(
            x=begin, y=1, yref="paper", text=str(number), showarrow=False, xanchor="left", yanchor="top",
            font={"size": 12, "color": "var(--muted)"},
        )  # fmt: skip


def _line(role: str, width: float, *, hv: bool = False) -> dict[str, object]:
    return {"color": f"var(--{role})", "width": width, "shape": "hv" if hv else "linear"}


def _times(steps: int) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    picked = np.arange(0, steps, STRIDE)
    return [plotly_time(START + timedelta(seconds=STEP_S * float(one))) for one in picked], picked


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in values]


def _late_of(path: Path) -> float:
    return float(path.late.sum() / path.tokens.sum())
