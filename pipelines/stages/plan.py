"""Floors from the newest forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import polars as pl
from pydantic import AwareDatetime

from floorcast.config import Config
from floorcast.errors import PublishError
from floorcast.types import Admission, AdmissionWindow, FloorSchedule, Frozen, Reason
from pipelines.project import Project
from pipelines.publishers.schedule import LATEST, read_schedule
from pipelines.stages.common import StageResult, count, read_series, run_id
from pipelines.stages.known import apply_known
from pipelines.stages.tuned import gates, tunings_of
from scaling.deadlines import replayed
from scaling.effective import LOOK_BACK, cached_shares
from scaling.fleet_admission import fleet_admission
from scaling.floors import Plan
from scaling.floors import plan as plan_floors
from store.cached_tokens import read_cached_tokens
from store.connection import open_store
from store.floors import floors_in_force, write_floors
from store.forecasts import read_forecast
from store.pool_shares import read_pool_shares
from store.publications import PublicationRecord, latest_publication


class Shortfall(Frozen):
    """A span of steps in which a pool's floor is less than it should be. `replicas` are those that lack in its worst
    step, from `worst_at`; `rules` are those that lowered the floor in that step, and `admission` is what each class can
    be served in it."""

    pool: str
    start: AwareDatetime
    end: AwareDatetime
    worst_at: AwareDatetime
    replicas: int
    rules: tuple[str, ...]
    admission: dict[str, Admission]

    @property
    def text(self) -> str:
        """`batch short by 3 (quota) at 11-30 09:00 UTC: nightly served 40 % at peak`."""
        served = ", ".join(
            f"{name} served {100 * one.share:.0f} % at peak" for name, one in self.admission.items() if one.share < 1
        )
        rules = ", ".join(rule.replace("_", " ") for rule in self.rules)
        return f"{self.pool} short by {self.replicas} ({rules}) at {self.worst_at:%m-%d %H:%M} UTC" + (
            f": {served}" if served else ""
        )


class PlanResult(StageResult):
    """`rungs` says for each pool where the demand of the floors due now came from; `closed` are the pools whose gate
    is; `shortfalls` are in order of pool and time; `admission` is what classes that are not served whole can be served
    by all their pools together; `relax` says which limits leave no room for classes that several pools can serve."""

    pools: int
    windows: int
    rungs: dict[str, str]
    closed: tuple[str, ...]
    shortfalls: tuple[Shortfall, ...]
    admission: dict[str, tuple[AdmissionWindow, ...]]
    relax: tuple[str, ...]

    @property
    def summary(self) -> str:
        fallen = [f"{pool} on {rung}" for pool, rung in self.rungs.items() if rung != "fresh"]
        worst: dict[str, Shortfall] = {}
        for one in self.shortfalls:
            if one.pool not in worst or one.replicas > worst[one.pool].replicas:
                worst[one.pool] = one
        short = [
            f"{one.text}, in a span from {one.start:%m-%d %H:%M} to {one.end:%m-%d %H:%M} UTC" for one in worst.values()
        ]
        closed = [f"{pool} at its plain minimum, as floors do not pay there" for pool in self.closed]
        notes = "".join(f"; {note}" for note in [*fallen, *closed, *short, *self.relax])
        return f"{count(self.windows, 'window')} for {count(self.pools, 'pool')}{notes}"


def planned(project: Project, as_of: datetime, configs: Sequence[Config]) -> list[Plan]:
    """The plan of each configuration at a step boundary from the same stored forecasts; nothing is stored."""
    series, history = read_series(project, as_of=as_of)
    known = apply_known(project, series, as_of=as_of)
    usual, changes = known.usual(history), known.changes(as_of)
    with open_store(project.store_path) as store:
        forecasts = read_forecast(store, at=as_of)
        shares = read_pool_shares(store, at=as_of)
        cached = read_cached_tokens(store, start=as_of - LOOK_BACK, end=as_of)
        before = latest_publication(store, before=as_of)
        known_then = read_forecast(store, at=before.issued_at) if before else forecasts.clear()
        tunings = tunings_of(store, at=as_of)
        in_force = floors_in_force(store, start=as_of - max(replayed(config) for config in configs), end=as_of)
    published = _published(project, before, as_of)
    return [
        plan_floors(
            config,
            now=as_of,
            forecasts=forecasts,
            stalled=_stalled(forecasts, known_then),
            history=history,
            published=published,
            shares=shares,
            in_force=in_force,
            cached=cached_shares(config, cached, history, now=as_of),
            closed=[name for name, gate in gates(config, tunings).items() if gate == "closed"],
            usual=usual,
            changes=changes,
        )
        for config in configs
    ]


def plan(project: Project, now: datetime) -> PlanResult:
    """Plan every pool and store its floors."""
    as_of = project.as_of(now)
    (made,) = planned(project, as_of, [project.config])
    with open_store(project.store_path) as store:
        write_floors(store, run_id("plan", as_of), made.floors)
        gate = gates(project.config, tunings_of(store, at=as_of))
    return PlanResult(
        pools=made.floors["pool"].n_unique(),
        windows=made.floors.height,
        rungs={pool: rung.value for pool, rung in made.rungs.items()},
        closed=tuple(name for name, one in gate.items() if one == "closed"),
        shortfalls=tuple(shortfalls(made.floors)),
        admission=fleet_admission(project.config, made.floors),
        relax=tuple(f"{one.text} from {one.start:%m-%d %H:%M} to {one.end:%m-%d %H:%M} UTC" for one in made.relax),
    )


def shortfalls(floors: pl.DataFrame) -> Iterator[Shortfall]:
    """The spans of a FLOORS frame in which a pool is short."""
    missing = pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64)
    steps = floors.sort("pool", "window_start").with_columns(missing.alias("missing"))
    spans = pl.struct("pool", pl.col("missing") > 0).rle_id()
    for span in steps.with_columns(spans.alias("span")).filter(pl.col("missing") > 0).partition_by("span"):
        first, last = span.row(0, named=True), span.row(-1, named=True)
        worst = span.row(int(span["missing"].arg_max() or 0), named=True)
        reason = Reason.model_validate_json(worst["reason"])
        yield Shortfall(
            pool=first["pool"],
            start=first["window_start"],
            end=last["window_end"],
            worst_at=worst["window_start"],
            replicas=worst["missing"],
            rules=tuple(move.rule for move in reason.adjustments if move.after < move.before),
            admission=reason.admission,
        )


def _stalled(forecasts: pl.DataFrame, before: pl.DataFrame) -> set[str]:
    """The classes whose newest forecast rests on data up to the same time as the newest before."""
    now, then = (frame.select("workload_class", "metric", "cutoff").unique() for frame in (forecasts, before))
    return set(now.join(then, on=["workload_class", "metric", "cutoff"], how="inner")["workload_class"])


def _published(project: Project, recorded: PublicationRecord | None, as_of: datetime) -> FloorSchedule | None:
    """What consumers were last told before this step. The file decides, since it is what they read: a publication
    that was recorded but killed before it was written has told nobody anything.
    """
    with suppress(PublishError):
        schedule = read_schedule(project.output / LATEST)
        if schedule.issued_at < as_of:
            return schedule
    return FloorSchedule.model_validate_json(recorded.schedule) if recorded else None
