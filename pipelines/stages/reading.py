"""One source after another into the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import DEMAND, REJECTS, empty
from floorcast.errors import DataError
from floorcast.source import PrometheusSource, SqlSource, TraceSource
from floorcast.types import Frozen
from floorcast.units import floor_to_step, format_time
from pipelines.progress import bar
from pipelines.project import Project
from pipelines.sources import CLOCK_TOLERANCE, Chunk, TraceImport, import_prometheus, import_sql, import_trace
from pipelines.stages.common import count
from store.connection import Store, open_store
from store.demand import read_demand, replace_demand, upsert_demand
from store.rejects import replace_rejects
from store.reopened import record_reopened
from store.settings import claim_step
from store.watermarks import read_watermark, write_watermark

MAX_AHEAD = timedelta(days=31)
"""Rows further ahead of the present than this are counted, not measured."""

ChunkedSource = PrometheusSource | SqlSource


class Interval(Frozen):
    """Steps from `start` to before `end`, both on the grid."""

    start: datetime
    end: datetime


class SourceResult(Frozen):
    """One source. `rows` counts the samples of a live one; `reopened_steps` were stored otherwise before, or missing
    amid others. `rejected` counts rows by reason; `examples` shows one of each. `ahead` rows are later than the present
    and not stored."""

    source: str
    rows: int
    steps: int
    reopened_steps: int = 0
    first: datetime | None
    last: datetime | None
    rejected: dict[str, int]
    examples: dict[str, str]
    ahead: int = 0


@dataclass
class Reading:
    """What the sources of a run share."""

    project: Project
    now: datetime
    interval: Interval | None
    """Replaced as a whole (a backfill); None: go on from where each source is."""
    at_present: bool
    others: list[str]
    """The configured sources that this run does not read."""
    taken: pl.DataFrame = field(default_factory=lambda: empty(DEMAND))
    """What the sources read before gave."""
    ahead: dict[str, tuple[int, datetime | None]] = field(default_factory=dict)
    """By source: the rows later than the present, and the time of the latest (None: beyond MAX_AHEAD)."""

    def trace(self, source: TraceSource) -> SourceResult:
        """A trace is read whole. Rows that it no longer has stay stored, unless a backfill asks for their interval."""
        found = self._import(source, self.now)
        demand = found.demand
        if self.at_present and found.rows_past_until:
            demand = self._without_future(source, found)
        with open_store(self.project.store_path) as store, store.transaction():
            claim_step(store, self.project.config.step)
            if self.interval is None:
                reopened = self._upsert(store, source.name, demand)
            else:
                demand = _within(demand, self.interval)
                reopened = self._replace(store, source.name, self.interval, demand)
            replace_rejects(store, source.name, found.rejects)
        self.taken = pl.concat([self.taken, demand])
        return SourceResult(
            source=source.name,
            rows=found.rows_read,
            steps=demand.height,
            reopened_steps=reopened,
            first=found.first_time,
            last=found.last_time,
            rejected=found.rejected,
            examples=found.examples,
            ahead=self.ahead.get(source.name, (0, None))[0],
        )

    def chunks(self, source: ChunkedSource) -> SourceResult:
        """Go on from the watermark, less the allowed lateness, or read the interval again.

        Each chunk is stored together with the watermark behind it, so that a killed or failed import resumes after the
        last one. Chunks are read whole, since what is credited to a replica that is born at a chunk's edge depends on
        what is seen around it.
        """
        with open_store(self.project.store_path) as store:
            claim_step(store, self.project.config.step)
            known = read_watermark(store, source.name)
        read: list[Chunk] = []
        reopened = 0
        with bar(source.name) as progress:
            for chunk in self._parts(source, known, progress):
                read.append(chunk)
                span = Interval(start=chunk.start, end=chunk.end)
                with open_store(self.project.store_path) as store, store.transaction():
                    reopened += self._replace(store, source.name, span, chunk.demand)
                    if self.interval is None:
                        write_watermark(store, source.name, max(chunk.end, known or chunk.end))
                    replace_rejects(store, source.name, pl.concat([empty(REJECTS), *(one.rejects for one in read)]))
        demand = pl.concat([empty(DEMAND), *(one.demand for one in read)])
        self.taken = pl.concat([self.taken, demand])
        ahead = sum(one.ahead for one in read) if self.at_present else 0
        if ahead:
            self.ahead[source.name] = ahead, max(one.newest_ahead for one in read if one.newest_ahead is not None)
        return SourceResult(
            source=source.name,
            rows=sum(one.samples for one in read),
            steps=demand.height,
            reopened_steps=reopened,
            first=_time(demand["step_start"].min()),
            last=_time(demand["step_start"].max()),
            rejected=dict(sum((Counter(one.rejected) for one in read), Counter())),
            examples={reason: text for one in reversed(read) for reason, text in one.examples.items()},
            ahead=ahead,
        )

    def _parts(
        self, source: ChunkedSource, known: datetime | None, progress: Callable[[int, int], None]
    ) -> Iterator[Chunk]:
        """The chunks to store, in order; of a backfill what lies in its interval."""
        if self.interval is None:
            begin = self.now - source.history if known is None else known - source.allowed_lateness
            yield from self._chunks(source, floor_to_step(begin, source.chunk), progress)
            return
        start, end = self.interval.start, self.interval.end
        begin = floor_to_step(start, source.chunk)
        needed = -((begin - end) // source.chunk)
        # Told to end at the interval's end, a source would take that for the present and leave the last steps out.
        for chunk in self._chunks(source, begin, lambda done, total: progress(done, min(total, needed))):
            low, high = max(chunk.start, start), min(chunk.end, end)
            if low < high:
                demand = _within(chunk.demand, Interval(start=low, end=high))
                yield replace(chunk, start=low, end=high, demand=demand)
            if chunk.end >= end:
                return

    def _chunks(self, source: ChunkedSource, start: datetime, progress: Callable[[int, int], None]) -> Iterator[Chunk]:
        classes, step, base = self.project.config.classes, self.project.config.step, self.project.base
        if isinstance(source, SqlSource):
            return import_sql(
                source, classes=classes, step=step, start=start, end=self.now, base=base, progress=progress
            )
        return import_prometheus(source, classes=classes, step=step, start=start, end=self.now, progress=progress)

    def _import(self, source: TraceSource, until: datetime) -> TraceImport:
        config = self.project.config
        return import_trace(source, step=config.step, classes=list(config.classes), until=until, base=self.project.base)

    def _without_future(self, source: TraceSource, found: TraceImport) -> pl.DataFrame:
        """The demand of a trace that has rows later than the present. They do not show that it was observed up to the
        present, as the later rows of a run in the past do: it ends with its last row before."""
        latest = self._import(source, self.now + MAX_AHEAD)
        if latest.rows_past_until:
            self.ahead[source.name] = found.rows_past_until, None
        elif latest.last_time is not None and latest.last_time > self.now + CLOCK_TOLERANCE:
            self.ahead[source.name] = found.rows_past_until, latest.last_time
        if found.last_time is None or source.row_interval is not None or source.format == "servegen":
            return found.demand
        return found.demand.filter(pl.col("step_start") < floor_to_step(found.last_time, self.project.config.step))

    def _upsert(self, store: Store, source: str, demand: pl.DataFrame) -> int:
        """Returns how many stored steps this changed."""
        start, last = _time(demand["step_start"].min()), _time(demand["step_start"].max())
        if start is None or last is None:
            return 0
        span = Interval(start=start, end=last + self.project.config.step)
        self._refuse_shared(store, span, demand)
        changed = record_reopened(store, source, start=span.start, end=span.end, frame=demand, replaces=False)
        upsert_demand(store, demand)
        return changed

    def _replace(self, store: Store, source: str, span: Interval, demand: pl.DataFrame) -> int:
        """Returns how many stored steps this changed. Raises DataError where a backfill would only remove."""
        self._refuse_shared(store, span, demand)
        if self.interval is not None and demand.is_empty():
            stored = read_demand(store, start=span.start, end=span.end).filter(source=source)
            if stored.height:
                raise DataError(
                    f"holds nothing from {format_time(span.start)} to {format_time(span.end)}, where "
                    f"{count(stored.height, 'step')} of it are stored",
                    where=f"source {source}",
                    remedy="begin the interval where the source's own history begins; what is stored was kept",
                )
        changed = record_reopened(store, source, start=span.start, end=span.end, frame=demand, replaces=True)
        replace_demand(store, source, start=span.start, end=span.end, frame=demand)
        return changed

    def _refuse_shared(self, store: Store, span: Interval, demand: pl.DataFrame) -> None:
        """Raise where another source gave some of these steps already: one would replace the other unseen."""
        taken = self.taken
        if self.others:
            stored = read_demand(store, start=span.start, end=span.end)
            taken = pl.concat([taken, stored.filter(pl.col("source").is_in(self.others))])
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


def _within(demand: pl.DataFrame, span: Interval) -> pl.DataFrame:
    return demand.filter(pl.col("step_start") >= span.start, pl.col("step_start") < span.end)


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
