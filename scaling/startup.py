"""How long replicas really take to start."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import scipy

from floorcast.config import Config
from floorcast.replica import MeasuredStartup, StartupMeasure
from floorcast.units import floor_to_step

_LEVEL = 0.9
_GRAIN = timedelta(seconds=30)
_DAY = timedelta(days=1)


def measured_startups(config: Config, startups: pl.DataFrame, *, now: datetime) -> Config:
    """The configuration with the measured p90 in place of the configured one, of every pool that has enough starts.

    `startups` is STARTUPS; of later than `now` nothing counts. The p90 is rounded up to 30 s, and is the larger of that
    of now and that of the day's beginning in UTC: it rises at once and falls at most once a day, so that noise does
    not move the lead window, for which models are fitted. It stays under what the horizon reaches.
    """
    pools = {}
    for name, pool in config.pools.items():
        measure = pool.startup.measure
        if measure is None:
            continue
        own = startups.filter(pool=name)
        found = [one for at in (now, floor_to_step(now, _DAY)) if (one := _at(own, measure, at)) is not None]
        if found:
            longest = config.horizon - config.step - config.publication_interval - pool.startup.apply_delay
            worst = max(found, key=lambda one: one.p90)
            used = MeasuredStartup(min(worst.p90, longest), worst.starts, worst.since)
            pools[name] = pool.model_copy(update={"startup": pool.startup.replaced(used)})
    return config.model_copy(update={"pools": {**config.pools, **pools}}) if pools else config


def _at(startups: pl.DataFrame, measure: StartupMeasure, at: datetime) -> MeasuredStartup | None:
    """The p90 as it was known at a time. A pod that was not ready then counts as at least its age when it was last
    seen; one whose containers restarted before it was ever ready is in a crash loop, and is no start."""
    known = startups.filter(pl.col("created_at") >= at - measure.window, pl.col("created_at") < at).with_columns(
        ready_at=pl.when(pl.col("ready_at") <= at).then("ready_at")
    )
    known = known.filter(pl.col("ready_at").is_not_null() | (pl.col("restarts") == 0))
    ended = pl.coalesce("ready_at", pl.min_horizontal("seen_at", pl.lit(at)))
    known = known.with_columns(seconds=(ended - pl.col("created_at")).dt.total_milliseconds() / 1000)
    if known["ready_at"].count() < measure.at_least:
        return None
    seconds, censored = known["seconds"].to_numpy(), known["ready_at"].is_null().to_numpy()
    p90 = quantile(seconds, censored)
    since = known["created_at"].min()
    if not isinstance(since, datetime):
        return None
    return MeasuredStartup(math.ceil(p90 / _GRAIN.total_seconds()) * _GRAIN, known.height, since)


def quantile(seconds: np.ndarray, censored: np.ndarray) -> float:
    """The p90 of times of which the `censored` are only known to be longer: the first at which the product-limit
    estimate (Kaplan and Meier, 1958) says that nine in ten have ended, or the longest where it never does."""
    estimate = scipy.stats.ecdf(scipy.stats.CensoredData.right_censored(seconds, censored)).cdf
    reached = np.nonzero(estimate.probabilities >= _LEVEL - 1e-9)[0]
    return float(estimate.quantiles[reached[0]] if reached.size else seconds.max())
