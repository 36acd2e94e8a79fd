"""Floors from the newest forecasts."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import polars as pl

from floorcast.errors import PublishError
from floorcast.types import FloorSchedule
from pipelines.project import Project
from pipelines.publishers.schedule import LATEST, read_schedule
from pipelines.stages.common import StageResult, count, read_series, run_id
from scaling.floors import plan as plan_floors
from store.connection import open_store
from store.floors import write_floors
from store.forecasts import read_forecast
from store.pool_shares import read_pool_shares
from store.publications import PublicationRecord, latest_publication


class PlanResult(StageResult):
    """`rungs` says for each pool where the demand of the floors due now came from; `short` holds the most
    replicas wanted above a pool's maximum, where any were."""

    pools: int
    windows: int
    rungs: dict[str, str]
    short: dict[str, int]

    @property
    def summary(self) -> str:
        fallen = [f"{pool} on {rung}" for pool, rung in self.rungs.items() if rung != "fresh"]
        short = [f"{pool} short by {missing}" for pool, missing in self.short.items()]
        notes = "".join(f"; {note}" for note in fallen + short)
        return f"{count(self.windows, 'window')} for {count(self.pools, 'pool')}{notes}"


def plan(project: Project, now: datetime) -> PlanResult:
    """Plan every pool and store its floors."""
    as_of = project.as_of(now)
    _, history = read_series(project, as_of=as_of)
    with open_store(project.store_path) as store:
        forecasts = read_forecast(store, at=as_of)
        shares = read_pool_shares(store, at=as_of)
        before = latest_publication(store, before=as_of)
    made = plan_floors(
        project.config,
        now=as_of,
        forecasts=forecasts,
        history=history,
        published=_published(project, before, as_of),
        shares=shares,
    )
    with open_store(project.store_path) as store:
        write_floors(store, run_id("plan", as_of), made.floors)
    wanted = made.floors.with_columns(short=pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64))
    short = wanted.group_by("pool").agg(pl.col("short").max()).filter(pl.col("short") > 0).sort("pool")
    return PlanResult(
        pools=made.floors["pool"].n_unique(),
        windows=made.floors.height,
        rungs={pool: rung.value for pool, rung in made.rungs.items()},
        short=dict(short.iter_rows()),
    )


def _published(project: Project, recorded: PublicationRecord | None, as_of: datetime) -> FloorSchedule | None:
    """What consumers were last told before this step. The file decides, since it is what they read: a publication
    that was recorded but killed before it was written has told nobody anything.
    """
    with suppress(PublishError):
        schedule = read_schedule(project.output / LATEST)
        if schedule.issued_at < as_of:
            return schedule
    return FloorSchedule.model_validate_json(recorded.schedule) if recorded else None
