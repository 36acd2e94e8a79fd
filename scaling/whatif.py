"""Two plans of the same fleet at the same time, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from floorcast.config import Config
from floorcast.units import format_duration, format_time


@dataclass(frozen=True)
class Totals:
    """A pool's floors over the horizon. `short_replica_hours` are wanted and not granted; `usd` is None where the price
    of a GPU is not known."""

    most: int
    mean: float
    replica_hours: float
    short_replica_hours: float
    usd: float | None


@dataclass(frozen=True)
class Hour:
    """The mean floors of a pool in the hour from `start`."""

    pool: str
    start: datetime
    before: float
    after: float


def totals(config: Config, floors: pl.DataFrame) -> dict[str, Totals]:
    """By pool, in name order, what a FLOORS frame comes to."""
    hours = (pl.col("window_end") - pl.col("window_start")).dt.total_seconds() / 3600
    short = pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64)
    found = {}
    for pool, most, replica_hours, short_hours, spanned in (
        floors.group_by("pool")
        .agg(
            pl.col("min_replicas").max().alias("most"),
            (pl.col("min_replicas") * hours).sum().alias("replica_hours"),
            (short * hours).sum().alias("short"),
            hours.sum().alias("spanned"),
        )
        .sort("pool")
        .iter_rows()
    ):
        gpu = config.pools[pool].gpu
        usd = None if gpu.price is None else replica_hours * gpu.per_replica * gpu.price
        found[pool] = Totals(most, replica_hours / spanned, replica_hours, short_hours, usd)
    return found


def together(pools: dict[str, Totals]) -> Totals:
    """All pools added up; `most` is the sum of each pool's, which they need not reach at the same time."""
    usd = [one.usd for one in pools.values() if one.usd is not None]
    return Totals(
        most=sum(one.most for one in pools.values()),
        mean=sum(one.mean for one in pools.values()),
        replica_hours=sum(one.replica_hours for one in pools.values()),
        short_replica_hours=sum(one.short_replica_hours for one in pools.values()),
        usd=sum(usd) if len(usd) == len(pools) else None,
    )


def hours_apart(before: pl.DataFrame, after: pl.DataFrame, *, count: int) -> list[Hour]:
    """The `count` hours in which the floors of a pool differ most, in order of time; fewer where fewer differ."""
    key = ["pool", "window_start"]
    mean = (
        before.select(*key, before="min_replicas")
        .join(after.select(*key, after="min_replicas"), on=key)
        .group_by("pool", pl.col("window_start").dt.truncate("1h").alias("start"))
        .agg(pl.col("before", "after").mean())
        .filter(pl.col("before") != pl.col("after"))
        .sort((pl.col("after") - pl.col("before")).abs(), "pool", "start", descending=[True, False, False])
        .head(count)
        .sort("start", "pool")
    )
    return [Hour(**row) for row in mean.select("pool", "start", "before", "after").to_dicts()]


def remarks(given: Config, tried: Config, *, start: datetime, covered_until: datetime | None) -> list[str]:
    """What to know before believing the comparison: what the stored forecasts were not made for.

    `start` is that of the first window, `covered_until` the end of the forecasts that end first, None without any.
    """
    notes = []
    if given.horizon != tried.horizon:
        notes.append(
            f"the horizons differ, {format_duration(given.horizon)} and {format_duration(tried.horizon)}: replica-"
            "hours and USD are of spans of different length"
        )
    if covered_until is None:
        notes.append("nothing is forecast for this time: both plans rest on past weeks or fallback_replicas")
    for name in sorted(given.pools.keys() & tried.pools.keys()):
        fitted, asked = given.lead_steps(name), tried.lead_steps(name)
        if fitted != asked:
            notes.append(
                f"{name}: the stored forecasts are fitted for a lead window of {fitted} steps, not of {asked}; "
                "after such a change the next fit is for its own, and may ask for other floors"
            )
        needed = start + (tried.horizon_steps + asked - 1 + tried.longest_wait_steps) * tried.step
        if covered_until is not None and needed > covered_until:
            notes.append(
                f"{name}: the last windows look ahead to {format_time(needed)}, the forecasts to "
                f"{format_time(covered_until)}; past weeks stand in where they can"
            )
        levels = given.pools[name].margin.quantile, tried.pools[name].margin.quantile
        if levels[0] != levels[1]:
            notes.append(
                f"{name}: models and the share that classes keep together are chosen at quantile {levels[0]:g}, "
                f"not at {levels[1]:g}"
            )
    return notes
