"""Margins, utilization and overlay chosen by replay of each pool's past, and the gate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from floorcast.columns import QUANTILE_LEVELS, TUNINGS, Metric, conform
from floorcast.errors import DataError, FloorcastError
from floorcast.tuning import Tuning
from floorcast.units import EPOCH
from forecasting.cleaning import aligned
from forecasting.past_pools import Member, past_quantiles
from forecasting.series import Series
from pipelines.project import Project
from pipelines.replay import PAST, required_by_step, traffic_of
from pipelines.stages.common import StageResult, planned_on, read_series, run_id
from pipelines.stages.tuned import tunings_of
from scaling.calendar import limits
from scaling.demand import METRICS
from scaling.effective import LOOK_BACK, cached_shares, effective_history
from scaling.ladder import Grid
from scaling.replay.conditions import conditions_of
from scaling.tuning.outcomes import Past
from scaling.tuning.tune import tune as tune_pool
from store.cached_tokens import read_cached_tokens
from store.connection import open_store
from store.tunings import write_tunings

STEP_S = 60.0
"""Of the replays, and how often a policy decides in them: stored demand is no finer, and a pool takes minutes as it
is."""

LEAST_DAYS = 6
LEARNED = timedelta(days=2)
"""Before the first day that is replayed, for forecasts to learn from."""

_DAY = timedelta(days=1)
_SeriesByKey = dict[tuple[str, Metric], Series]


class TuneResult(StageResult):
    """`failed` says of which pools the last tuning stands, and why."""

    tunings: tuple[Tuning, ...]
    failed: dict[str, str]

    @property
    def summary(self) -> str:
        if not self.tunings and not self.failed:
            return "nothing due"
        told = [f"{one.pool} {one.gate}" for one in self.tunings]
        return ", ".join([*told, *(f"{pool} not tuned: {why}" for pool, why in self.failed.items())])


def tune(
    project: Project,
    now: datetime,
    *,
    only: Collection[str] = (),
    days: int | None = None,
    seed: int = 0,
    only_due: bool = False,
    track: Callable[[list[str]], Iterable[str]] = iter,
) -> TuneResult:
    """Tune pools, all unless `only` are named, and store what was found of each as soon as it is.

    `only_due`: those whose `tune.every` is over, the one waiting longest first, and no more than one, since tuning
    takes minutes and a cycle is short. One that cannot be tuned is recorded, and keeps what was found before.
    """
    as_of, found, failed = project.as_of(now), [], {}
    named = _due(project, as_of) if only_due else list(only) or list(planned_on(project.config))
    if not named:
        return TuneResult(tunings=(), failed={})
    series, demand = read_series(project, as_of=as_of)
    for name in track(named):
        try:
            past = past_of(project, name, series, demand, as_of=as_of, days=days, seed=seed)
            with threadpool_limits(1):
                one = tune_pool(past, name=name, now=as_of, rng=np.random.default_rng(seed))
        except FloorcastError as error:
            failed[name] = error.what
            continue
        with open_store(project.store_path) as store:
            write_tunings(store, run_id("tune", as_of), _frame(one))
        found.append(one)
        if only_due:
            break
    return TuneResult(tunings=tuple(found), failed=failed)


def past_of(
    project: Project,
    name: str,
    series: _SeriesByKey,
    demand: pl.DataFrame,
    *,
    as_of: datetime,
    days: int | None,
    seed: int,
) -> Past:
    """A pool's last days of stored demand, and what would have been forecast at every step of them.

    `series` and `demand` are those of `read_series` at `as_of`. Raises DataError where they are too short, or a class
    is planned by its deadline, whose floors of the past cannot be made.
    """
    config, pool = project.config, project.config.pools[name]
    classes = planned_on(config).get(name, [])
    if waiting := [one for one in classes if config.wait_steps(one)]:
        raise DataError(
            f"{', '.join(waiting)} may wait and is planned by its deadline, which is not replayed",
            where=f"pool {name}",
            remedy="tune pools of interactive classes",
        )
    known = [one.start for (workload_class, _), one in series.items() if workload_class in classes]
    usable = (as_of - min(known) - LEARNED) // _DAY if known else 0
    replayed = min(days or pool.tune.days, usable)
    if replayed < LEAST_DAYS:
        raise DataError(
            f"{max(usable, 0)} days of demand can be replayed, after {LEARNED.days} to learn from; {LEAST_DAYS} are "
            "needed",
            where=f"pool {name}",
            remedy="wait for more history, or `floorcast ingest` it",
        )
    start = as_of - replayed * _DAY
    with open_store(project.store_path) as store:
        cached = read_cached_tokens(store, start=as_of - LOOK_BACK, end=as_of)
    spared = cached_shares(config, cached, demand, now=as_of)
    effective = effective_history(demand.filter(pl.col("workload_class").is_in(classes)), spared)
    grid = Grid(start, config.step, (as_of - start) // config.step)
    rates = np.zeros((2, len(METRICS), grid.count, len(QUANTILE_LEVELS)))
    for place, metric in enumerate(METRICS):
        own = [one for one in classes if metric in pool.metrics and config.pool_of(one, metric) == name]
        members = [
            _member(series[one, metric], effective, spared=spared.get(one, 0.0))
            for one in own
            if (one, metric) in series
        ]
        if members:
            rates[:, place] = past_quantiles(members, lead_steps=config.lead_steps(name), start=start, end=as_of)
    begin = max(min(known), start - PAST)
    before = traffic_of(project, name, effective, start=begin, end=as_of, seed=seed, step_s=STEP_S)
    return Past(
        pool=pool,
        traffic=traffic_of(project, name, effective, start=start, end=as_of, seed=seed, step_s=STEP_S),
        conditions=replace(conditions_of(pool), tick_s=STEP_S),
        grid=grid,
        rates=rates[0],
        mean_rates=rates[1],
        limits=limits(pool.calendar, grid, windows=grid.count, width=config.lead_steps(name), zone=config.zone),
        load=required_by_step(before, project, name) * pool.capacity.target_utilization,
        seed=seed,
    )


def _member(series: Series, demand: pl.DataFrame, *, spared: float) -> Member:
    """A class's rates without the prompt tokens that the prefix cache spares, as `demand` has them."""
    if series.metric == Metric.TOKENS_IN:
        series = replace(series, values=series.values * (1 - spared))
    rows = demand.filter(workload_class=series.workload_class)
    column = f"peak_{series.metric.value}_per_s"
    return Member(series, aligned(rows, series, column))


def _due(project: Project, as_of: datetime) -> list[str]:
    """Pools whose `tune.every` is over: those never tuned first, then by age."""
    every = {name: pool.tune.every for name, pool in project.config.pools.items() if pool.tune.every}
    if not every:
        return []
    with open_store(project.store_path) as store:
        last = {name: one.as_of for name, one in tunings_of(store, at=as_of).items()}
    served = planned_on(project.config)
    due = [name for name, span in every.items() if name in served and as_of - last.get(name, EPOCH) >= span]
    return sorted(due, key=lambda name: last.get(name, EPOCH))


def _frame(one: Tuning) -> pl.DataFrame:
    row = {
        "pool": one.pool,
        "as_of": one.as_of,
        "gate": one.gate,
        "why": one.why,
        "settings": one.settings.model_dump_json(),
        "result": one.model_dump_json(),
    }
    return conform(pl.DataFrame([row]), TUNINGS)
