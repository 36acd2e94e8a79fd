"""Planned floors become a publication: files, manifests and a record."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from floorcast.errors import FloorcastError, PublishError
from floorcast.types import FloorSchedule
from floorcast.units import format_time
from pipelines.project import Project
from pipelines.publishers.held import held_floors
from pipelines.publishers.manifests import write_manifests
from pipelines.publishers.outcome import AT_FAULT, Outcome
from pipelines.publishers.overlay_file import write_overlay_facts
from pipelines.publishers.run import publish_everywhere
from pipelines.publishers.schedule import build_schedule, published_versions, write_schedule
from pipelines.stages.common import StageResult, count, run_id
from pipelines.stages.overlay_facts import overlay_facts
from pipelines.stages.tuned import gates, proofs, tunings_of
from scaling.fleet_admission import fleet_admission
from scaling.floors import worst_rungs
from scaling.recompute import recompute
from store.connection import Store, open_store
from store.floors import read_floors
from store.publications import PublicationRecord, latest_publication, list_publications, record_publication

FRESH_TICKS = 4
"""How many ticks ago the service may have decided last, to count as one that runs."""


class PublishResult(StageResult):
    """Floors due now by pool, and where the schedule and the manifests were written."""

    version: int
    content_hash: str
    schedule: Path
    manifests: tuple[Path, ...]
    pools: int
    windows: int
    due: dict[str, int]
    outcomes: tuple[Outcome, ...] = ()

    @property
    def summary(self) -> str:
        due = ", ".join(f"{pool} {floor}" for pool, floor in self.due.items())
        said = f"version {self.version}, {count(self.windows, 'window')}; due now: {due}"
        names = dict.fromkeys(one.publisher for one in self.at_fault)
        return f"{said}; NOT everywhere: {', '.join(names)}" if names else said

    @property
    def at_fault(self) -> tuple[Outcome, ...]:
        """What left a pool without the floor that is wanted there. A run on history leaves all so, and means it."""
        return tuple(one for one in self.outcomes if one.did in AT_FAULT and one.did != "expired")


def publish(project: Project, now: datetime) -> PublishResult:
    """Publish the floors that were planned for this step.

    Publishing the same floors again leaves the same version. Raises PublishError where nothing was planned, or a
    later step is published already.
    """
    as_of = project.as_of(now)
    # The record comes first: killed after it, the same run finds its version again; killed before it, there is
    # nothing to find. The other way round a published file could be one that the store knows nothing of. And the
    # store is held from the choice of the version to its record, so that no other process takes the same.
    with open_store(project.store_path) as store:
        schedule = _schedule(project, store, as_of, clock=datetime.now(UTC))
        tunings = tunings_of(store, at=as_of)
        record_publication(
            store,
            PublicationRecord(
                version=schedule.version,
                run_id=run_id("plan", as_of),
                issued_at=schedule.issued_at,
                valid_until=schedule.valid_until,
                mode=schedule.mode,
                content_hash=schedule.content_hash,
                schedule=schedule.model_dump_json(by_alias=True),
            ),
        )
    path = write_schedule(schedule, project.output)
    write_overlay_facts(overlay_facts(project, as_of, tunings), project.output)
    manifests = write_manifests(schedule, project.config, project.output, as_of)
    # Last: what cannot be reached must not keep the files from being written.
    clock = datetime.now(UTC)
    held = held_floors(project.state_dir, now=clock, within=FRESH_TICKS * project.config.service.tick)
    outcomes = publish_everywhere(schedule, project.config, project.output, as_of, clock=clock, held=held)
    return PublishResult(
        version=schedule.version,
        content_hash=schedule.content_hash,
        schedule=path,
        manifests=tuple(manifests),
        pools=len(schedule.pools),
        windows=sum(len(pool.windows) for pool in schedule.pools.values()),
        due={name: pool.windows[0].min_replicas for name, pool in schedule.pools.items()},
        outcomes=outcomes,
    )


def _check_recomputes(schedule: FloorSchedule) -> None:
    """Every floor follows from the settings published with it. It does not where the configuration has changed since it
    was planned."""
    for name, pool in schedule.pools.items():
        if pool.settings is None:
            continue
        for window in pool.windows:
            where = f"pool {name}, window {format_time(window.start)}"
            try:
                recomputed = recompute(window.reason, pool.settings)
            except FloorcastError as error:
                raise PublishError(
                    f"the floors planned do not follow from the configuration: {error.what}",
                    where=where,
                    remedy="run `floorcast plan` with the same --now again, or `floorcast cycle`",
                ) from None
            if recomputed != window.min_replicas:
                raise PublishError(
                    f"the reason recomputes to {recomputed}, but {window.min_replicas} was planned",
                    where=where,
                    remedy="run `floorcast plan` with the same --now again; if it stays, report it as a bug",
                )


def _schedule(project: Project, store: Store, as_of: datetime, *, clock: datetime) -> FloorSchedule:
    config = project.config
    floors = read_floors(store, run_id("plan", as_of))
    tunings = tunings_of(store, at=as_of)
    latest = latest_publication(store)
    recorded = list_publications(store)["version"].to_list()
    # One from the future was issued by a wrong clock or for a trial, and must not block today's.
    if latest and as_of < latest.issued_at <= clock:
        raise PublishError(
            f"version {latest.version}, issued {format_time(latest.issued_at)}, is later than {format_time(as_of)}",
            where=str(project.output),
            remedy="to run on history, give it a `store.path` and an `output.dir` of its own",
        )
    if floors.is_empty():
        raise PublishError(
            f"no floors were planned for {format_time(as_of)}",
            where=str(project.store_path),
            remedy="run `floorcast plan` with the same --now, or `floorcast cycle`",
        )
    schedule = build_schedule(
        mode=config.mode,
        version=1,
        issued_at=as_of,
        valid_until=as_of + config.publication.valid_for,
        floors=floors,
        rungs=worst_rungs(config, floors, now=as_of),
        settings={name: pool.settings for name, pool in config.pools.items()},
        admission=fleet_admission(config, floors),
        gates=gates(config, tunings),
        proofs=proofs(config, tunings),
    )
    _check_recomputes(schedule)
    if latest and FloorSchedule.model_validate_json(latest.schedule) == schedule.model_copy(
        update={"version": latest.version}
    ):
        return schedule.model_copy(update={"version": latest.version})
    return schedule.model_copy(update={"version": 1 + max([*recorded, *published_versions(project.output)], default=0)})
