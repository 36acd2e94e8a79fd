"""Sources into stored demand."""

from __future__ import annotations

from datetime import datetime

import polars as pl
from pydantic import Field

from floorcast.errors import ConfigError, DataError, FloorcastError, NotFoundError
from floorcast.source import Source, TraceSource
from floorcast.units import ceil_to_step, floor_to_step, format_time
from forecasting.quality import clock_skew
from pipelines.project import Project
from pipelines.stages.common import HISTORY, StageResult, count, judge_demand
from pipelines.stages.load import capacity_contradicted, read_loads
from pipelines.stages.losses import history_lost
from pipelines.stages.reading import Interval, Reading, SourceResult, is_present
from pipelines.stages.startups import read_startups
from store.connection import open_store
from store.forecasts import forecasts_on_changed_data


class IngestResult(StageResult):
    """`outdated_forecasts` counts the series whose newest forecast was made before its data changed. `starts` counts by
    pool those of its pods that were read, `starts_failed` says why none could be; `loads` and
    `loads_failed` are the same of steps with its ready replicas and waiting requests."""

    interval: Interval | None = None
    sources: tuple[SourceResult, ...]
    findings: int
    starts: dict[str, int] = Field(default_factory=dict)
    starts_failed: dict[str, str] = Field(default_factory=dict)
    loads: dict[str, int] = Field(default_factory=dict)
    loads_failed: dict[str, str] = Field(default_factory=dict)
    outdated_forecasts: int = 0

    @property
    def summary(self) -> str:
        rows, steps = sum(s.rows for s in self.sources), sum(s.steps for s in self.sources)
        reopened = sum(s.reopened_steps for s in self.sources)
        rejected = sum(sum(s.rejected.values()) for s in self.sources)
        ahead = sum(s.ahead for s in self.sources)
        kept = sum(s.kept_steps for s in self.sources)
        silent = [
            f"{name} at {source.source}" + (f" since {format_time(until)}" if until else "")
            for source in self.sources
            for name, until in source.silent.items()
        ]
        span = f" from {format_time(self.interval.start)} to {format_time(self.interval.end)}" if self.interval else ""
        outdated = f" since {count(self.outdated_forecasts, 'newest forecast')}" if self.outdated_forecasts else ""
        return (
            f"{count(rows, 'row')} of {count(len(self.sources), 'source')} into {count(steps, 'step')}{span}"
            + (f", {count(rejected, 'row')} rejected" if rejected else "")
            + (f", {count(ahead, 'row')} of the future" if ahead else "")
            + (f", {count(reopened, 'stored step')} changed{outdated}" if reopened else "")
            + (f", {count(kept, 'stored step')} kept that their source no longer has" if kept else "")
            + (f", nothing of {', '.join(silent)}" if silent else "")
            + (f", {count(self.findings, 'finding')}" if self.findings else "")
            + "".join(f", starts of {pool} not read: {why}" for pool, why in self.starts_failed.items())
            + "".join(f", load of {pool} not read: {why}" for pool, why in self.loads_failed.items())
        )


def ingest(
    project: Project,
    now: datetime,
    *,
    only: str | None = None,
    interval: Interval | None = None,
    present: datetime | None = None,
) -> IngestResult:
    """Read every source up to `now`, upsert its demand, and store what is suspicious about all of it.

    `only` names the one source to read. With an `interval` exactly that is replaced by what the sources have for it now
    (a backfill); watermarks stay where they are. `present` is what the clock says: only where `now` is within a step of
    it are later rows of the future, else they are what a run in the past must not see.

    Raises ConfigError where the interval is not one of complete steps, NotFoundError where there is no such source, and
    what reading a source raises, once all others are stored; DataError naming each where several failed.
    """
    config = project.config
    if not config.sources:
        raise DataError("no sources are configured", where=str(project.file), remedy="add one under `sources`")
    if interval is not None:
        _check(interval, project, now)
    sources = _chosen(project, only)
    reading = Reading(
        project,
        now,
        interval,
        at_present=is_present(now, step=config.step, clock=present),
        others=[source.name for source in config.sources if source not in sources],
    )
    results: list[SourceResult] = []
    failures: list[FloorcastError] = []
    for source in sources:
        try:
            results.append(reading.trace(source) if isinstance(source, TraceSource) else reading.chunks(source))
        except FloorcastError as error:
            failures.append(error)
    as_of = project.as_of(now)
    findings = outdated = 0
    whole = only is None and interval is None
    starts, starts_failed = read_startups(project, now) if whole else ({}, {})
    loads, loads_failed = read_loads(project, now) if whole else ({}, {})
    if results:
        of_sources = None
        if whole:
            skew = clock_skew(reading.ahead, present=now, step=config.step)
            lost = history_lost(reading.lost, step=config.step)
            of_sources = pl.concat([skew, lost, capacity_contradicted(project, as_of)])
        findings = judge_demand(project, as_of=as_of, of_sources=of_sources)
        with open_store(project.store_path) as store:
            outdated = forecasts_on_changed_data(store, at=as_of, look_back=HISTORY).height
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise DataError("\n".join([f"{len(failures)} of {count(len(sources), 'source')} failed", *map(str, failures)]))
    return IngestResult(
        interval=interval,
        sources=tuple(results),
        findings=findings,
        starts=starts,
        starts_failed=starts_failed,
        loads=loads,
        loads_failed=loads_failed,
        outdated_forecasts=outdated,
    )


def _chosen(project: Project, only: str | None) -> list[Source]:
    sources = list(project.config.sources)
    chosen = [source for source in sources if only in (None, source.name)]
    if not chosen:
        names = ", ".join(source.name for source in sources)
        raise NotFoundError(f"no source {only}", where=str(project.file), remedy=f"name one of {names}")
    return chosen


def _check(interval: Interval, project: Project, now: datetime) -> None:
    """Raise ConfigError where the interval is reversed, in the future or off the grid, naming one that would do."""
    step, newest = project.config.step, project.as_of(now)
    start, end = floor_to_step(interval.start, step), ceil_to_step(interval.end, step)
    where = f"from {format_time(interval.start)} to {format_time(interval.end)}"
    if interval.start >= interval.end:
        raise ConfigError("the interval ends before it begins", where=where, remedy="give the earlier time first")
    if interval.end > newest:
        raise ConfigError(
            "the interval ends after the last complete step",
            where=where,
            remedy=f"end it at {format_time(newest)}, which is now rounded down to a step, or before",
        )
    if (start, end) != (interval.start, interval.end):
        raise ConfigError(
            "the interval does not begin and end on steps",
            where=where,
            remedy=f"rounded outwards it is from {format_time(start)} to {format_time(end)}",
        )
