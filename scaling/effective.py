"""Effective work: prompt tokens that the prefix cache holds cost no prefill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import Metric
from floorcast.config import Config
from scaling.capacity import Floats
from scaling.demand import METRICS
from scaling.ladder import Figures

LOOK_BACK = timedelta(days=7)
"""One week, so that each hour of the week is in it."""

_LATELY = timedelta(days=1)
_QUANTILE = 0.1
"""Of the prompt tokens of the week, one in ten came in steps with a smaller share than this quantile. A rollout or new
replicas empty caches for a while, and traffic changes its prompts: a mean share would be missed half of the time."""


def effective(figures: Figures, cached: Mapping[str, float]) -> Figures:
    """The figures with each class's tokens in times one less the share of them that is `cached`, 0 unless given."""
    spared = np.array([cached.get(name, 0.0) for name in figures.classes])
    factor = np.ones((len(figures.classes), len(METRICS), 1))
    factor[:, METRICS.index(Metric.TOKENS_IN), 0] = 1 - spared
    return replace(
        figures,
        quantile=figures.quantile * factor,
        median=figures.median * factor,
        cached={name: share for name, share in cached.items() if share},
    )


def effective_history(history: pl.DataFrame, cached: Mapping[str, float]) -> pl.DataFrame:
    """DEMAND with the tokens in that `effective` leaves."""
    left = pl.col("workload_class").replace_strict(cached, default=0.0, return_dtype=pl.Float64)
    return history.with_columns(pl.col("tokens_in", "peak_tokens_in_per_s") * (1 - left)) if cached else history


def cached_shares(config: Config, cached: pl.DataFrame, history: pl.DataFrame, *, now: datetime) -> dict[str, float]:
    """By class the share of its prompt tokens to plan without: `prefix_cache.share`, or what is observed.

    `cached` is CACHED_TOKENS and `history` DEMAND, both up to `now`. The observed share is the tenth percentile of the
    steps of the last week by their tokens in, rounded down to a thousandth. It needs a day of steps, and to be known
    for half of those observed in the last day: a counter that has ended tells nothing of today.
    """
    observed = _observed(cached, history, now=now, step=config.step)
    shares = {}
    for name, spec in config.classes.items():
        share = observed.get(name, 0.0) if spec.prefix_cache.share is None else spec.prefix_cache.share
        if share:
            shares[name] = share
    return shares


def _observed(cached: pl.DataFrame, history: pl.DataFrame, *, now: datetime, step: timedelta) -> dict[str, float]:
    known = (
        history.filter(pl.col("step_start") >= now - LOOK_BACK, pl.col("step_start") < now, pl.col("tokens_in") > 0)
        .join(cached, on=["workload_class", "step_start"], how="left")
        .with_columns(share=(pl.col("cached_tokens_in") / pl.col("tokens_in")).clip(0, 1))
    )
    shares = {}
    for (name,), rows in known.group_by(["workload_class"]):
        seen, lately = rows.drop_nulls("share"), rows.filter(pl.col("step_start") >= now - _LATELY)
        if seen.height * step >= _LATELY and 2 * lately["share"].count() >= max(lately.height, 1):
            lowest = _weighted_quantile(seen["share"].to_numpy(), seen["tokens_in"].to_numpy())
            # A share of 1 would plan for nothing.
            shares[str(name)] = min(math.floor(1000 * lowest + 1e-9) / 1000, 0.999)
    return shares


def _weighted_quantile(shares: Floats, weights: Floats) -> float:
    """The smallest share up to which at least `_QUANTILE` of the weight lies."""
    order = np.argsort(shares)
    weight = np.cumsum(weights[order])
    return float(shares[order][np.searchsorted(weight, _QUANTILE * weight[-1])])
