"""Sources into stored demand."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import DEMAND, Metric, empty
from floorcast.errors import DataError, FloorcastError
from floorcast.source import PrometheusSource, TraceSource
from floorcast.types import Frozen
from floorcast.units import floor_to_step, format_time
from pipelines.project import Project
from pipelines.sources import import_prometheus, import_trace
from pipelines.stages.common import StageResult, count, judge_demand
from store.connection import open_store
from store.demand import read_demand, replace_demand, upsert_demand
from store.rejects import replace_rejects
from store.settings import claim_step
from store.watermarks import read_watermark, write_watermark


class SourceResult(Frozen):
    """One source. `rows` counts the samples of a live one; `reopened_steps` were changed by late data. `rejected`
    counts rows by reason; `examples` shows one of each."""

    source: str
    rows: int
    steps: int
    reopened_steps: int = 0
    first: datetime | None
    last: datetime | None
    rejected: dict[str, int]
    examples: dict[str, str]


class IngestResult(StageResult):
    sources: tuple[SourceResult, ...]
    findings: int

    @property
    def summary(self) -> str:
        rows, steps = sum(s.rows for s in self.sources), sum(s.steps for s in self.sources)
        reopened = sum(s.reopened_steps for s in self.sources)
        rejected = sum(sum(s.rejected.values()) for s in self.sources)
        return (
            f"{count(rows, 'row')} of {count(len(self.sources), 'source')} into {count(steps, 'step')}"
            + (f", {count(rejected, 'row')} rejected" if rejected else "")
            + (f", {count(reopened, 'step')} changed by late data" if reopened else "")
            + (f", {count(self.findings, 'finding')}" if self.findings else "")
        )


def ingest(project: Project, now: datetime) -> IngestResult:
    """Read every source up to `now`, upsert its demand, and store what is suspicious about all of it.

    Raises what reading a source raises, once all others are stored; DataError naming each where several failed.
    """
    config = project.config
    if not config.sources:
        raise DataError("no sources are configured", where=str(project.file), remedy="add one under `sources`")
    results: list[SourceResult] = []
    failures: list[FloorcastError] = []
    taken = empty(DEMAND)
    for source in config.sources:
        try:
            if isinstance(source, PrometheusSource):
                result, demand = _read_live(project, source, now, taken)
            else:
                result, demand = _read_trace(project, source, now, taken)
        except FloorcastError as error:
            failures.append(error)
            continue
        taken = pl.concat([taken, demand])
        results.append(result)
    findings = judge_demand(project, as_of=project.as_of(now)) if results else 0
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise DataError(
            "\n".join([f"{len(failures)} of {count(len(config.sources), 'source')} failed", *map(str, failures)])
        )
    return IngestResult(sources=tuple(results), findings=findings)


def _read_trace(
    project: Project, source: TraceSource, now: datetime, taken: pl.DataFrame
) -> tuple[SourceResult, pl.DataFrame]:
    step = project.config.step
    found = import_trace(source, step=step, classes=list(project.config.classes), until=now, base=project.base)
    _refuse_shared(found.demand, taken)
    with open_store(project.store_path) as store, store.transaction():
        claim_step(store, step)
        upsert_demand(store, found.demand)
        replace_rejects(store, source.name, found.rejects)
    result = SourceResult(
        source=source.name,
        rows=found.rows_read,
        steps=found.demand.height,
        first=found.first_time,
        last=found.last_time,
        rejected=found.rejected,
        examples=found.examples,
    )
    return result, found.demand


def _read_live(
    project: Project, source: PrometheusSource, now: datetime, taken: pl.DataFrame
) -> tuple[SourceResult, pl.DataFrame]:
    """Go on from the watermark, less the allowed lateness. Each chunk is stored together with the watermark behind
    it, so that a killed or failed import resumes after the last one. Chunks are read whole, since what is credited to
    a replica that is born at a chunk's edge depends on what is seen around it."""
    step = project.config.step
    with open_store(project.store_path) as store:
        claim_step(store, step)
        known = read_watermark(store, source.name)
    start = floor_to_step(now - source.history if known is None else known - source.allowed_lateness, source.chunk)
    samples = reopened = 0
    frames = [empty(DEMAND)]
    for chunk in import_prometheus(source, classes=project.config.classes, step=step, start=start, end=now):
        _refuse_shared(chunk.demand, taken)
        with open_store(project.store_path) as store, store.transaction():
            before = read_demand(store, start=chunk.start, end=min(chunk.end, known or chunk.start))
            reopened += _changed(before.filter(pl.col("source") == source.name), chunk.demand)
            replace_demand(store, source.name, start=chunk.start, end=chunk.end, frame=chunk.demand)
            write_watermark(store, source.name, max(chunk.end, known or chunk.end))
        samples += chunk.samples
        frames.append(chunk.demand)
    demand = pl.concat(frames)
    result = SourceResult(
        source=source.name,
        rows=samples,
        steps=demand.height,
        reopened_steps=reopened,
        first=_time(demand["step_start"].min()),
        last=_time(demand["step_start"].max()),
        rejected={},
        examples={},
    )
    return result, demand


def _changed(before: pl.DataFrame, after: pl.DataFrame) -> int:
    """Steps stored before that late data have changed since by more than rounding, or that are gone."""
    both = before.join(after, on=["workload_class", "step_start"], how="left", suffix="_now")
    same = pl.all_horizontal(
        (pl.col(f"{metric}_now") - pl.col(metric)).abs() <= 1e-6 * pl.col(metric) for metric in Metric
    )
    return both.filter(~same.fill_null(value=False)).height


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


def _refuse_shared(demand: pl.DataFrame, taken: pl.DataFrame) -> None:
    """Raise where another source gave some of these steps already: one would replace the other unseen."""
    shared = demand.join(taken, on=["workload_class", "step_start"], suffix="_other").sort("step_start")
    if shared.is_empty():
        return
    row = shared.row(0, named=True)
    raise DataError(
        f"sources {row['source_other']} and {row['source']} both give class {row['workload_class']} at "
        f"{format_time(row['step_start'])} and {count(shared.height - 1, 'step')} more",
        where=f"source {row['source']}",
        remedy="give each source classes of its own, or join their files in one source",
    )
