"""What the replicas of a pool were given to do, step by step, and whether requests waited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.config import Config
from floorcast.pool import Pool
from scaling.capacity import Floats, Strings, required_replicas

QUIET = 0.1
"""Requests waiting per replica, as a step's mean, under which nothing queues: engines let one wait for an instant."""

QUEUED = 1.0
"""From here on requests queue. Between the two it cannot be told."""

_WHOLE = 0.9
"""A step of which less was observed tells too little of its rate."""

_STEADY = 0.9
"""A step with fewer replicas than this share of its most does not say what each of them did."""


def loaded_steps(
    config: Config, pool: str, load: pl.DataFrame, demand: pl.DataFrame, cached: pl.DataFrame
) -> pl.DataFrame:
    """The steps in which both the pool's replicas and all that its classes sent them are known, in order.

    `load` is POOL_LOAD of the pool, `demand` DEMAND free of outages, `cached` CACHED_TOKENS. Columns: step_start,
    ready_min, ready_max, waiting_requests, tokens_in_per_s and tokens_out_per_s (of the pool).

    Tokens in are those to be computed, as capacities are given: without those that the prefix cache held by the
    class's counts, whose steps without one are not known, or by its own `prefix_cache.share`. A step is left out of
    which a class has no demand, or under 90 % was observed, and one in which replicas came or went by over a tenth.
    """
    names = config.classes_of(pool)
    seconds = pl.col("observed_fraction") * config.step_s
    counted = set(cached["workload_class"].unique())
    rates = (
        demand.filter(pl.col("workload_class").is_in(names), pl.col("observed_fraction") >= _WHOLE)
        .join(cached, on=["workload_class", "step_start"], how="left")
        .with_columns(spared=_spared(config, names, counted))
        .group_by("step_start")
        .agg(
            tokens_in_per_s=((pl.col("tokens_in") - pl.col("spared")).clip(0) / seconds).sum(),
            tokens_out_per_s=(pl.col("tokens_out") / seconds).sum(),
            known=pl.col("spared").count(),
        )
        .filter(pl.col("known") == len(names))
        .drop("known")
    )
    steady = (pl.col("ready_max") > 0) & (pl.col("ready_min") >= _STEADY * pl.col("ready_max"))
    return load.filter(steady).drop("pool").join(rates, on="step_start").sort("step_start")


def _spared(config: Config, names: Sequence[str], counted: set[str]) -> pl.Expr:
    """Tokens in that cost nothing; null where that is not known."""
    expression = pl.lit(0.0)
    for name in names:
        share = config.classes[name].prefix_cache.share
        if share is not None:
            own = pl.col("tokens_in") * share
        elif name in counted:
            own = pl.col("cached_tokens_in")
        else:
            continue
        expression = pl.when(pl.col("workload_class") == name).then(own).otherwise(expression)
    return expression


def per_replica(steps: pl.DataFrame, *, most: bool = False) -> Floats:
    """Tokens in and out per second of one replica: [steps, 2]. The least that it may have been; the `most` of it."""
    replicas = steps["ready_min" if most else "ready_max"].to_numpy()
    rates: Floats = steps.select("tokens_in_per_s", "tokens_out_per_s").to_numpy() / replicas[:, None]
    return rates


def load_of(rates: Floats, pool: Pool) -> tuple[Floats, Strings]:
    """Load of one replica with these rates [steps, 2], as a share of its whole configured capacity, and the term of the
    capacity formula that decides: [steps]."""
    replicas, binding = required_replicas(
        tokens_in_per_s=rates[:, 0], tokens_out_per_s=rates[:, 1], capacity=pool.capacity, role=pool.role
    )
    return replicas * pool.capacity.target_utilization, binding


def quiet(steps: pl.DataFrame) -> npt.NDArray[np.bool_]:
    return np.asarray(steps["waiting_requests"].to_numpy() < QUIET * steps["ready_min"].to_numpy())


def queued(steps: pl.DataFrame) -> npt.NDArray[np.bool_]:
    return np.asarray(steps["waiting_requests"].to_numpy() >= QUEUED * steps["ready_max"].to_numpy())


def lasting(
    flags: npt.NDArray[np.bool_], steps: pl.DataFrame, *, step: timedelta, least: timedelta
) -> npt.NDArray[np.bool_]:
    """The flags in runs of neighbouring steps that last so long together."""
    runs = pl.DataFrame({"flag": flags, "start": steps["step_start"]}).with_columns(
        run=((pl.col("start").diff() != step) | (pl.col("flag") != pl.col("flag").shift()))
        .fill_null(value=True)
        .cum_sum()
    )
    long = pl.col("flag") & (pl.len().over("run") * step.total_seconds() >= least.total_seconds())
    return runs.select(long).to_series().to_numpy()
