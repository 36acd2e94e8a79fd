"""From usable rows to demand steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb
import polars as pl

from floorcast.columns import DEMAND, TIME, conform, empty
from floorcast.errors import DataError
from floorcast.units import EPOCH, floor_to_step, format_time
from pipelines.sources.traces.files import literal, microseconds

_MAX_STEPS = 10_000_000
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Steps:
    demand: pl.DataFrame
    first_time: datetime | None = None
    last_time: datetime | None = None
    incomplete_step: datetime | None = None


def request_steps(
    con: duckdb.DuckDBPyConnection,
    *,
    step: timedelta,
    classes: tuple[str, ...],
    observed_until: datetime | None,
    source: str,
    where: str,
) -> Steps:
    """Steps of requests, idle ones included, from the table `data` (rows whose reason is null).

    `observed_until`: the trace is known to go on to there; else it ends with its last row. `classes`: those the
    source holds; empty for those that it has. Raises DataError where the rows lie implausibly far apart.
    """
    first, last = _span(con)
    if first is None or last is None:
        return Steps(empty(DEMAND))
    end = observed_until or last
    start, stop = floor_to_step(first, step), floor_to_step(end, step)
    sums = con.sql(f"""
        WITH minutes AS (
            SELECT class, t // {microseconds(_MINUTE)} AS minute, sum(tokens_in) AS tokens_in,
                sum(tokens_out) AS tokens_out, count(*) AS requests
            FROM data WHERE reason IS NULL GROUP BY ALL)
        SELECT class::VARCHAR AS workload_class, minute // {step // _MINUTE} AS step,
            sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out, sum(requests)::DOUBLE AS requests,
            max(tokens_in) / 60 AS peak_tokens_in_per_s, max(tokens_out) / 60 AS peak_tokens_out_per_s
        FROM minutes GROUP BY ALL""").pl()
    named = classes or tuple(sums["workload_class"].unique().sort())
    steps = (stop - start) // step
    if steps * len(named) > _MAX_STEPS:
        raise DataError(
            f"the rows lie between {format_time(first)} and {format_time(last)}, {steps:,} steps",
            where=where,
            remedy="check the first and last times (seconds or milliseconds? a wrong year?), or use a longer step",
        )
    number = microseconds(start) // microseconds(step)
    grid = pl.DataFrame({"workload_class": sorted(named)}).join(
        pl.DataFrame({"step": pl.int_range(number, number + steps, eager=True)}), how="cross"
    )
    fraction = (start + step - max(first, start)) / step
    demand = (
        grid.join(sums, on=["workload_class", "step"], how="left")
        .fill_null(0.0)
        .with_columns(
            observed_fraction=pl.when(pl.col("step") == number).then(fraction).otherwise(1.0), source=pl.lit(source)
        )
    )
    return Steps(_dated(demand, step), first, last, None if stop == end and observed_until else stop)


def interval_steps(con: duckdb.DuckDBPyConnection, *, step: timedelta, interval: timedelta, source: str) -> Steps:
    """Steps of sums over intervals, from the table `data`. An interval without a row was not observed.

    The peak is over a minute, or over the interval where that is longer, as a mean over what was observed of it.
    """
    first, last = _span(con)
    if first is None or last is None:
        return Steps(empty(DEMAND))
    end = floor_to_step(last, interval) + interval
    stop = floor_to_step(end, step)
    interval_us, step_us = microseconds(interval), microseconds(step)
    part_us = max(interval_us, microseconds(_MINUTE))
    demand = con.sql(f"""
        WITH parts AS (
            SELECT class, t // {step_us} AS step,
                t // {interval_us} * {interval_us} // {part_us} AS part,
                sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out, sum(requests) AS requests,
                count(DISTINCT t // {interval_us}) AS intervals
            FROM data WHERE reason IS NULL AND t < {microseconds(stop)} GROUP BY ALL)
        SELECT class::VARCHAR AS workload_class, step, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
            sum(requests) AS requests,
            max(tokens_in / intervals) / {interval.total_seconds()} AS peak_tokens_in_per_s,
            max(tokens_out / intervals) / {interval.total_seconds()} AS peak_tokens_out_per_s,
            sum(intervals) / {step_us // interval_us} AS observed_fraction, {literal(source)} AS source
        FROM parts GROUP BY ALL ORDER BY ALL""").pl()
    return Steps(_dated(demand, step), first, last, None if stop == end else stop)


def _span(con: duckdb.DuckDBPyConnection) -> tuple[datetime | None, datetime | None]:
    [(first, last)] = con.execute("SELECT min(t), max(t) FROM data WHERE reason IS NULL").fetchall()
    return (
        None if first is None else EPOCH + timedelta(microseconds=first),
        None if last is None else EPOCH + timedelta(microseconds=last),
    )


def _dated(demand: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    """`step`, a count of steps since the Unix epoch, as the step's start; in the columns and order of DEMAND."""
    start = (pl.col("step") * microseconds(step)).cast(pl.Datetime("us")).dt.replace_time_zone("UTC").cast(TIME)
    return conform(demand.with_columns(step_start=start), DEMAND).sort("workload_class", "step_start")
