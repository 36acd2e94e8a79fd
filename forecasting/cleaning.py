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


EDGE_SHARE = 0.9
"""A step beside an outage that reads under this share of the one beyond it was probably cut by the outage."""


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
    time of other days something was served. A failure rarely begins and ends on the grid, so a step beside it that
    reads lower than the one beyond it, or whose other side is not known yet, is masked too; one that does not is
    kept, since it may be the newest there is. Columns: step_start, reason.
    """
    total = (
        demand.group_by("step_start")
        .agg(tokens=(pl.col("tokens_in") + pl.col("tokens_out")).sum() / pl.col("observed_fraction").max())
        .sort("step_start")
        .with_columns(
            silent=pl.col("tokens") == 0,
            time_of_day=pl.col("step_start").dt.time(),
        )
    )
    usual = total.group_by("time_of_day").agg(silent_days=pl.col("silent").sum(), days=pl.len())
    share_elsewhere = (pl.col("silent_days") - 1) / (pl.col("days") - 1)
    suspects = (
        total.join(usual, on="time_of_day")
        .filter(pl.col("silent"))
        # With a single day on record only the whole record can say whether silence is usual.
        .filter(
            pl.when(pl.col("days") > 1).then(share_elsewhere).otherwise(pl.lit(total["silent"].mean())) < IDLE_SHARE
        )
        .select("step_start")
    )
    edges = [_partial_edges(total, suspects, step=step), _partial_edges(total, suspects, step=-step)]
    return pl.concat([suspects, *edges]).unique().sort("step_start").with_columns(reason=pl.lit("outage"))


def _partial_edges(total: pl.DataFrame, suspects: pl.DataFrame, *, step: timedelta) -> pl.DataFrame:
    """The steps one `step` after a suspect that read lower than the one after them, or have none."""
    tokens = total.select("step_start", "tokens")
    after = tokens.with_columns(pl.col("step_start") - step).rename({"tokens": "tokens_beyond"})
    return (
        suspects.with_columns(pl.col("step_start") + step)
        .join(suspects, on="step_start", how="anti")
        .join(tokens, on="step_start")
        .join(after, on="step_start", how="left")
        .filter((pl.col("tokens") < EDGE_SHARE * pl.col("tokens_beyond")).fill_null(value=True))
        .select("step_start")
    )


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
