"""What the overlay needs of the store, for a service that does not read it."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import Metric
from floorcast.config import Config
from floorcast.event import Window
from pipelines.project import Project
from pipelines.publishers.overlay_file import OverlayFacts, PastLoad
from pipelines.stages.common import read_stored
from pipelines.stages.tuned import Tunings, settings_in_force
from scaling.capacity import Floats, full_load
from scaling.effective import LOOK_BACK, cached_shares, effective_history
from store.cached_tokens import read_cached_tokens
from store.connection import open_store

_PAST = timedelta(days=14)
_DIGITS = 4


def overlay_facts(project: Project, as_of: datetime, tunings: Tunings) -> OverlayFacts:
    """Tuned settings of the pools that apply theirs, and the past load of those that look ahead."""
    config = project.config
    tuned = {
        name: settings_in_force(pool, tunings[name])
        for name, pool in config.pools.items()
        if pool.tune.apply and name in tunings
    }
    ahead = [
        name
        for name, pool in config.pools.items()
        if "lookahead" in (pool.overlay.policy, *pool.overlay.also)
        or (name in tuned and tuned[name].policy == "lookahead")
    ]
    past = _past(project, ahead, as_of) if ahead else {}
    return OverlayFacts(as_of=as_of, tuned=tuned, past=past)


def _past(project: Project, pools: list[str], as_of: datetime) -> dict[str, PastLoad]:
    config, start = project.config, as_of - _PAST
    classes = sorted({one for name in pools for one in config.classes_of(name)})
    demand = read_stored(project, [Window(start, as_of)], classes=classes)
    with open_store(project.store_path) as store:
        cached = read_cached_tokens(store, start=as_of - LOOK_BACK, end=as_of)
    demand = effective_history(demand, cached_shares(config, cached, demand, now=as_of))
    grid = pl.datetime_range(start, as_of, config.step, closed="left", time_zone="UTC", time_unit="us", eager=True)
    found = {}
    for name in pools:
        rates = [_rate(config, demand, grid, name, metric) for metric in (Metric.TOKENS_IN, Metric.TOKENS_OUT)]
        load = full_load(config.pools[name], *rates)
        found[name] = PastLoad(
            start=start,
            step_s=config.step_s,
            load=tuple(None if np.isnan(one) else float(f"{one:.{_DIGITS}g}") for one in load.tolist()),
        )
    return found


def _rate(config: Config, demand: pl.DataFrame, grid: pl.Series, pool: str, metric: Metric) -> Floats:
    """[steps] tokens per second of all the pool's classes together; NaN where none was observed."""
    column = metric.value
    sums = (
        demand.filter(pl.col("workload_class").is_in(config.classes_of(pool)))
        .group_by("step_start")
        .agg(pl.col(column).sum() / config.step_s)
    )
    joined = grid.alias("step_start").to_frame().join(sums, on="step_start", how="left", maintain_order="left")
    return joined[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
