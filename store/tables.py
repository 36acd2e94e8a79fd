"""What is checked of a frame before it is stored, and the one way in which frames are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from floorcast.columns import TIME, Schema, conform
from floorcast.errors import DataError
from store.connection import Store, Value, utc


@dataclass(frozen=True)
class Rule:
    """Rows where `broken` holds are refused."""

    broken: pl.Expr
    fault: str
    remedy: str


@dataclass(frozen=True)
class Table:
    """A table and what its rows must fulfil. Numbers are finite, and not below zero unless in `signed`.

    Rows that agree in the columns of `unit` are replaced together. `key` is unique within one write
    (empty: no key). `unit` may name columns that a write gives once for all its rows, as run_id.
    """

    name: str
    schema: Schema
    key: tuple[str, ...]
    unit: tuple[str, ...]
    nullable: frozenset[str] = frozenset()
    signed: frozenset[str] = frozenset()
    rules: tuple[Rule, ...] = ()


def read_rows(store: Store, table: Table, sql: str, parameters: Mapping[str, Value]) -> pl.DataFrame:
    """The query's rows with the table's schema, sorted by its key. `{table}` in the query is the table's name."""
    rows = store.read(sql.format(table=table.name), parameters)
    return conform(rows, table.schema).sort(table.key or list(table.schema))


def replace_rows(store: Store, table: Table, frame: pl.DataFrame, stamp: Mapping[str, str | datetime]) -> int:
    """Store the frame with the columns of `stamp` in place of what its units held, in one transaction.

    Where all of `unit` is in `stamp`, an empty frame empties that unit. Returns the rows written. Raises
    DataError where the frame does not suit the table; nothing is written then.
    """
    rows = _conformed(frame, table)
    stamps = {name: utc(value, name) if isinstance(value, datetime) else value for name, value in stamp.items()}
    for name in stamps.keys() & table.schema.keys():
        other = Rule(pl.col(name) != stamps[name], f"{name} is not {stamps[name]}", "store each on its own")
        _refuse(rows, table, other)
    rows = rows.with_columns(pl.lit(value).alias(name) for name, value in stamps.items())
    units = pl.DataFrame([stamps]) if stamps.keys() >= set(table.unit) else rows.select(table.unit).unique()
    same = " AND ".join(f"{table.name}.{column} = units.{column}" for column in table.unit)
    with store.transaction():
        store.execute(f"DELETE FROM {table.name} USING units WHERE {same}", units=units)
        store.execute(f"INSERT INTO {table.name} BY NAME SELECT * FROM rows", rows=rows)
    return rows.height


def _conformed(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The frame conformed to the table's schema. Raises DataError naming column, count and an example."""
    missing = [name for name in table.schema if name not in frame.columns]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(missing)}", where=table.name, remedy=f"give {', '.join(table.schema)}"
        )
    for name, dtype in table.schema.items():
        found = frame.schema[name]
        if dtype == TIME and not (isinstance(found, pl.Datetime) and found.time_zone):
            raise DataError(
                f"column {name} is {found}, not an aware time",
                where=table.name,
                remedy='cast it to Datetime("us", "UTC") where its zone is known',
            )
    try:
        rows = conform(frame, table.schema)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"columns of the wrong type: {error}", where=table.name, remedy="correct the values named"
        ) from error
    for rule in _rules(table):
        _refuse(rows, table, rule)
    return rows


def _rules(table: Table) -> Iterator[Rule]:
    for name, dtype in table.schema.items():
        column = pl.col(name)
        if name not in table.nullable:
            yield Rule(column.is_null(), f"{name} is null", "leave out rows that were not observed")
        if dtype.is_float():
            yield Rule(~column.is_finite(), f"{name} is NaN or infinite", "use null where unknown")
        if dtype.is_numeric() and name not in table.signed:
            yield Rule(column < 0, f"{name} is negative", "give zero or more")
    if table.key:
        yield Rule(pl.struct(table.key).is_duplicated(), "the key is repeated", "give each key once")
    yield from table.rules


def _refuse(rows: pl.DataFrame, table: Table, rule: Rule) -> None:
    broken = rows.filter(rule.broken)
    if broken.height:
        example = broken.row(0, named=True)
        shown = ", ".join(f"{name}={example[name]}" for name in table.key or table.schema)
        raise DataError(
            f"{rule.fault} in {broken.height} of {rows.height} rows, first at {shown}",
            where=table.name,
            remedy=rule.remedy,
        )
