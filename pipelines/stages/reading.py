"""One source after another into the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import polars as pl

from floorcast.columns import DEMAND, FINDINGS, empty
from floorcast.errors import DataError
from floorcast.source import PrometheusSource, SqlSource, TraceSource
from floorcast.types import Frozen
from floorcast.units import floor_to_step, format_time
from pipelines.progress import bar
from pipelines.project import Project
from pipelines.sources import CLOCK_TOLERANCE, Chunk, TraceImport, import_prometheus, import_sql, import_trace
from pipelines.sources.prometheus.lookout import first_samples
from pipelines.sources.traces.result import MAX_REJECTS_KEPT
from pipelines.stages.common import count
from pipelines.stages.resume import asked, lagging, legs, reached
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
    """One source. `rows` counts the samples of a live one; `reopened_steps` were stored otherwise before, or missing
    amid others. `kept_steps` are stored, although the source no longer gives them. `silent` are the classes of a live
    one without a step in the allowed lateness, with the end of the last, if there is one. `rejected` counts rows by
    reason; `examples` shows one of each. `ahead` rows are later than the present and not stored."""

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
    """By source: the stored DEMAND that a live one no longer gives, and that was kept."""

    def trace(self, source: TraceSource) -> SourceResult:
        """A trace is read whole. Rows that it no longer has stay stored, unless a backfill asks for their interval."""
        found = self._import(source, self.now)
        demand = found.demand
        if self.at_present and found.rows_past_until:
            demand = self._without_future(source, found)
        with open_store(self.project.store_path) as store, store.transaction():
            claim_step(store, self.project.config.step)
            if self.interval is None:
                reopened = self._upsert(store, source.name, demand, demand_extent(store, source.name))
            else:
                demand = _within(demand, self.interval)
                extent = demand_extent(store, source.name)
                reopened = self._replace(store, source.name, self.interval, demand, extent)
            replace_rejects(store, source.name, found.rejects)
        self.taken = pl.concat([self.taken, demand])
        return SourceResult(
            source=source.name,
            rows=found.rows_read,
            steps=demand.height,
            reopened_steps=reopened,
            first=found.first_time,
            last=found.last_time,
            silent={},
            rejected=found.rejected,
            examples=found.examples,
            ahead=self.ahead.get(source.name, (0, None))[0],
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
                        given, gone = _given_and_gone(stored.filter(source=source.name), chunk.demand)
                        lost.append(gone)
                        reopened += self._upsert(store, source.name, given, extent)
                        for name, until in reached(source, chunk, step=step):
                            known[name] = max(until, known.get(name, until))
                        write_watermarks(store, source.name, wanted, known)
                    else:
                        reopened += self._replace(store, source.name, span, chunk.demand, extent)
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
            rows=sum(one.samples for one in read),
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

    def _replace(self, store: Store, source: str, span: Interval, demand: pl.DataFrame, extent: pl.DataFrame) -> int:
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
        changed = record_reopened(
            store, source, start=span.start, end=span.end, frame=demand, extent=extent, replaces=True
        )
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


def history_lost(lost: Mapping[str, pl.DataFrame], *, step: timedelta) -> pl.DataFrame:
    """FINDINGS (one, or none) of what live sources no longer give of what was read again, as `Reading.lost`."""
    if not lost:
        return empty(FINDINGS)
    evidence: dict[str, int | str] = {}
    for source, rows in sorted(lost.items()):
        evidence[f"{source}_steps_kept"] = rows.height
        evidence[f"{source}_classes"] = ", ".join(rows["workload_class"].unique().sort())
    steps = pl.concat(lost.values())["step_start"]
    return pl.DataFrame(
        {
            "kind": "history_lost",
            "workload_class": "",
            "metric": "",
            "start": steps.min(),
            "end": steps.dt.offset_by(f"{round(step.total_seconds())}s").max(),
            "severity": "warning",
            "masked": False,
            "evidence": json.dumps(evidence),
        },
        schema=dict(FINDINGS),
    )


def _given_and_gone(stored: pl.DataFrame, demand: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The DEMAND of a live source that is to be stored, and what is stored of it for that time that it no longer gives.

    Where what came before was lost of a class, the first step that is given of it is what is left of one: it gives way
    to a stored one of which more was observed.
    """
    key = ["workload_class", "step_start"]
    gone = stored.join(demand, on=key, how="anti")
    lost = gone.group_by("workload_class").agg(lost=pl.col("step_start").min())
    remnants = (
        demand.group_by("workload_class")
        .agg(pl.col("step_start", "observed_fraction").sort_by("step_start").first())
        .join(lost, on="workload_class")
        .join(stored, on=key, suffix="_stored")
        .filter(pl.col("lost") < pl.col("step_start"), pl.col("observed_fraction") < pl.col("observed_fraction_stored"))
    )
    return demand.join(remnants, on=key, how="anti"), gone


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
