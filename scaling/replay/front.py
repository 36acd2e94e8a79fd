"""Cost against service over a sweep of margins: which settings are worth having."""

from __future__ import annotations

import numpy as np
import polars as pl

from scaling.capacity import Floats


def front(figures: pl.DataFrame) -> pl.DataFrame:
    """Lanes with `policy` (String), gpu_hours and on_time_share: the same rows by policy and cost, with `on_front`,
    whether no row at all is both no dearer and no later, and better in one of the two. The first of equals is on it."""
    order = figures.with_row_index("_place").sort(
        "gpu_hours", "on_time_share", "_place", descending=[False, True, False]
    )
    best_before = pl.col("on_time_share").cum_max().shift(1)
    marked = order.with_columns(on_front=best_before.is_null() | (pl.col("on_time_share") > best_before))
    return marked.sort("policy", "gpu_hours", "_place").drop("_place")


def cost_at(figures: pl.DataFrame, share: float) -> pl.DataFrame:
    """By policy: `gpu_hours` at which this share of the tokens is on time, read off the policy's own front, linear
    between the settings tried; null where none of them is. Columns policy, gpu_hours, in the order of appearance."""
    rows = [
        {"policy": policy, "gpu_hours": reached(own["gpu_hours"].to_numpy(), own["on_time_share"].to_numpy(), share)}
        for (policy,), own in figures.group_by("policy", maintain_order=True)
    ]
    return pl.DataFrame(rows, schema={"policy": pl.String, "gpu_hours": pl.Float64})


def reached(hours: Floats, shares: Floats, share: float) -> float | None:
    """Of settings that cost `hours` with `shares` on time, the cost at which `share` is, as `cost_at` reads it off."""
    order = np.lexsort((-shares, hours))
    best, costs = np.maximum.accumulate(shares[order]), hours[order]
    found = np.flatnonzero(best >= share - 1e-12)
    if not found.size:
        return None
    at = int(found[0])
    if at and best[at] > best[at - 1]:
        return float(np.interp(share, best[at - 1 : at + 1], costs[at - 1 : at + 1]))
    return float(costs[at])
