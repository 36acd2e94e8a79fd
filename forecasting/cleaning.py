"""From stored demand to series: rates on a regular grid, with what must not be believed masked as missing."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import TIME, Metric
from forecasting.quality import find, masked_steps
from forecasting.quality.grid import places
from forecasting.series import FloatArray, Series


def to_series(
    demand: pl.DataFrame, *, step: timedelta, classes: Collection[str], end: datetime, counted: Collection[str] = ()
) -> tuple[dict[tuple[str, Metric], Series], pl.DataFrame]:
    """Series of every class and metric up to `end` (excluded), and the steps that were masked.

    `demand` has the columns of `floorcast.columns.DEMAND`; rows at or after `end` are not looked at. Rates are
    tokens over the observed part of the step. The second frame has columns workload_class, step_start and reason,
    a kind of `forecasting.quality`; for `counted` see its `outage_steps`. A class without a row yields no series.
    """
    known = demand.filter(pl.col("step_start") < end, pl.col("workload_class").is_in(list(classes)))
    findings = find(known, step=step, classes=classes, end=end, counted=counted)
    masked = masked_steps(findings, step=step, classes=classes)
    kept = known.join(masked, on=["workload_class", "step_start"], how="anti")
    believed = kept.partition_by("workload_class", as_dict=True)
    begun = known.group_by("workload_class").agg(pl.col("step_start").min()).sort("workload_class")
    series: dict[tuple[str, Metric], Series] = {}
    for name, start in begun.iter_rows():
        grid = pl.DataFrame({"step_start": pl.datetime_range(start, end, step, closed="left", eager=True).cast(TIME)})
        mine = believed.get((name,), kept.clear())
        aligned = grid.join(mine, on="step_start", how="left", maintain_order="left")
        seconds = aligned["observed_fraction"].to_numpy() * step.total_seconds()
        for metric in Metric:
            rates: FloatArray = aligned[metric].cast(pl.Float64).to_numpy() / seconds
            series[name, metric] = Series(name, metric, start, step, rates)
    return series, masked


def aligned(demand: pl.DataFrame, series: Series, column: str) -> FloatArray:
    """A column of one class's DEMAND rows on a series' steps, NaN where there is no row."""
    values = np.full(len(series.values), np.nan)
    place = places(demand["step_start"], start=series.start, step=series.step)
    inside = (place >= 0) & (place < len(values))
    values[place[inside]] = demand[column].cast(pl.Float64).to_numpy()[inside]
    return values


def fill_missing(values: FloatArray, *, season: int) -> FloatArray:
    """Values with the missing ones bridged, for models that cannot take NaN; never used for scoring.

    A missing step gets its place in the season (median over seasons) plus the linearly interpolated deviation
    of its neighbours from theirs. Raises ValueError where nothing is observed.
    """
    observed = np.isfinite(values)
    if observed.all():
        return values
    if not observed.any():
        raise ValueError("nothing was observed")
    index = np.arange(len(values))
    profile = np.full(len(values), np.nanmedian(values))
    if len(values) >= 2 * season:
        padded = np.full(-(-len(values) // season) * season, np.nan)
        padded[: len(values)] = values
        by_season = padded.reshape(-1, season)
        seen = np.isfinite(by_season).any(axis=0)
        shape = np.full(season, np.nanmedian(values))
        shape[seen] = np.nanmedian(by_season[:, seen], axis=0)
        profile = shape[index % season]
    deviation = np.interp(index, index[observed], (values - profile)[observed])
    return np.where(observed, values, np.maximum(profile + deviation, np.nanmin(values)))
