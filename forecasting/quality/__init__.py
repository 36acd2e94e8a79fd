"""What is suspicious about demand, and what of it must not be believed.

A masked step is missing to the forecaster in both metrics. Only what cannot be traffic is masked: a real surge that is
called an error costs more than an error that is taken for traffic. A class that stops while others go on is idle, which
is no finding.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import FINDINGS, empty
from forecasting.quality.grid import Grid, frame, mask_of
from forecasting.quality.levels import level_shifts, spikes, unit_jumps
from forecasting.quality.presence import clock_skew, gaps, outage_steps, outages, partials
from forecasting.quality.repeats import duplicated_intervals, flat_lines

__all__ = ["clock_skew", "find", "masked_steps", "outage_steps"]


def find(
    demand: pl.DataFrame, *, step: timedelta, classes: Collection[str], end: datetime, counted: Collection[str] = ()
) -> pl.DataFrame:
    """FINDINGS about the DEMAND rows of the classes before `end`. For `counted` see `outage_steps`.

    Each kind is looked for in what the kinds before it have not masked.
    """
    known = demand.filter(pl.col("workload_class").is_in(list(classes)), pl.col("step_start") < end)
    if known.is_empty():
        return empty(FINDINGS)
    grid = Grid.of(known, step=step, end=end)
    found = [*gaps(grid), *partials(grid), *outages(grid, outage_steps(known, step=step, counted=counted))]
    for kind in (flat_lines, duplicated_intervals, unit_jumps, level_shifts, spikes):
        found += kind(grid.without(mask_of(found, grid)))
    return frame(found, grid).sort("start", "kind", "workload_class", "metric")


def masked_steps(findings: pl.DataFrame, *, step: timedelta, classes: Collection[str]) -> pl.DataFrame:
    """The steps that masked FINDINGS cover. Columns: workload_class, step_start, reason (a kind); each step once."""
    steps = findings.filter("masked").select(
        "workload_class", step_start=pl.datetime_ranges("start", "end", step, closed="left"), reason="kind"
    )
    steps = steps.explode("step_start")
    every = pl.DataFrame({"workload_class": list(classes)}, schema={"workload_class": pl.String()})
    of_all = steps.filter(pl.col("workload_class") == "").drop("workload_class").join(every, how="cross")
    return (
        pl.concat([steps.filter(pl.col("workload_class") != ""), of_all.select(steps.columns)])
        .unique(["workload_class", "step_start"], keep="first", maintain_order=True)
        .sort("workload_class", "step_start")
    )
