"""An SQL source into demand steps, one chunk of time after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from floorcast.columns import DEMAND, REJECTS, conform, empty
from floorcast.errors import DataError
from floorcast.source import Columns, SqlSource, TraceSource
from floorcast.units import floor_to_step, format_time
from pipelines.sources.chunk import CLOCK_TOLERANCE, Chunk
from pipelines.sources.sql.database import fault, fetch, rows_between
from pipelines.sources.traces import TraceImport, import_trace
from pipelines.sources.traces.files import identifier, literal
from pipelines.sources.traces.layout import layout_of

AHEAD = timedelta(days=1)
"""How far after the present is looked for rows: a wrong zone is off by less."""


def import_sql(
    source: SqlSource,
    *,
    classes: Collection[str],
    step: timedelta,
    start: datetime,
    end: datetime,
    base: Path,
    progress: Callable[[int, int], None] | None = None,
    stop: datetime | None = None,
) -> Iterator[Chunk]:
    """Read from `start` (rounded down to a step) to the step of the last row before `end`, which is left out.

    `end` is taken for the present: nothing from then on is read. `base` is the folder that relative paths start from.
    A query asks for `source.chunk` at most and up to a multiple of it since 1970; `progress` is told how many queries
    of how many are done. Chunks come in time order, contiguous, and what they hold does not depend on where queries
    begin and end. A chunk ends with the step before the last row read, since only a later row shows that recording
    went on until then. Steps before the first row were observed if the source has a row within `source.history` before
    `start`; else chunks begin with the first row. No rows: no chunk.

    The first chunk also says how many rows of the next day are there already.

    A query over files that would be asked several times is asked once, for all of it. Of a backfill nothing is wanted
    from `stop` on: it is asked chunk by chunk, and no further than `stop` where no row came before.

    Raises ConfigError for a class that is not configured, and DataError where the database cannot be read, the query
    does not give what `columns` names or gives rows it was not asked for, or where more than `source.max_reject_share`
    of a query's rows cannot be used; the chunks before it stand, and the time from there on remains to be read.
    """
    trace = as_trace(source)
    named = layout_of(trace, step=step, classes=classes).named
    chunk = max(source.chunk // step, 1) * step
    low = floor_to_step(start, step)
    total, done = -((floor_to_step(low, chunk) - end) // chunk), 0
    held = empty(DEMAND)  # summed, not yet shown to be complete
    given = low if low < end and any_row(source, low - source.history, low, base=base) else None
    with ExitStack() as copies:
        if source.database is None and stop is None and total > 1:
            source = copies.enter_context(copied(source, low, end + CLOCK_TOLERANCE + AHEAD, base=base))
        reading = _Reading(ahead=rows_ahead(source, end, classes=classes, step=step, base=base))
        while low < end and (given is not None or stop is None or low < stop):
            high = min(floor_to_step(low, chunk) + chunk, end)
            began = time.monotonic()
            found = read_rows(source, trace, low, high, classes=classes, step=step, base=base)
            reading.add(found, time.monotonic() - began)
            first, last = (None, None) if found is None else (found.first_time, found.last_time)
            if given is not None:
                idle = _idle(source, named, low, floor_to_step(first or high, step), step)
                rows = [] if found is None else [found.demand.with_columns(observed_fraction=pl.lit(1.0))]
                held = pl.concat([held, idle, *rows])
            elif found is not None and first is not None:
                given, held = floor_to_step(first, step), found.demand
            if given is not None and last is not None and (proven := floor_to_step(last, step)) > given:
                whole = held.filter(pl.col("step_start") < proven).sort("workload_class", "step_start")
                yield reading.chunk(given, proven, whole)
                given, held, reading = proven, held.filter(pl.col("step_start") >= proven), _Reading()
            done += 1
            if progress is not None:
                progress(done, total)
            low = high


def read_rows(
    source: SqlSource,
    trace: TraceSource,
    start: datetime,
    end: datetime,
    *,
    classes: Collection[str],
    step: timedelta,
    base: Path,
) -> TraceImport | None:
    """The rows from `start` to `end` as steps of `trace`, which is taken to be recorded until `end`; None without any.

    Raises as `import_sql`.
    """
    statement = f"SELECT * FROM {rows_between(source, start, end)}"
    name = f"rows-from-{format_time(start)}.parquet"
    found = read_statement(source, trace, statement, name, until=end, classes=classes, step=step, base=base)
    if found is not None:
        early = found.first_time is not None and found.first_time < start
        refuse_outside(source, start, end, before=early, after=found.rows_past_until > 0)
    return found


@contextmanager
def copied(source: SqlSource, start: datetime, end: datetime, *, base: Path) -> Iterator[SqlSource]:
    """The source, with a query of a copy of its rows from `start` to `end`; as it is, where its times are text or
    numbers. Raises DataError where files cannot be read, or the query gives rows that it was not asked for.
    """
    column = source.columns.time
    with TemporaryDirectory(prefix="floorcast-") as folder:
        copy = Path(folder) / "copy.parquet"
        statement = f"SELECT * FROM {rows_between(source, start, end)}"
        fetch(source, statement, wanted=names_of(source.columns), base=base, into=copy)
        times = pl.scan_parquet(copy).select(column).collect()[column]
        if not isinstance(times.dtype, pl.Datetime):
            yield source
            return
        if times.dtype.time_zone is None:
            times = times.dt.replace_time_zone("UTC")
        refuse_outside(source, start, end, before=(times < start).any(), after=(times >= end).any())
        name = identifier(column)
        query = f"SELECT * FROM read_parquet({literal(str(copy))}) WHERE {name} >= $start AND {name} < $end"
        yield source.model_copy(update={"query": query})


def refuse_outside(source: SqlSource, start: datetime, end: datetime, *, before: bool, after: bool) -> None:
    if before or after:
        column = source.columns.time
        raise fault(
            source,
            f"the query gives rows {'at or after $end' if after else 'before $start'}, asked for {format_time(start)} "
            f"to {format_time(end)}",
            f"write WHERE {column} >= $start AND {column} < $end, about the column that is read",
        )


def read_statement(
    source: SqlSource,
    trace: TraceSource,
    statement: str,
    name: str,
    *,
    until: datetime,
    classes: Collection[str],
    step: timedelta,
    base: Path,
) -> TraceImport | None:
    """A statement's rows as steps of `trace`; `name` is what rejected rows call them."""
    columns = trace.columns or source.columns
    wanted = names_of(columns)
    with TemporaryDirectory(prefix="floorcast-") as folder:
        if not fetch(source, statement, wanted=wanted, base=base, into=Path(folder) / name).rows:
            return None
        # A row past `until` tells the import that recording went on to there.
        later = {column: [until if column == columns.time else 0] for column in wanted}
        pl.DataFrame(later).write_parquet(Path(folder) / "until.parquet")
        try:
            found = import_trace(trace, step=step, classes=classes, until=until, base=Path(folder))
        except DataError as error:
            raise fault(source, error.what, error.remedy) from None
    return replace(found, rows_read=found.rows_read - 1, rows_past_until=found.rows_past_until - 1)


