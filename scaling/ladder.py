"""Where a demand figure comes from when forecasts fail: fresh, old, past weeks, none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import product

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.config import Config
from floorcast.errors import LeakageError
from floorcast.pool import PoolSettings
from floorcast.types import Rung
from floorcast.units import EPOCH, format_duration, format_time
from scaling.capacity import Floats, Ints
from scaling.demand import METRICS, class_demand

RUNGS = tuple(Rung)
"""Best first; arrays hold positions in it."""

MISSING = "missing"
_FRESH, _LAST, _PAST = (RUNGS.index(rung) for rung in (Rung.FRESH, Rung.LAST_FORECAST, Rung.PAST_WEEKS))

_WIDENING = timedelta(hours=12)
"""Heuristic: the spread above the median grows by itself once every 12 hours that a forecast ages."""

_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_PAST_RULES = (("past_weeks_max", _WEEK, 4 * _WEEK), ("past_days_max", _DAY, _WEEK))
"""Label, period, and how far back the maximum reaches; the second where the first has nothing."""

_KEY = ("workload_class", "metric")


@dataclass(frozen=True)
class Grid:
    """`count` steps from `start`, which lies on the step grid."""

    start: datetime
    step: timedelta
    count: int

    @property
    def first_index(self) -> int:
        """Steps from the Unix epoch to `start`."""
        return (self.start - EPOCH) // self.step

    @property
    def end(self) -> datetime:
        return self.start + self.count * self.step


@dataclass(frozen=True)
class Waiting:
    """A class planned by its deadline. `wait` is how long its work may take; `arriving` [metrics, steps] what comes, in
    tokens per second at the quantile; `finished` [steps] the last step that what comes in each is done in."""

    wait: timedelta
    arriving: Floats
    finished: Ints


@dataclass(frozen=True)
class Figures:
    """What is known of each class's demand. Arrays are [classes, metrics, steps].

    `quantile` and `median` are tokens per second and NaN where nothing is known, `rung` is a position in RUNGS,
    and `labels[label]` names the model or rule of each figure. Of the classes in `waiting`, quantile and median are of
    the work done in each step, not of that which arrives. `cached` is the share of its prompt tokens that a class's
    tokens in leave out.
    """

    classes: tuple[str, ...]
    quantile: Floats
    median: Floats
    rung: npt.NDArray[np.int8]
    label: npt.NDArray[np.int32]
    labels: tuple[str, ...]
    waiting: dict[str, Waiting] = field(default_factory=dict)
    cached: Mapping[str, float] = field(default_factory=dict)

    def first(self, steps: int) -> Figures:
        """Of the first `steps` alone; what waits there may be finished after them."""
        return replace(
            self,
            quantile=self.quantile[:, :, :steps],
            median=self.median[:, :, :steps],
            rung=self.rung[:, :, :steps],
            label=self.label[:, :, :steps],
            waiting={
                name: replace(one, arriving=one.arriving[:, :steps], finished=one.finished[:steps])
                for name, one in self.waiting.items()
            },
        )

    def part(self, members: list[int], shares: Floats) -> Figures:
        """Of the `members` alone, the part [members, steps] of each. Of no part all is known: it is nothing."""
        part, none = shares[:, None, :], shares[:, None, :] == 0
        return Figures(
            classes=tuple(self.classes[member] for member in members),
            quantile=np.where(none, 0.0, self.quantile[members] * part),
            median=np.where(none, 0.0, self.median[members] * part),
            rung=np.where(none, np.int8(_FRESH), self.rung[members]),
            label=self.label[members],
            labels=self.labels,
            waiting={name: one for name, one in self.waiting.items() if self.classes.index(name) in members},
        )


def fallback_replicas(pool: PoolSettings) -> int:
    """The last rung: what a pool gets when a class's demand is not known at all."""
    return pool.bounds.max if pool.fallback_replicas is None else pool.fallback_replicas


def gather(
    config: Config,
    grid: Grid,
    *,
    now: datetime,
    forecasts: pl.DataFrame,
    history: pl.DataFrame,
    fresh_for: timedelta,
    changes: pl.DataFrame | None = None,
) -> Figures:
    """The best figure for every class, metric and step of the grid, at the quantile of the pool planned for it.

    `forecasts` is a FORECASTS frame: the newest cutoff that covers a step counts, as `fresh` up to an age of
    `fresh_for`, after that with its spread above the median widened by 1 + age / 12 h. `history` is a DEMAND
    frame without outages: the maximum at the same time of week over the four weeks before the grid, else at the
    same time of day over the last seven days. Forecasts hold what events change, and `history` must be without them:
    `changes` (KNOWN_CHANGES) are put onto what comes from it. Raises LeakageError for a cutoff after `now`.
    """
    classes = tuple(sorted(config.classes))
    levels = {
        (name, metric.value): config.pools[config.pool_of(name, metric)].margin.quantile
        for name, metric in product(classes, METRICS)
    }
    rows = _forecast_rows(class_demand(forecasts, levels), grid, now=now, fresh_for=fresh_for)
    labels = (MISSING, *(rule[0] for rule in _PAST_RULES), *rows["label"].unique().sort())
    shape = (len(classes), len(METRICS), grid.count)
    found = Figures(
        classes=classes,
        quantile=np.full(shape, np.nan),
        median=np.full(shape, np.nan),
        rung=np.full(shape, len(RUNGS) - 1, dtype=np.int8),
        label=np.zeros(shape, dtype=np.int32),
        labels=labels,
    )
    where = _places(rows, classes, grid)
    found.quantile[where] = rows["quantile"].to_numpy()
    found.median[where] = rows["median"].to_numpy()
    found.rung[where] = rows["rung"].to_numpy()
    found.label[where] = rows["label"].replace_strict(list(labels), list(range(len(labels))), return_dtype=pl.Int32)
    for label, period, reach in _PAST_RULES:
        _fill_from_past(found, grid, history, label=labels.index(label), period=period, reach=reach)
    return found if changes is None else _with_changes(found, grid, changes)


