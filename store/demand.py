"""Observed demand by class and step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

import polars as pl

from floorcast.columns import DEMAND
from floorcast.units import format_time
from store.connection import Store, query, utc
from store.tables import Rule, Table, read_rows, replace_rows

_KEY = ("workload_class", "step_start")
_TABLE = Table(
    "demand",
    DEMAND,
    key=_KEY,
    unit=_KEY,
    nullable=frozenset({"requests", "peak_tokens_in_per_s", "peak_tokens_out_per_s"}),
    rules=(
        Rule(
            (pl.col("observed_fraction") <= 0) | (pl.col("observed_fraction") > 1),
            "observed_fraction is outside (0, 1]",
            "leave out steps that were not observed",
        ),
    ),
)


def upsert_demand(store: Store, frame: pl.DataFrame) -> int:
    """Store DEMAND rows in place of those of the same class and step; returns the rows written.

    Requests and peaks may be null where the source cannot tell them. Raises DataError on other nulls, numbers
    that are negative or not finite, an observed_fraction outside (0, 1], and a key given twice.
    """
    return replace_rows(store, _TABLE, frame, {})


def replace_demand(store: Store, source: str, *, start: datetime, end: datetime, frame: pl.DataFrame) -> int:
    """Store DEMAND rows as all that the source has with start <= step_start < end; returns the rows written.

    Rows of other sources stay, unless the frame has the same class and step: then it takes their place, as in
    `upsert_demand`. Raises DataError as that does, and where a row is outside of the interval or names another source.
    """
    first, last = utc(start, "start"), utc(end, "end")
    outside = Rule(
        (pl.col("step_start") < first) | (pl.col("step_start") >= last) | (pl.col("source") != source),
        f"rows are not of source {source} from {format_time(first)} to before {format_time(last)}",
        "give the interval and the source that the rows are of",
    )
    with store.transaction():
        store.execute(query("delete_demand"), {"source": source, "start": first, "end": last})
        return replace_rows(store, replace(_TABLE, rules=(*_TABLE.rules, outside)), frame, {})


def read_demand(
    store: Store,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    classes: Collection[str] | None = None,
) -> pl.DataFrame:
    """DEMAND rows with start <= step_start < end of the classes named (None: no limit)."""
    parameters = {"start": start, "end": end, "classes": None if classes is None else list(classes)}
    return read_rows(store, _TABLE, query("demand_between"), parameters)


def demand_extent(store: Store, source: str | None = None) -> pl.DataFrame:
    """One row per class, of one source or of all: workload_class, first_step, last_step, steps."""
    return store.read(query("demand_extent"), {"source": source})
