"""Demand at a quantile: of a class from its forecast, of a pool from its classes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import polars as pl

from floorcast.columns import MEDIAN, QUANTILE_LEVELS, Metric, quantile_column
from floorcast.errors import ForecastError
from scaling.capacity import Floats

METRICS = (Metric.TOKENS_IN, Metric.TOKENS_OUT)
"""The order of the metrics in every array of demand."""

DECIMALS = 3
"""Of every rate that a plan is made of, so that a published reason holds it in full."""


def at_level(level: float) -> pl.Expr:
    """The quantile of a FORECASTS frame at `level`, linear between the two stored levels around it.

    Raises ForecastError for a level outside the stored ones: nothing is extrapolated.
    """
    if level in QUANTILE_LEVELS:
        return pl.col(quantile_column(level))
    for low, high in pairwise(QUANTILE_LEVELS):
        if low < level < high:
            lower, upper = pl.col(quantile_column(low)), pl.col(quantile_column(high))
            return lower + (upper - lower) * ((level - low) / (high - low))
    raise ForecastError(
        f"quantile {level:g} is outside the forecast levels {QUANTILE_LEVELS[0]:g} to {QUANTILE_LEVELS[-1]:g}",
        remedy="set margin.quantile inside them",
    )


def class_demand(forecasts: pl.DataFrame, levels: Mapping[tuple[str, str], float]) -> pl.DataFrame:
    """FORECASTS rows of the classes and metrics in `levels`, at the level of each, in tokens per second.

    Columns workload_class, metric, cutoff, step_start, model, quantile, median. A row whose figures are null
    or not finite says nothing and is left out; the quantile is at least the median, and neither is negative.
    """
    keys = ["workload_class", "metric"]
    wanted = pl.DataFrame([(*key, level) for key, level in levels.items()], schema=[*keys, "level"], orient="row")
    frames = [
        forecasts.join(of_level, on=keys, how="semi").select(
            "workload_class",
            "metric",
            "cutoff",
            "step_start",
            "model",
            quantile=pl.max_horizontal(at_level(level), MEDIAN, 0.0),
            median=pl.max_horizontal(MEDIAN, 0.0),
            usable=at_level(level).is_finite() & pl.col(MEDIAN).is_finite(),
        )
        for (level,), of_level in wanted.partition_by("level", as_dict=True).items()
    ]
    return pl.concat(frames).filter("usable").drop("usable")


def pool_demand(classes: Floats, medians: Floats, share: Floats, peak: Floats) -> Floats:
    """A pool's quantile from those of its classes, to a thousandth of a token per second: their medians added up, and
    `share` [metrics, steps] of what their quantiles add up to above them, times `peak` [metrics, steps] for the
    busiest minute. At a share of 1 it is the sum of the quantiles, right where the classes peak together.

    [classes, metrics, steps] to [metrics, steps]; NaN, a figure not known, adds nothing.
    """
    quantile, median = added(classes), added(medians)
    total: Floats = np.round((median + share * (quantile - median)) * peak, DECIMALS)
    return total


def added(classes: Floats) -> Floats:
    """[classes, metrics, steps] to [metrics, steps]."""
    total: Floats = np.nansum(np.round(classes, DECIMALS), axis=0)
    return total