def names_of(columns: Columns) -> tuple[str, ...]:
    """The columns that are read."""
    return tuple(filter(None, (columns.time, columns.tokens_in, columns.tokens_out, columns.workload_class)))


def as_trace(source: SqlSource) -> TraceSource:
    """The source as a generic trace."""
    return TraceSource(
        name=source.name,
        kind="trace",
        format="generic",
        path="*.parquet",
        columns=source.columns,
        workload_class=source.workload_class,
        classes=source.classes,
        max_tokens=source.max_tokens,
        max_reject_share=source.max_reject_share,
    )


def any_row(source: SqlSource, start: datetime, end: datetime, *, base: Path) -> bool:
    statement = f"SELECT 1 AS present FROM {rows_between(source, start, end)} LIMIT 1"
    with TemporaryDirectory(prefix="floorcast-") as folder:
        return fetch(source, statement, wanted=("present",), base=base, into=Path(folder) / "any.parquet").rows > 0


def rows_ahead(
    source: SqlSource, now: datetime, *, classes: Collection[str], step: timedelta, base: Path
) -> tuple[int, datetime | None]:
    """How many rows are stamped up to a day after `now`, and the latest of their times."""
    start = now + CLOCK_TOLERANCE
    trace = as_trace(source).model_copy(update={"max_reject_share": 1.0})
    found = read_rows(source, trace, start, start + AHEAD, classes=classes, step=step, base=base)
    return (0, None) if found is None or found.last_time is None else (found.rows_used, found.last_time)


def _idle(source: SqlSource, names: tuple[str, ...], start: datetime, end: datetime, step: timedelta) -> pl.DataFrame:
    """Steps without a row: zeros for every class that the source names."""
    times = pl.datetime_range(start, end, step, closed="left", time_zone="UTC", eager=True)
    steps = pl.DataFrame({"step_start": times}).join(pl.DataFrame({"workload_class": names}), how="cross")
    values = dict.fromkeys(DEMAND, pl.lit(0.0)) | {"observed_fraction": pl.lit(1.0), "source": pl.lit(source.name)}
    return conform(steps.with_columns(**{name: values[name] for name in DEMAND if name not in steps.columns}), DEMAND)


@dataclass
class _Reading:
    """What was read for the next chunk."""

    ahead: tuple[int, datetime | None] = (0, None)
    rows: int = 0
    seconds: float = 0.0
    rejects: pl.DataFrame = field(default_factory=lambda: empty(REJECTS))
    rejected: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, found: TraceImport | None, seconds: float) -> None:
        self.seconds += seconds
        if found is None:
            return
        self.rows += found.rows_read
        self.rejects = pl.concat([self.rejects, found.rejects])
        for reason, count in found.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count
        self.examples = found.examples | self.examples

    def chunk(self, start: datetime, end: datetime, demand: pl.DataFrame) -> Chunk:
        return Chunk(
            start=start,
            end=end,
            demand=demand,
            samples=self.rows,
            server_s=self.seconds,
            ahead=self.ahead[0],
            newest_ahead=self.ahead[1],
            rejects=self.rejects,
            rejected=self.rejected,
            examples=self.examples,
        )
