"""From stored demand to series: rates on a regular grid, with outages and thin steps masked as missing."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import TIME, Metric
from forecasting.series import FloatArray, Series

MIN_OBSERVED_FRACTION = 0.5
"""A step observed for less than this is masked: its rate is a guess from too few minutes."""

IDLE_SHARE = 0.2
"""All classes at 0 together is idleness where at least this share of the same times of other days was so."""


def to_series(
    demand: pl.DataFrame, *, step: timedelta, classes: Collection[str], end: datetime
) -> tuple[dict[tuple[str, Metric], Series], pl.DataFrame]:
    """Series of every class and metric up to `end` (excluded), and the steps that were masked.

    `demand` has the columns of `floorcast.columns.DEMAND`; rows at or after `end` are not looked at. Rates are
    tokens over the observed part of the step. The second frame has columns step_start, reason (`outage`).
    A class without a row yields no series.
    """
    known = demand.filter(pl.col("step_start") < end, pl.col("workload_class").is_in(list(classes)))
    outages = outage_steps(known, step=step)
    series: dict[tuple[str, Metric], Series] = {}
    for (name,), rows in known.sort("step_start").group_by(["workload_class"], maintain_order=True):
        start: datetime = rows["step_start"][0]
        grid = pl.DataFrame({"step_start": pl.datetime_range(start, end, step, closed="left", eager=True).cast(TIME)})
        aligned = grid.join(rows, on="step_start", how="left", maintain_order="left").with_columns(
            masked=pl.col("step_start").is_in(outages["step_start"].implode())
            | (pl.col("observed_fraction") < MIN_OBSERVED_FRACTION)
        )
        seconds = aligned["observed_fraction"].to_numpy() * step.total_seconds()
        masked = aligned["masked"].fill_null(value=False).to_numpy()
        for metric in Metric:
            rate: FloatArray = aligned[metric].cast(pl.Float64).to_numpy() / seconds
            series[str(name), metric] = Series(str(name), metric, start, step, np.where(masked, np.nan, rate))
    return series, outages


def outage_steps(demand: pl.DataFrame, *, step: timedelta) -> pl.DataFrame:
    """Steps in which collection seems to have failed: every class reads exactly 0 at once, while at the same
    time of other days something was served. The steps beside such a run are masked with it, since a failure
    rarely begins on the grid. Columns: step_start, reason.
    """
    total = (
        demand.group_by("step_start")
        .agg(silent=((pl.col("tokens_in") + pl.col("tokens_out")) == 0).all())
        .sort("step_start")
        .with_columns(time_of_day=pl.col("step_start").dt.time(), day=pl.col("step_start").dt.date())
    )
    usual = total.group_by("time_of_day").agg(silent_days=pl.col("silent").sum(), days=pl.len())
    share_elsewhere = (pl.col("silent_days") - 1) / (pl.col("days") - 1)
    overall = total["silent"].mean() if total.height else None
    suspects = (
        total.join(usual, on="time_of_day")
        .filter(pl.col("silent"))
        # With a single day on record only the whole record can say whether silence is usual.
        .filter(pl.when(pl.col("days") > 1).then(share_elsewhere).otherwise(pl.lit(overall)) < IDLE_SHARE)
        .select("step_start")
    )
    beside = [suspects.with_columns(pl.col("step_start").dt.offset_by(f"{k}us")) for k in _offsets(step)]
    widened = pl.concat([suspects, *beside]).unique().sort("step_start")
    return widened.join(total.select("step_start"), on="step_start", how="semi").with_columns(reason=pl.lit("outage"))


def _offsets(step: timedelta) -> tuple[int, int]:
    microseconds = step // timedelta(microseconds=1)
    return -microseconds, microseconds


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
