"""Recorded demand on the fine grid that a replay runs on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.errors import DataError
from floorcast.pool import Pool
from scaling.capacity import Floats, required_replicas

_UNNAMED = "requests"


@dataclass(frozen=True)
class Stream:
    """Requests that share one queue. Arrays are [steps]: what arrived within each step, evenly.

    A token that waits longer than `max_wait_s` is late; one not begun after `timeout_s` is given up.
    """

    name: str
    tokens_in: Floats
    tokens_out: Floats
    requests: Floats
    max_wait_s: float
    timeout_s: float = inf


@dataclass(frozen=True)
class Traffic:
    """The streams of a pool from `start` in steps of `step_s`, the most urgent first: each step, a stream gets what
    those before it have left."""

    start: datetime
    step_s: float
    streams: tuple[Stream, ...]

    def __post_init__(self) -> None:
        lengths = {len(array) for one in self.streams for array in (one.tokens_in, one.tokens_out, one.requests)}
        if len(lengths) != 1 or not lengths.pop():
            raise DataError(
                "the streams are empty or of different lengths",
                where="traffic",
                remedy="give every stream tokens in, tokens out and requests of the same steps",
            )
        for one in self.streams:
            for array in (one.tokens_in, one.tokens_out, one.requests):
                if not (np.isfinite(array).all() and (array >= 0).all()):
                    raise DataError(
                        "there are steps that are negative or not finite",
                        where=f"traffic of {one.name}",
                        remedy="bridge what was not observed before replaying it",
                    )

    @property
    def steps(self) -> int:
        return len(self.streams[0].requests)


def work(stream: Stream, pool: Pool, step_s: float) -> Floats:
    """[steps] replica-seconds that each step's arrivals take at a replica's full capacity C: what `required_replicas`
    asks for at a utilization of 1, times the step."""
    load, _ = required_replicas(
        tokens_in_per_s=stream.tokens_in,
        tokens_out_per_s=stream.tokens_out,
        capacity=pool.capacity.model_copy(update={"target_utilization": 1.0}),
        role=pool.role,
    )
    return load


def from_requests(
    arrival_s: npt.ArrayLike,
    tokens_in: npt.ArrayLike,
    tokens_out: npt.ArrayLike,
    *,
    start: datetime,
    steps: int,
    step_s: float,
    max_wait_s: float,
    timeout_s: float = inf,
    name: str = _UNNAMED,
) -> Traffic:
    """Requests, each with its arrival in seconds after `start`, in steps. Those outside of the steps are left out."""
    at = np.floor(np.asarray(arrival_s, dtype=np.float64) / step_s).astype(np.int64)
    inside = (at >= 0) & (at < steps)

    def summed(values: npt.ArrayLike) -> Floats:
        weights = np.broadcast_to(np.asarray(values, dtype=np.float64), at.shape)[inside]
        sums: Floats = np.bincount(at[inside], weights=weights, minlength=steps).astype(np.float64)
        return sums

    stream = Stream(name, summed(tokens_in), summed(tokens_out), summed(1.0), max_wait_s, timeout_s)
    return Traffic(start, step_s, (stream,))


def from_minutes(
    tokens_in: npt.ArrayLike,
    tokens_out: npt.ArrayLike,
    requests: npt.ArrayLike,
    *,
    name: str,
    step_s: float,
    max_wait_s: float,
    timeout_s: float = inf,
) -> Stream:
    """What arrived in each minute, spread evenly over its steps."""
    parts = round(60 / step_s)
    fine = [np.repeat(np.asarray(one, dtype=np.float64) / parts, parts) for one in (tokens_in, tokens_out, requests)]
    return Stream(name, fine[0], fine[1], fine[2], max_wait_s, timeout_s)


def from_demand(
    demand: pl.DataFrame,
    *,
    classes: Collection[str],
    start: datetime,
    end: datetime,
    step: timedelta,
    seed: int,
    name: str,
    step_s: float,
    max_wait_s: float,
    timeout_s: float = inf,
) -> Stream:
    """A DEMAND frame's steps from `start` to `end`, of all `classes` together, as minutes and then finer steps.

    One minute of each step, drawn with `seed`, has the step's peak of tokens in and of tokens out; the others share
    the rest. A step observed in part counts at the rate of that part. What was not observed is bridged linearly, class
    by class, since a replay cannot leave time out. Requests that no source tells are one for each 1,000 tokens.

    Raises DataError where a class has no step within the interval.
    """
    minutes = round(step.total_seconds() / 60)
    grid = pl.datetime_range(start, end, step, closed="left", time_zone="UTC", time_unit="us", eager=True)
    rng = np.random.default_rng(seed)
    busiest = np.arange(minutes) == rng.integers(minutes, size=len(grid))[:, None]
    total = np.zeros((3, len(grid) * minutes))
    for one in sorted(classes):
        rows = demand.filter(workload_class=one)
        on_grid = grid.alias("step_start").to_frame().join(rows, on="step_start", how="left", maintain_order="left")
        if on_grid["observed_fraction"].is_not_null().sum() == 0:
            raise DataError(
                f"no demand is stored from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC",
                where=f"class {one}",
                remedy="ingest it, or replay another interval",
            )
        total += _minutes_of(on_grid, busiest)
    return from_minutes(*total, name=name, step_s=step_s, max_wait_s=max_wait_s, timeout_s=timeout_s)


def _minutes_of(rows: pl.DataFrame, busiest: npt.NDArray[np.bool_]) -> Floats:
    """[3, minutes]: tokens in, tokens out and requests; rows is DEMAND with nulls where nothing was observed."""
    minutes = busiest.shape[1]
    share = pl.col("observed_fraction")
    either = pl.col("tokens_in") + pl.col("tokens_out")
    columns = {
        "tokens_in": pl.col("tokens_in") / share,
        "tokens_out": pl.col("tokens_out") / share,
        "requests": pl.coalesce("requests", either / 1000) / share,
    }
    whole = rows.select(**{name: value.interpolate().forward_fill().backward_fill() for name, value in columns.items()})
    fine = []
    for name in columns:
        mean = whole[name].to_numpy() / minutes
        known = f"peak_{name}_per_s" in rows.columns
        peak = rows[f"peak_{name}_per_s"].fill_null(0).to_numpy() * 60 if known else mean
        # The busiest minute is no less than the mean one, and no more than all of the step.
        peak = np.clip(peak, mean, mean * minutes)
        rest = (mean * minutes - peak) / max(minutes - 1, 1)
        fine.append(np.where(busiest, peak[:, None], rest[:, None]).ravel())
    return np.stack(fine)