def _places(rows: pl.DataFrame, classes: tuple[str, ...], grid: Grid) -> tuple[Ints, ...]:
    """Where the figures of rows with workload_class, metric and step_start stand in the arrays of `Figures`."""
    found = rows.select(
        pl.col("workload_class").replace_strict(list(classes), list(range(len(classes))), return_dtype=pl.Int64),
        pl.col("metric").replace_strict([m.value for m in METRICS], [0, 1], return_dtype=pl.Int64),
        _step_index(grid.step) - grid.first_index,
    )
    return tuple(found.to_numpy().T)


def _with_changes(found: Figures, grid: Grid, changes: pl.DataFrame) -> Figures:
    """The same with `changes` put onto what comes from past weeks, whose labels name them."""
    step = pl.col("step_start")
    changes = changes.filter(step >= grid.start, step < grid.end)
    changes = changes.filter(found.rung[_places(changes, found.classes, grid)] == _PAST)
    if changes.is_empty():
        return found
    where = _places(changes, found.classes, grid)
    multiply, add, least = (changes[name].to_numpy() for name in ("multiply", "add", "at_least"))
    for figure in (found.quantile, found.median):
        figure[where] = np.maximum(figure[where] * multiply + add, least)
    said = [f"{found.labels[old]}, {new}" for old, new in zip(found.label[where], changes["label"], strict=True)]
    labels = (*found.labels, *sorted(set(said)))
    found.label[where] = [labels.index(one) for one in said]
    return replace(found, labels=labels)


def _forecast_rows(demand: pl.DataFrame, grid: Grid, *, now: datetime, fresh_for: timedelta) -> pl.DataFrame:
    """One row per class, metric and step of the grid, from the newest cutoff, with its rung and label."""
    step = pl.col("step_start")
    on_grid = (step.dt.timestamp("us") % _microseconds(grid.step)) == 0
    rows = demand.filter(step >= grid.start, step < grid.end, on_grid)
    suffixes = {}
    for cutoff in demand["cutoff"].unique():
        age = now - cutoff
        if age < timedelta(0):
            raise LeakageError(
                f"a forecast has seen data up to {format_time(cutoff)}, after {format_time(now)}",
                where="forecasts given to the plan",
                remedy="plan from forecasts with a cutoff at or before `now`",
            )
        stale = age > fresh_for
        suffixes[cutoff] = f", {format_duration(age)} old, spread x{1 + age / _WIDENING:.2f}" if stale else ""
    age_, median = pl.lit(now) - pl.col("cutoff"), pl.col("median")
    widening = pl.when(age_ > fresh_for).then(1 + age_ / _WIDENING).otherwise(1.0)
    return (
        rows.sort("cutoff")
        .unique([*_KEY, "step_start"], keep="last", maintain_order=True)
        .with_columns(
            quantile=median + (pl.col("quantile") - median) * widening,
            rung=pl.when(age_ > fresh_for).then(_LAST).otherwise(_FRESH).cast(pl.Int8),
            label=pl.col("model")
            + pl.col("cutoff").replace_strict(list(suffixes), list(suffixes.values()), return_dtype=pl.String),
        )
    )


def _fill_from_past(
    found: Figures, grid: Grid, history: pl.DataFrame, *, label: int, period: timedelta, reach: timedelta
) -> None:
    """Fill the figures still missing with the maximum at the same phase of `period`, in place."""
    at_class, at_metric, at_step = np.nonzero(np.isnan(found.quantile))
    if not at_class.size:
        return
    names = np.array([metric.value for metric in METRICS])
    gaps = pl.DataFrame(
        {
            "workload_class": np.array(found.classes)[at_class],
            "metric": names[at_metric],
            "phase": (grid.first_index + at_step) % (period // grid.step),
        }
    )
    past = _past_maximum(history, grid, period=period, reach=reach)
    rates = gaps.join(past, on=[*_KEY, "phase"], how="left", maintain_order="left")["rate"].to_numpy()
    known = ~np.isnan(rates)
    where = (at_class[known], at_metric[known], at_step[known])
    found.quantile[where] = found.median[where] = rates[known]
    found.rung[where] = _PAST
    found.label[where] = label


def _past_maximum(history: pl.DataFrame, grid: Grid, *, period: timedelta, reach: timedelta) -> pl.DataFrame:
    """Greatest rate (tokens/s) by class, metric and phase of `period`, over `reach` before the grid.

    A step observed in part counts at the rate of the part observed.
    """
    observed_s = pl.col("observed_fraction") * grid.step.total_seconds()
    return (
        history.filter(pl.col("step_start") >= grid.start - reach, pl.col("step_start") < grid.start)
        .select(
            "workload_class",
            *(pl.col(metric.value) / observed_s for metric in METRICS),
            phase=_step_index(grid.step) % (period // grid.step),
        )
        .unpivot(index=["workload_class", "phase"], variable_name="metric", value_name="rate")
        .filter(pl.col("rate").is_finite())
        .group_by(*_KEY, "phase")
        .agg(pl.col("rate").max())
    )


def _step_index(step: timedelta) -> pl.Expr:
    return pl.col("step_start").dt.timestamp("us") // _microseconds(step)


def _microseconds(step: timedelta) -> int:
    return step // timedelta(microseconds=1)
