"""The page of a replay: a single file that opens from disk, offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dashboards.figures.pareto import pareto_figure
from dashboards.pages import chart
from dashboards.standalone import standalone_page


@dataclass(frozen=True)
class ReplayedPool:
    """`figures` as `figures.pareto` wants them; `rows` one per policy, as the command prints them; `headline` and
    `notes` in words."""

    name: str
    headline: str
    on_time: float
    clairvoyant_gpu_hours: float | None
    figures: pl.DataFrame
    rows: pl.DataFrame
    notes: Sequence[str]


def replay_page(pools: Sequence[ReplayedPool]) -> str:
    """The HTML: for each pool its front, and every policy at the pool's promise."""
    shown = [
        {
            "pool": pool,
            "rows": pool.rows.to_dicts(),
            "chart": chart(
                pareto_figure(pool.figures, on_time=pool.on_time, clairvoyant_gpu_hours=pool.clairvoyant_gpu_hours),
                title="Cost against late tokens",
                caption="Each line is a policy, each point a margin tried: lower and to the left is better. Filled: on "
                "the common front, where no setting of any policy is both cheaper and late less often.",
                label=f"Share of late tokens over GPU-hours of pool {pool.name}, a line for each policy",
            ),
        }
        for pool in pools
    ]
    return standalone_page("replay.html", shown=shown)
