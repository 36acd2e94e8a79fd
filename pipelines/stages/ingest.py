"""Sources into stored demand."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import DEMAND, empty
from floorcast.errors import DataError, FloorcastError
from floorcast.types import Frozen
from floorcast.units import format_time
from pipelines.project import Project
from pipelines.sources import import_source
from pipelines.stages.common import StageResult, count, judge_demand
from store.connection import open_store
from store.demand import upsert_demand
from store.rejects import replace_rejects
from store.settings import claim_step


class SourceResult(Frozen):
    """One source. `rejected` counts rows by reason; `examples` shows one of each."""

    source: str
    rows: int
    steps: int
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
        rejected = sum(sum(s.rejected.values()) for s in self.sources)
        return (
            f"{count(rows, 'row')} of {count(len(self.sources), 'source')} into {count(steps, 'step')}"
            + (f", {count(rejected, 'row')} rejected" if rejected else "")
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
            found = import_source(source, step=config.step, classes=list(config.classes), until=now, base=project.base)
            taken = pl.concat([taken, _refuse_shared(found.demand, taken)])
        except FloorcastError as error:
            failures.append(error)
            continue
        with open_store(project.store_path) as store, store.transaction():
            claim_step(store, config.step)
            upsert_demand(store, found.demand)
            replace_rejects(store, source.name, found.rejects)
        results.append(
            SourceResult(
                source=source.name,
                rows=found.rows_read,
                steps=found.demand.height,
                first=found.first_time,
                last=found.last_time,
                rejected=found.rejected,
                examples=found.examples,
            )
        )
    findings = judge_demand(project, as_of=project.as_of(now)) if results else 0
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise DataError(
            "\n".join([f"{len(failures)} of {count(len(config.sources), 'source')} failed", *map(str, failures)])
        )
    return IngestResult(sources=tuple(results), findings=findings)


def _refuse_shared(demand: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """The demand, unless another source gave some of its steps already: one would replace the other unseen."""
    shared = demand.join(taken, on=["workload_class", "step_start"], suffix="_other").sort("step_start")
    if shared.is_empty():
        return demand
    row = shared.row(0, named=True)
    raise DataError(
        f"sources {row['source_other']} and {row['source']} both give class {row['workload_class']} at "
        f"{format_time(row['step_start'])} and {count(shared.height - 1, 'step')} more",
        where=f"source {row['source']}",
        remedy="give each source classes of its own, or join their files in one source",
    )
