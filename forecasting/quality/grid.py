"""Demand as matrices of classes by steps, and findings as runs of steps on them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.columns import FINDINGS, Metric
from forecasting.series import FloatArray

Flags = npt.NDArray[np.bool_]
Runs = Iterator[tuple[int, int, int]]
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Grid:
    """One row per class (sorted), one column per step from `start` on; NaN where not observed.

    `rates` are tokens/s over the observed part of the step, `tokens` the sums as they came, `fraction` the share
    observed, `requests` the requests/s, NaN also where the source cannot tell them.
    """

    names: tuple[str, ...]
    start: datetime
    step: timedelta
    rates: dict[Metric, FloatArray]
    tokens: dict[Metric, FloatArray]
    fraction: FloatArray
    requests: FloatArray

    @classmethod
    def of(cls, demand: pl.DataFrame, *, step: timedelta, end: datetime) -> Grid:
        """Of DEMAND rows before `end`, at least one."""
        start: datetime = demand["step_start"].min()  # type: ignore[assignment]
        names = sorted(demand["workload_class"].unique())
        row = demand["workload_class"].cast(pl.Enum(names)).to_physical().to_numpy()
        place = places(demand["step_start"], start=start, step=step)
        shape = len(names), math.ceil((end - start) / step)

        def matrix(column: str) -> FloatArray:
            values = np.full(shape, np.nan)
            values[row, place] = demand[column].cast(pl.Float64).to_numpy()
            return values

        fraction = matrix("observed_fraction")
        seconds = fraction * step.total_seconds()
        tokens = {metric: matrix(metric) for metric in Metric}
        rates = {metric: values / seconds for metric, values in tokens.items()}
        return cls(tuple(names), start, step, rates, tokens, fraction, matrix("requests") / seconds)

    @property
    def shape(self) -> tuple[int, int]:
        classes, steps = self.fraction.shape
        return classes, steps

    @property
    def present(self) -> Flags:
        return np.isfinite(self.fraction)

    @property
    def hour_steps(self) -> int:
        """Steps in an hour, at least one."""
        return max(HOUR // self.step, 1)

    def time(self, place: int) -> datetime:
        return self.start + place * self.step

    def without(self, mask: Flags) -> Grid:
        """The grid with the steps of the mask not observed."""
        if not mask.any():
            return self
        return replace(
            self,
            rates={metric: np.where(mask, np.nan, values) for metric, values in self.rates.items()},
            tokens={metric: np.where(mask, np.nan, values) for metric, values in self.tokens.items()},
            fraction=np.where(mask, np.nan, self.fraction),
            requests=np.where(mask, np.nan, self.requests),
        )


@dataclass(frozen=True)
class Finding:
    """A run of steps [start, stop) of a class (its row, None: all) and metric (None: both)."""

    kind: str
    row: int | None
    start: int
    stop: int
    evidence: dict[str, float | int | str]
    metric: Metric | None = None
    severity: Literal["info", "warning"] = "info"
    masked: bool = False


def places(times: pl.Series, *, start: datetime, step: timedelta) -> npt.NDArray[np.int64]:
    """How many steps after `start` each time lies."""
    since: npt.NDArray[np.int64] = (times - start).dt.total_microseconds().to_numpy()
    return since // (step // timedelta(microseconds=1))


def frame(found: Sequence[Finding], grid: Grid) -> pl.DataFrame:
    """As FINDINGS."""
    rows = [
        (
            one.kind,
            "" if one.row is None else grid.names[one.row],
            one.metric or "",
            grid.time(one.start),
            grid.time(one.stop),
            one.severity,
            one.masked,
            as_json(one.evidence),
            "",
        )
        for one in found
    ]
    return pl.DataFrame(rows, schema=dict(FINDINGS), orient="row")


def as_json(evidence: dict[str, float | int | str]) -> str:
    """Figures with four digits at most, since a person reads them."""
    return json.dumps(
        {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in evidence.items()}
    )


def mask_of(found: Sequence[Finding], grid: Grid) -> Flags:
    mask = np.zeros(grid.shape, dtype=np.bool_)
    for one in found:
        if one.masked:
            mask[slice(None) if one.row is None else one.row, one.start : one.stop] = True
    return mask


def runs(flags: Flags, *, least: int = 1) -> Runs:
    """(row, start, stop) of every run of at least so many set flags, by row."""
    edges = np.diff(flags.astype(np.int8), axis=1, prepend=0, append=0)
    rows, starts = np.nonzero(edges == 1)
    stops = np.nonzero(edges == -1)[1]
    long = stops - starts >= least
    yield from zip(rows[long].tolist(), starts[long].tolist(), stops[long].tolist(), strict=True)


def shared_runs(flags: Flags, concerned: Flags) -> Iterator[tuple[int | None, int, int]]:
    """As `runs`, where flags that all of several concerned classes share are one run of no row."""
    shared = (flags | ~concerned).all(axis=0) & (concerned.sum(axis=0) > 1)
    for _, start, stop in runs(shared[None, :]):
        yield None, start, stop
    yield from runs(flags & ~shared)


def median(values: FloatArray) -> FloatArray:
    """Along the last axis, of what is not NaN; NaN where nothing is. Many times faster than numpy's nanmedian."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.isfinite(values).sum(axis=-1, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[-1] - 1), axis=-1)
    middle: FloatArray = ((low + high) / 2)[..., 0]
    return middle
