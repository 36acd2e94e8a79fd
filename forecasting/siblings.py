"""Classes without a history of their own: borrowed from a class that is like them, or inherited from their old name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import MEDIAN, QUANTILE_COLUMNS, Metric
from floorcast.workload import WorkloadClass
from forecasting.series import Series

OWN_HISTORY = timedelta(days=2)
"""With so much observed of a class, nothing is borrowed any more: two of the shortest season."""

WIDENING = 1.5
"""Quantiles of a forecast from borrowed history are so many times as far from the median."""

AllSeries = Mapping[tuple[str, Metric], Series]


@dataclass(frozen=True)
class Borrowed:
    """Series with the history that was borrowed, and for each class and metric that borrowed a label that says so."""

    series: dict[tuple[str, Metric], Series]
    labels: dict[tuple[str, Metric], str]


def borrow(series: AllSeries, classes: Mapping[str, WorkloadClass]) -> Borrowed:
    """Give each class that is `like` another and has too little history that one's, times `scale`, in front of its own.

    Only steps before a class's first observed one are borrowed; all of them where it has none. `series` end at their
    last observed step. A class borrows what its sibling has borrowed, too.
    """
    found = Borrowed(dict(series), {})
    done: set[str] = set()

    def settle(name: str) -> None:
        spec = classes[name]
        if name in done or spec.like is None:
            return
        done.add(name)
        settle(spec.like)
        scale = spec.scale or 1.0
        for metric in Metric:
            own, sibling = found.series.get((name, metric)), found.series.get((spec.like, metric))
            if sibling is None or (own is not None and _observed(own) >= OWN_HISTORY):
                continue
            joined = _in_front(sibling, own, scale)
            found.series[name, metric] = replace(joined, workload_class=name)
            found.labels[name, metric] = f"like {spec.like} x{scale:.3g}"

    for name in classes:
        settle(name)
    return found


def _in_front(sibling: Series, own: Series | None, scale: float) -> Series:
    scaled = replace(sibling, values=sibling.values * scale)
    observed = np.flatnonzero(np.isfinite(own.values)) if own is not None else np.zeros(0, dtype=int)
    if own is None or not len(observed):
        return scaled
    begin = own.start + int(observed[0]) * own.step
    start = min(sibling.start, begin)
    values = np.full((own.end - start) // own.step, np.nan)
    place, count = (sibling.start - start) // own.step, max((begin - sibling.start) // own.step, 0)
    lent = scaled.values[:count]
    values[place : place + len(lent)] = lent
    values[(begin - start) // own.step :] = own.values[observed[0] :]
    return replace(own, start=start, values=values)


def _observed(series: Series) -> timedelta:
    return int(np.isfinite(series.values).sum()) * series.step


def widen(forecast: pl.DataFrame, label: str) -> pl.DataFrame:
    """FORECASTS rows from borrowed history: quantiles further from the median, never negative, and labelled."""
    median = pl.col(MEDIAN)
    wider = [
        (median + (pl.col(name) - median) * WIDENING).clip(lower_bound=0.0).alias(name)
        for name in QUANTILE_COLUMNS
        if name != MEDIAN
    ]
    return forecast.with_columns(*wider, model=pl.col("model") + f", {label}")


def inherit(demand: pl.DataFrame, *, renamed: Mapping[str, str], first_steps: Mapping[str, datetime]) -> pl.DataFrame:
    """DEMAND rows under the names that classes have now. `renamed` is old name by new one, `first_steps` the first step
    stored under each name.

    Of an old name only what is before the new name's first step counts; the two are never added up.
    """
    if not renamed:
        return demand
    begun = pl.DataFrame(
        [{"old": old, "new": new, "begun": first_steps.get(new)} for new, old in renamed.items()],
        schema={"old": pl.String, "new": pl.String, "begun": demand.schema["step_start"]},
    )
    joined = demand.join(begun, left_on="workload_class", right_on="old", how="left", maintain_order="left")
    kept = joined.filter(pl.col("new").is_null() | pl.col("begun").is_null() | (pl.col("step_start") < pl.col("begun")))
    return kept.with_columns(workload_class=pl.coalesce("new", "workload_class")).select(demand.columns)
