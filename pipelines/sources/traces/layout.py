"""What a row means: which columns hold what, how its time is written, and which class it belongs to."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from floorcast.errors import ConfigError
from floorcast.source import Columns, TraceSource
from floorcast.units import format_duration
from pipelines.sources.traces.files import Kind, literal, microseconds

_PRESETS = {
    "azure": Columns(time="TIMESTAMP", tokens_in="ContextTokens", tokens_out="GeneratedTokens"),
    "burstgpt": Columns(
        time="Timestamp", tokens_in="Request tokens", tokens_out="Response tokens", workload_class="Model"
    ),
    "mooncake": Columns(time="timestamp", tokens_in="input_length", tokens_out="output_length"),
}


@dataclass(frozen=True)
class Layout:
    """How the rows of a source are read."""

    columns: tuple[str, ...]
    """time, tokens in, tokens out, then class and requests where they are read"""
    class_position: int | None
    requests_position: int | None
    mapping: dict[str, str]
    """value of the class column to class"""
    rest: str | None
    """class of every other value"""
    named: tuple[str, ...]
    """the classes that the source is said to hold; empty where the values themselves are the classes"""
    kind: Kind
    unit_us: int
    """microseconds in one of the numbers that count from `start`"""
    start_us: int | None
    row_interval: timedelta | None
    ordered: bool
    exact_clock: bool
    """whether two equal rows must be one row twice"""

    @property
    def number_positions(self) -> tuple[int, ...]:
        """where in `columns` the tokens and requests are"""
        return tuple(position for position in range(1, len(self.columns)) if position != self.class_position)


def layout_of(source: TraceSource, *, step: timedelta, classes: Collection[str]) -> Layout:
    """How to read a source of single requests or sums. Raises ConfigError where the settings contradict."""
    columns = source.columns if source.format == "generic" else _PRESETS[source.format]
    if columns is None:
        raise _fault(source, "columns", "format generic needs `columns`", "add columns: {time: ..., tokens_in: ...}")
    _check_interval(source, columns, step=step)
    by_column = columns.workload_class is not None and (bool(source.classes) or source.workload_class is None)
    if source.workload_class is None and not source.classes and source.format == "burstgpt":
        raise _fault(source, "class", "nothing says which class the rows are", "add class: NAME, or map `classes`")
    if source.workload_class is None and columns.workload_class is None:
        raise _fault(
            source, "class", "nothing says which class the rows are", "add class: NAME, or columns.class and `classes`"
        )
    mapping = {value: name for value, name in source.classes.items() if value != "*"} if by_column else {}
    rest = source.classes.get("*", source.workload_class) if by_column else source.workload_class
    named = tuple(sorted({*mapping.values(), *([rest] if rest else [])}))
    check_classes(source, named, classes, key="classes" if by_column else "class")
    wanted = [columns.time, columns.tokens_in, columns.tokens_out]
    if by_column and columns.workload_class is not None:
        wanted.append(columns.workload_class)
    if columns.requests is not None:
        wanted.append(columns.requests)
    return Layout(
        columns=tuple(wanted),
        class_position=3 if by_column else None,
        requests_position=len(wanted) - 1 if columns.requests is not None else None,
        mapping=mapping or ({} if rest else {name: name for name in classes}),
        rest=rest,
        named=named,
        kind="jsonl" if source.format == "mooncake" else "csv",
        unit_us=1_000 if source.format == "mooncake" else 1_000_000,
        start_us=None if source.start is None else microseconds(source.start),
        row_interval=source.row_interval,
        ordered=source.format != "generic",
        exact_clock=source.format == "azure",
    )


def check_classes(source: TraceSource, named: Collection[str], classes: Collection[str], *, key: str) -> None:
    """Raise ConfigError for a class that the source names and the configuration does not."""
    for name in named:
        if name not in classes:
            near = difflib.get_close_matches(name, list(classes), n=1)
            hint = f"did you mean {near[0]}?" if near else f"configured are {', '.join(sorted(classes))}"
            raise _fault(source, key, f"class {name} is not configured", f"add it under `classes`, or {hint}")


def _check_interval(source: TraceSource, columns: Columns, *, step: timedelta) -> None:
    if source.row_interval is None:
        if columns.requests is not None:
            raise _fault(
                source, "columns.requests", "counts of requests belong to rows that are sums", "add row_interval: 5m"
            )
    elif source.format != "generic":
        raise _fault(source, "row_interval", f"format {source.format} has one row a request", "delete row_interval")
    elif source.row_interval <= timedelta(0) or step % source.row_interval:
        shown = format_duration(step)
        raise _fault(
            source,
            "row_interval",
            f"step {shown} is not a whole number of row intervals of {format_duration(source.row_interval)}",
            "choose a step that is a multiple of row_interval",
        )


def _fault(source: TraceSource, key: str, what: str, remedy: str) -> ConfigError:
    return ConfigError(what, where=f"sources.{source.name}.{key}", remedy=remedy)


STAMPS = tuple(
    f"%Y-%m-%d{between}%H:%M:%S{fraction}{zone}" for between in " T" for fraction in (".%n", "") for zone in ("", "Z")
)
"""The ways to write a timestamp in UTC that are read fast. Each takes nothing but what is written just so."""


def time_sql(value: str, duckdb_type: str, layout: Layout, *, numeric: bool, usual: str | None = None) -> str:
    """A BIGINT of microseconds since 1970 from a column, null where it cannot be read.

    Numbers (`numeric`, or a column of them) count from `start` when there is one, else they are seconds,
    milliseconds, microseconds or nanoseconds since 1970, told apart by size. A time without a zone is UTC.
    `usual`: the one of STAMPS that is tried first.
    """
    if duckdb_type.startswith(("TIMESTAMP", "DATE")) or (duckdb_type == "VARCHAR" and not numeric):
        # Not a cast to TIMESTAMP, which is as fast and takes 08:00:00+02 for 08:00:00.
        zoned = f"epoch_us(TRY_CAST({value} AS TIMESTAMPTZ))"
        return zoned if usual is None else f"coalesce(epoch_us(try_strptime({value}, {literal(usual)})), {zoned})"
    number = f"TRY_CAST({value} AS DOUBLE)"
    if layout.start_us is not None:
        return f"TRY_CAST(round({layout.start_us} + {number} * {layout.unit_us}) AS BIGINT)"
    unit = f"CASE WHEN {number} < 1e10 THEN 1e6 WHEN {number} < 1e13 THEN 1e3 WHEN {number} < 1e16 THEN 1 ELSE 1e-3 END"
    return f"TRY_CAST(round({number} * {unit}) AS BIGINT)"


def class_sql(value: str, layout: Layout) -> str:
    """The class of a row, null where its value is not mapped."""
    rest = "NULL" if layout.rest is None else literal(layout.rest)
    if not layout.mapping:
        return rest
    cases = " ".join(f"WHEN {literal(key)} THEN {literal(name)}" for key, name in layout.mapping.items())
    return f"CASE CAST({value} AS VARCHAR) {cases} ELSE {rest} END"
