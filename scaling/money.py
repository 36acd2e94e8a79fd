"""What floors cost, whose cost it is, and what mix of reserved, on-demand and spot GPUs would cost least. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from floorcast.columns import COSTS, MEDIAN, Schema, conform
from floorcast.config import Config
from floorcast.replica import Gpu
from floorcast.types import Reason
from scaling.admission import class_parts
from scaling.capacity import Floats
from scaling.demand import METRICS
from scaling.pool_demand import DECISIVE


def costs(config: Config, *, floors: pl.DataFrame, forecasts: pl.DataFrame) -> pl.DataFrame:
    """What the floors (FLOORS) of each pool cost, by class and day in `config.zone`: a COSTS frame.

    A floor's GPUs are divided among the pool's classes by their shares of the binding demand that made it, and their
    tokens are the medians of `forecasts` (FORECASTS), of the part placed on the pool: tokens in of a prefill pool, out
    of a decode pool, so that none counts twice. A pool without a price, or no
    longer configured, has GPU-hours and no cost; who takes no GPU has no row.
    """
    rows = []
    for row in floors.filter(pl.col("pool").is_in(list(config.pools))).iter_rows(named=True):
        reason = Reason.model_validate_json(row["reason"])
        pool = config.pools[row["pool"]]
        hours = (row["window_end"] - row["window_start"]).total_seconds() / 3600
        gpu_hours = row["min_replicas"] * pool.gpu.per_replica * hours
        rates = np.array([[[one.tokens_in_per_s], [one.tokens_out_per_s]] for one in reason.classes.values()])
        parts = class_parts(rates, np.array([reason.binding]), pool.capacity)[:, 0].tolist()
        for (name, one), part in zip(reason.classes.items(), parts, strict=True):
            rows.append((row["pool"], name, row["window_start"], gpu_hours * part, hours, one.share))
    columns: Schema = {
        "pool": pl.String(),
        "workload_class": pl.String(),
        "step_start": floors.schema["window_start"],
        "gpu_hours": pl.Float64(),
        "hours": pl.Float64(),
        "share": pl.Float64(),
    }
    steps = pl.DataFrame(rows, schema=columns, orient="row")
    prices = {name: pool.gpu.price for name, pool in config.pools.items()}
    does = {
        metric: [name for name, pool in config.pools.items() if metric in METRICS[DECISIVE[pool.role]]]
        for metric in METRICS
    }
    known = (
        forecasts.sort("cutoff")
        .unique(["workload_class", "metric", "step_start"], keep="last")
        .group_by("workload_class", "step_start")
        .agg(
            *(pl.col(MEDIAN).filter(pl.col("metric") == metric.value).sum().alias(metric.value) for metric in METRICS),
            metrics=pl.len(),
        )
        .filter(pl.col("metrics") == 2)
    )
    day = pl.col("step_start").dt.convert_time_zone(ZoneInfo(config.zone).key).dt.date()
    # A step without a forecast leaves the day's tokens unknown: cost per token would be of another time.
    tokens_in, tokens_out = (
        pl.col(metric.value) * pl.col("pool").is_in(does[metric]).cast(pl.Float64) for metric in METRICS
    )
    tokens = (tokens_in + tokens_out) * pl.col("hours") * 3600 * pl.col("share")
    made = (
        steps.join(known, on=["workload_class", "step_start"], how="left")
        .group_by("pool", "workload_class", day=day)
        .agg(
            pl.col("gpu_hours").sum(),
            tokens=pl.when(tokens.is_null().any()).then(None).otherwise(tokens.sum()),
        )
        .with_columns(price=pl.col("pool").replace_strict(prices, return_dtype=pl.Float64))
        .with_columns(usd=pl.col("gpu_hours") * pl.col("price"))
        .filter(pl.col("gpu_hours") > 0)
        .sort("pool", "workload_class", "day")
    )
    return conform(made, COSTS)


@dataclass(frozen=True)
class Split:
    """GPUs of one type and region at the prices of `gpu`, over the hours of the floors.

    `reserved_gpus` are paid for all the time, used or not; what floors need above is on demand, or spot as far as
    `gpu.max_spot_share` of what is needed allows. `usd` is the cost of that, `on_demand_usd` that of all on demand.
    """

    gpu: Gpu
    region: str | None
    pools: tuple[str, ...]
    reserved_gpus: int
    reserved_gpu_hours: float
    on_demand_gpu_hours: float
    spot_gpu_hours: float
    usd: float
    on_demand_usd: float


def splits(config: Config, floors: pl.DataFrame) -> Iterator[Split]:
    """The cheapest split of each kind of GPU, over pools of one type, region and prices. Without a price, or without
    another to choose, there is none; spot pools are spot already."""
    groups: dict[tuple[Gpu, str | None], list[str]] = {}
    for name, pool in sorted(config.pools.items()):
        gpu = pool.gpu
        offers = gpu.reserved_usd_per_gpu_hour or (gpu.spot_usd_per_gpu_hour and gpu.max_spot_share)
        if gpu.price is not None and not gpu.spot and offers:
            groups.setdefault((gpu.model_copy(update={"per_replica": 1}), pool.region), []).append(name)
    per_replica = {name: pool.gpu.per_replica for name, pool in config.pools.items()}
    for (gpu, region), pools in groups.items():
        gpus = pl.col("min_replicas") * pl.col("pool").replace_strict(per_replica, default=0, return_dtype=pl.Int64)
        used = (
            floors.filter(pl.col("pool").is_in(pools))
            .group_by("window_start", "window_end")
            .agg(gpus=gpus.sum())
            .sort("window_start")
            .with_columns(hours=(pl.col("window_end") - pl.col("window_start")).dt.total_seconds() / 3600)
        )
        yield _cheapest(gpu, region, tuple(pools), used["gpus"].to_numpy().astype(float), used["hours"].to_numpy())


def _cheapest(gpu: Gpu, region: str | None, pools: tuple[str, ...], used: Floats, hours: Floats) -> Split:
    """The reserved base of least cost, the least of equals.

    With on-demand alone beside it this is the newsvendor's rule: the k-th GPU is worth reserving where the share of
    time in which k or more are used exceeds reserved price / on-demand price. With spot for a share of what is used,
    cost is still convex in the base and linear between the points tried: each window's use, and its use less its spot.
    """
    on_demand, spot_share = gpu.usd_per_gpu_hour, gpu.max_spot_share if gpu.spot_usd_per_gpu_hour else 0.0
    spot_usd = min(gpu.spot_usd_per_gpu_hour or on_demand, on_demand)
    points = np.concatenate([[0.0], used, used * (1 - spot_share)]) if gpu.reserved_usd_per_gpu_hour else np.zeros(1)
    bases = np.unique(np.concatenate([np.floor(points), np.ceil(points)]))
    above = np.maximum(used - bases[:, None], 0)
    spot = np.minimum(above, spot_share * used)
    reserved_usd = (gpu.reserved_usd_per_gpu_hour or 0.0) * bases * hours.sum()
    usd = reserved_usd + (spot * spot_usd + (above - spot) * on_demand) @ hours
    best = int(np.argmin(np.round(usd, 6)))
    return Split(
        gpu=gpu,
        region=region,
        pools=pools,
        reserved_gpus=int(bases[best]),
        reserved_gpu_hours=float(bases[best] * hours.sum()),
        on_demand_gpu_hours=float((above - spot)[best] @ hours),
        spot_gpu_hours=float(spot[best] @ hours),
        usd=float(usd[best]),
        on_demand_usd=float(used @ hours * on_demand),
    )
