"""What `floorcast status` says of the floors in force: what is due now, and where pools are short."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl

from floorcast.types import FloorSchedule
from pipelines.cli.output import local, say, say_table


def pools_now(schedule: FloorSchedule, floors: pl.DataFrame, *, now: datetime, step: timedelta) -> list[dict[str, Any]]:
    """By pool the floor due at `now` (None where the schedule does not cover it), its rung and gate, and what is short
    from then on: replicas in the worst step, its time, and hours in all; None where nothing is.

    `floors` is FLOORS as planned for the schedule, a row for each step.
    """
    missing = pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64).alias("missing")
    short = (
        floors.filter(pl.col("window_end") > now)
        .with_columns(missing)
        .filter(pl.col("missing") > 0)
        .sort("missing", "window_start", descending=[True, False])
        .group_by("pool", maintain_order=True)
        .agg(pl.col("missing", "window_start").first(), pl.len().alias("steps"))
    )
    worst = {pool: (replicas, start, steps * step) for pool, replicas, start, steps in short.iter_rows()}
    pools = []
    for name, pool in sorted(schedule.pools.items()):
        due = next((window for window in pool.windows if window.start <= now < window.end), None)
        shortage = None
        if name in worst:
            replicas, start, length = worst[name]
            shortage = {"replicas": replicas, "worst_at": start, "hours": round(length / timedelta(hours=1), 2)}
        pools.append(
            {
                "pool": name,
                "min_replicas": None if due is None else due.min_replicas,
                "rung": pool.rung.value,
                "gate": pool.gate,
                "short": shortage,
            }
        )
    return pools


def say_pools(pools: list[dict[str, Any]], zone: str) -> None:
    say_table(
        ("pool", "floor now", "rung", "gate", "short by", "worst at", "short for"),
        (
            (
                row["pool"],
                "-" if row["min_replicas"] is None else row["min_replicas"],
                row["rung"].replace("_", " "),
                row["gate"],
                *_short(row["short"], zone),
            )
            for row in pools
        ),
    )


def _short(short: dict[str, Any] | None, zone: str) -> tuple[str, str, str]:
    if short is None:
        return "-", "-", "-"
    return f"up to {short['replicas']}", local(short["worst_at"], zone), f"{short['hours']:g} h"


def say_counts(findings: list[dict[str, Any]]) -> None:
    """`findings in the last weeks: gap 3 (0 masked), outage 2 (2 masked)`, as the page of data quality lists them."""
    kinds = sorted({row["kind"] for row in findings})
    of = {kind: [row["masked"] for row in findings if row["kind"] == kind] for kind in kinds}
    counts = (f"{kind.replace('_', ' ')} {len(masked)} ({sum(masked)} masked)" for kind, masked in of.items())
    say(f"\nfindings in the last weeks: {', '.join(counts) or 'none'}")
