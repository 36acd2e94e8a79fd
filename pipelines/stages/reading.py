"""One source after another into the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import polars as pl

from floorcast.columns import DEMAND, empty
from floorcast.errors import DataError
from floorcast.source import PrometheusSource, Source, SqlSource, TraceSource
from floorcast.types import Frozen
from floorcast.units import floor_to_step, format_time
from pipelines.progress import bar
from pipelines.project import Project
from pipelines.sources import CLOCK_TOLERANCE, Chunk, TraceImport, import_prometheus, import_sql, import_trace
from pipelines.sources.prometheus.lookout import first_samples
from pipelines.sources.traces.result import MAX_REJECTS_KEPT
from pipelines.stages.common import count
from pipelines.stages.losses import given_and_gone, lost_steps, of_sums, silenced_steps, steps_given, without
from pipelines.stages.resume import asked, lagging, legs, reached
from store.cached_tokens import upsert_cached_tokens
from store.connection import Store, open_store
from store.demand import demand_extent, read_demand, replace_demand, upsert_demand
from store.rejects import read_rejects, replace_rejects
from store.reopened import record_reopened
from store.settings import claim_step
from store.watermarks import read_watermarks, write_watermarks

MAX_AHEAD = timedelta(days=31)
"""Rows further ahead of the present than this are counted, not measured."""

UNSEEN = datetime.min.replace(tzinfo=UTC)

ChunkedSource = PrometheusSource | SqlSource


class Interval(Frozen):
    """Steps from `start` to before `end`, both on the grid."""

    start: datetime
    end: datetime


class SourceResult(Frozen):
    """One source. `rows` counts the samples of a live one, and of a backfill the rows in its interval.

    `reopened_steps` were stored otherwise before, or missing amid others. `kept_steps` are stored, although the source
    no longer gives them. `silent` are the classes of a live one without a step in the allowed lateness, with the end of
    the last, if there is one. `rejected` counts rows by reason; `examples` shows one of each. `ahead` rows are later
    than the present and not stored."""

    source: str
    rows: int
    steps: int
    reopened_steps: int = 0
    kept_steps: int = 0
    first: datetime | None
    last: datetime | None
    silent: dict[str, datetime | None]
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
    lost: dict[str, pl.DataFrame] = field(default_factory=lambda: {})
    """By source: the stored DEMAND that it no longer gives, and that was kept."""

    def trace(self, source: TraceSource) -> SourceResult:
        """A trace is read whole. Steps that it no longer has stay stored, unless a backfill asks for their interval."""
        found, ahead = read_trace(self.project, source, self.now, at_present=self.at_present)
        demand, rows = found.demand, found.rows_read
        if ahead[0]:
            self.ahead[source.name] = ahead
        with open_store(self.project.store_path) as store, store.transaction():
            claim_step(store, self.project.config.step)
            extent = demand_extent(store, source.name)
            if self.interval is None:
                demand, kept = self._without_lost(store, source, demand)
                reopened = self._upsert(store, source.name, demand, extent)
                if kept.height:
                    self.lost[source.name] = kept
            else:
                demand, kept = _within(demand, self.interval), empty(DEMAND)
                rows = self._rows_inside(source, demand, rows)
                reopened = self._replace(store, source, self.interval, demand, extent)
            replace_rejects(store, source.name, found.rejects)
        self.taken = pl.concat([self.taken, demand])
        return SourceResult(
            source=source.name,
            rows=rows,
            steps=demand.height,
            reopened_steps=reopened,
            kept_steps=kept.height,
            first=found.first_time,
            last=found.last_time,
            silent={},
            rejected=found.rejected,
            examples=found.examples,
            ahead=ahead[0],
        )

    def chunks(self, source: ChunkedSource) -> SourceResult:
        """Go on from where each class is, less the allowed lateness, or read the interval again.

        Each chunk is stored together with the watermarks behind it, so that a killed or failed import resumes after the
        last one. Only a backfill takes steps away: what a source no longer gives of what is read again was lost there,
        by a wiped server or a label that was renamed.
        """
        step, wanted = self.project.config.step, asked(source, self.project.config.classes)
        with open_store(self.project.store_path) as store:
            claim_step(store, step)
            known = read_watermarks(store, source.name, wanted)
            extent = demand_extent(store, source.name)
        read: list[Chunk] = []
        lost = [empty(DEMAND)]
        reopened = 0
        with bar(source.name) as progress:
            for classes, chunk in self._parts(source, wanted, known, progress):
                read.append(chunk)
                span = Interval(start=chunk.start, end=chunk.end)
                with open_store(self.project.store_path) as store, store.transaction():
                    if self.interval is None:
                        stored = read_demand(store, start=span.start, end=span.end, classes=classes)
                        stored = stored.filter(source=source.name)
                        silenced = lost_steps(silenced_steps(source, stored, chunk.demand), step)
                        given, gone = given_and_gone(stored, without(chunk.demand, silenced))
                        lost.append(gone)
                        reopened += self._upsert(store, source.name, given, extent)
                        for name, until in reached(source, chunk, step=step):
                            known[name] = max(until, known.get(name, until))
                        write_watermarks(store, source.name, wanted, known)
                    else:
                        reopened += self._replace(store, source, span, chunk.demand, extent)
                    upsert_cached_tokens(store, chunk.cached)
                    _add_rejects(store, source.name, chunk.rejects)
        kept = pl.concat(lost)
        if kept.height:
            self.lost[source.name] = kept
        demand = pl.concat([empty(DEMAND), *(one.demand for one in read)])
        self.taken = pl.concat([self.taken, demand])
        ahead = sum(one.ahead for one in read) if self.at_present else 0
        if ahead:
            self.ahead[source.name] = ahead, max(one.newest_ahead for one in read if one.newest_ahead is not None)
        since = self.now - source.allowed_lateness - step
        live = isinstance(source, PrometheusSource) and self.interval is None
        return SourceResult(
            source=source.name,
            rows=self._rows_inside(source, demand, sum(one.samples for one in read)),
            steps=demand.height,
            reopened_steps=reopened,
            kept_steps=kept.height,
            silent={name: known.get(name) for name in sorted(wanted) if live and known.get(name, UNSEEN) < since},
            first=_time(demand["step_start"].min()),
            last=_time(demand["step_start"].max()),
            rejected=dict(sum((Counter(one.rejected) for one in read), Counter())),
            examples={reason: text for one in reversed(read) for reason, text in one.examples.items()},
            ahead=ahead,
        )

    def _parts(
        self,
        source: ChunkedSource,
        wanted: Mapping[str, str],
        known: Mapping[str, datetime],
        progress: Callable[[int, int], None],
    ) -> Iterator[tuple[Collection[str] | None, Chunk]]:
        """The chunks to store, in order, and the classes that each is about (None: all); of a backfill what lies in
        its interval."""
        if self.interval is None:
            yield from self._missing(source, wanted, known, progress)
            return
        start, end = self.interval.start, self.interval.end
        begin = floor_to_step(start, source.chunk)
        needed = -((begin - end) // source.chunk)
        # Told to end at the interval's end, a source would take that for the present and leave the last steps out.
        for chunk in self._chunks(source, None, begin, lambda done, total: progress(done, min(total, needed))):
            low, high = max(chunk.start, start), min(chunk.end, end)
            if low < high:
                demand = _within(chunk.demand, Interval(start=low, end=high))
                yield None, replace(chunk, start=low, end=high, demand=demand)
            if chunk.end >= end:
                return

    def _missing(
        self,
        source: ChunkedSource,
        wanted: Mapping[str, str],
        known: Mapping[str, datetime],
        progress: Callable[[int, int], None],
    ) -> Iterator[tuple[Collection[str] | None, Chunk]]:
        """As `_parts`, from where each class is."""
        config = self.project.config
        since = lagging(source, wanted, known, now=self.now)
        seen: dict[str, datetime | None] = {}
        if since and isinstance(source, PrometheusSource):
            seen = first_samples(source, config.classes, since, end=self.now)
        ways = legs(source, wanted, known, seen, now=self.now, step=config.step)
        for leg in ways:
            before = (leg.start - ways[0].start) // source.chunk
            classes = leg.classes if isinstance(source, PrometheusSource) else None
            for chunk in self._chunks(source, classes, leg.start, _after(before, progress)):
                yield classes, chunk
                if leg.end is not None and chunk.end >= leg.end:
                    break

    def _chunks(
        self,
        source: ChunkedSource,
        only: Collection[str] | None,
        start: datetime,
        progress: Callable[[int, int], None],
    ) -> Iterator[Chunk]:
        classes, step, base = self.project.config.classes, self.project.config.step, self.project.base
        if only is not None:
            classes = {name: spec for name, spec in classes.items() if name in only}
        if isinstance(source, SqlSource):
            stop = self.interval.end if self.interval else None
            return import_sql(
                source, classes=classes, step=step, start=start, end=self.now, base=base, progress=progress, stop=stop
            )
        return import_prometheus(source, classes=classes, step=step, start=start, end=self.now, progress=progress)

    def _rows_inside(self, source: Source, demand: pl.DataFrame, read: int) -> int:
        """Of a backfill, the rows behind its demand, where a source's demand tells; else as many as were read."""
        if self.interval is None or isinstance(source, PrometheusSource):
            return read
        if isinstance(source, TraceSource) and of_sums(source):
            steps = float(demand["observed_fraction"].sum())
            return round(steps * (self.project.config.step / source.row_interval)) if source.row_interval else read
        return round(float(demand["requests"].sum()))

    def _upsert(self, store: Store, source: str, demand: pl.DataFrame, extent: pl.DataFrame) -> int:
        """Returns how many stored steps this changed."""
        start, last = _time(demand["step_start"].min()), _time(demand["step_start"].max())
        if start is None or last is None:
            return 0
        span = Interval(start=start, end=last + self.project.config.step)
        self._refuse_shared(store, span, demand)
        changed = record_reopened(
            store, source, start=span.start, end=span.end, frame=demand, extent=extent, replaces=False
        )
        upsert_demand(store, demand)
        return changed

    def _replace(self, store: Store, source: Source, span: Interval, demand: pl.DataFrame, extent: pl.DataFrame) -> int:
        """Returns how many stored steps this changed. Raises DataError where a backfill would only remove: all of the
        span, or a stretch of it that had demand for LOSS."""
        self._refuse_shared(store, span, demand)
        stored = read_demand(store, start=span.start, end=span.end).filter(source=source.name)
        gone = silenced_steps(source, stored, demand)
        if demand.is_empty():
            gone = stored.with_columns(stretch=0)
        elif not steps_given(source, demand).is_empty():
            gone = lost_steps(gone, self.project.config.step)
        if gone.height:
            one = gone.filter(pl.col("stretch") == pl.col("stretch").min())["step_start"]
            first, last = _time(one.min()) or span.start, _time(one.max()) or span.end
            raise DataError(
                f"holds nothing from {format_time(first)} to {format_time(last + self.project.config.step)}, where "
                f"{count(one.len(), 'step')} of it are stored",
                where=f"source {source.name}",
                remedy="begin the interval where the source's own history begins, or leave out what it no longer has; "
                "what is stored was kept",
            )
        changed = record_reopened(
            store, source.name, start=span.start, end=span.end, frame=demand, extent=extent, replaces=True
        )
        replace_demand(store, source.name, start=span.start, end=span.end, frame=demand)
        return changed

    def _without_lost(
        self, store: Store, source: TraceSource, demand: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The DEMAND of a trace that is to be stored, and what is stored where it would put zeros for lost rows."""
        stored = (
            read_demand(store).filter(source=source.name).join(demand, on=["workload_class", "step_start"], how="semi")
        )
        lost = lost_steps(silenced_steps(source, stored, demand), self.project.config.step)
        return without(demand, lost), lost.select(DEMAND.keys())

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


def is_present(now: datetime, *, step: timedelta, clock: datetime | None = None) -> bool:
    """Whether `now` is what the clock says, within a step; else it is a moment of the past, or one to come."""
    return abs((clock or datetime.now(UTC)) - now) < step


def read_trace(
    project: Project, source: TraceSource, now: datetime, *, at_present: bool
) -> tuple[TraceImport, tuple[int, datetime | None]]:
    """A trace up to `now`; and how many of its rows are of the future, with the time of the latest (None: beyond
    MAX_AHEAD, or there is none). Raises as `import_trace`.

    Only `at_present` are later rows of the future. They do not show that it was observed up to the present, as the
    later rows of a run in the past do: its demand then ends with its last row before.
    """
    config = project.config
    read = partial(import_trace, source, step=config.step, classes=list(config.classes), base=project.base)
    ahead: tuple[int, datetime | None] = (0, None)
    found = read(until=now)
    if not (at_present and found.rows_past_until):
        return found, ahead
    latest = read(until=now + MAX_AHEAD)
    if latest.rows_past_until:
        ahead = found.rows_past_until, None
    elif latest.last_time is not None and latest.last_time > now + CLOCK_TOLERANCE:
        ahead = found.rows_past_until, latest.last_time
    if found.last_time is None or of_sums(source):
        return found, ahead
    whole = found.demand.filter(pl.col("step_start") < floor_to_step(found.last_time, config.step))
    return replace(found, demand=whole), ahead


def _add_rejects(store: Store, source: str, rejects: pl.DataFrame) -> None:
    """Store rejected rows beside those of earlier chunks and runs. One that was read again is the same row."""
    before = read_rejects(store, source).join(rejects, on=["reason", "raw"], how="anti", nulls_equal=True)
    kept = pl.concat([before, rejects]).group_by("reason", maintain_order=True).tail(MAX_REJECTS_KEPT)
    replace_rejects(store, source, kept.select(before.columns))


def _after(before: int, progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Progress of what comes after `before` chunks."""
    return lambda done, total: progress(before + done, before + total)


def _within(demand: pl.DataFrame, span: Interval) -> pl.DataFrame:
    return demand.filter(pl.col("step_start") >= span.start, pl.col("step_start") < span.end)


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
