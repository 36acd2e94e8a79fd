"""What an SQL source holds, for `floorcast check`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from floorcast.columns import DEMAND, empty
from floorcast.source import Columns, SqlSource
from floorcast.types import Frozen
from floorcast.units import floor_to_step
from pipelines.sources.sql.database import fetch, positions_of, rows_between
from pipelines.sources.sql.importer import as_trace, names_of, read_rows, read_statement, rows_ahead
from pipelines.sources.traces.files import identifier
from pipelines.sources.traces.layout import layout_of

_DAY = timedelta(days=1)


class ExaminedClass(Frozen):
    """One class in the last day: sums over the whole steps before `now`."""

    workload_class: str
    requests: int
    tokens_in: int
    tokens_out: int


class ExaminedSql(Frozen):
    """A source. `first` and `last` are the times of its rows within `source.history` before `now`; `rows` and
    `rejected` count those of the last day; `ahead` rows are stamped after `now`, the latest at `newest_ahead`."""

    columns: dict[str, str]
    """All that the query gives: Arrow types by name."""
    zone: bool
    """Whether its times have a zone; else they are taken for UTC."""
    first: datetime | None
    last: datetime | None
    rows: int
    rejected: dict[str, int]
    examples: dict[str, str]
    ahead: int
    newest_ahead: datetime | None
    classes: tuple[ExaminedClass, ...]


def examine_sql(
    source: SqlSource, *, classes: Collection[str], step: timedelta, now: datetime, base: Path
) -> tuple[ExaminedSql, pl.DataFrame]:
    """Connect and look: what there is, and the DEMAND of the last day. Raises as `import_sql`, but for rows that cannot
    be used, which are only counted."""
    trace = as_trace(source).model_copy(update={"max_reject_share": 1.0})
    names = layout_of(trace, step=step, classes=classes).named
    columns = _columns(source, now, base=base)
    [position] = positions_of(source, list(columns), (source.columns.time,))
    time_column = list(columns)[position]
    read = partial(read_statement, source, classes=classes, step=step, until=now, base=base)
    # Only its times matter, whatever the row holds else.
    times = trace.model_copy(
        update={"columns": Columns(time="t", tokens_in="i", tokens_out="o"), "classes": {}, "workload_class": names[0]}
    )
    ends = read(times, _ends(source, time_column, now), "ends.parquet")
    day = read_rows(source, trace, floor_to_step(now - _DAY, step), now, classes=classes, step=step, base=base)
    ahead, newest_ahead = rows_ahead(source, now, classes=classes, step=step, base=base)
    demand = empty(DEMAND) if day is None else day.demand
    examined = ExaminedSql(
        columns=columns,
        zone="tz=" in columns[time_column],
        first=None if ends is None else ends.first_time,
        last=None if ends is None else ends.last_time,
        rows=0 if day is None else day.rows_read,
        rejected={} if day is None else day.rejected,
        examples={} if day is None else day.examples,
        ahead=ahead,
        newest_ahead=newest_ahead,
        classes=tuple(_class(name, demand) for name in names),
    )
    return examined, demand


def _columns(source: SqlSource, now: datetime, *, base: Path) -> dict[str, str]:
    statement = f"SELECT * FROM {rows_between(source, now, now)} LIMIT 0"
    with TemporaryDirectory(prefix="floorcast-") as folder:
        return fetch(
            source, statement, wanted=names_of(source.columns), base=base, into=Path(folder) / "none.parquet"
        ).columns


def _ends(source: SqlSource, time: str, now: datetime) -> str:
    """The first and the last row's times."""
    column, rows = identifier(time), rows_between(source, now - source.history, now)
    first = f"SELECT {column} AS t, 0 AS i, 0 AS o FROM {rows} WHERE {column} IS NOT NULL ORDER BY {column}"
    return f"({first} LIMIT 1) UNION ALL ({first} DESC LIMIT 1)"


def _class(name: str, demand: pl.DataFrame) -> ExaminedClass:
    sums = demand.filter(pl.col("workload_class") == name).select("requests", "tokens_in", "tokens_out").sum()
    return ExaminedClass(
        workload_class=name, **{metric: round(value) for metric, value in sums.row(0, named=True).items()}
    )
