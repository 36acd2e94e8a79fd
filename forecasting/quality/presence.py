"""What was not observed, or only seems to have been: gaps, partial steps, outages as zeros, rows of the future."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from floorcast.columns import FINDINGS, empty
from floorcast.units import floor_to_step
from forecasting.quality.grid import Finding, Grid, as_json, median, places, shared_runs

MIN_OBSERVED_FRACTION = 0.5
"""A step observed for less than this is masked: its rate is a guess from too few minutes."""

IDLE_SHARE = 0.2
"""All classes at 0 together is idleness where at least this share of the same times of other days was so."""

EDGE_SHARE = 0.9
"""A step beside an outage that reads under this share of the one beyond it was probably cut by the outage."""

MANY_GAPS = 50
"""A class with more gaps than this comes and goes: its gaps are one finding."""


def gaps(grid: Grid) -> list[Finding]:
    """Steps without a row between a class's first and last."""
    present = grid.present
    inside = np.logical_or.accumulate(present, axis=1) & np.logical_or.accumulate(present[:, ::-1], axis=1)[:, ::-1]
    found = [
        Finding("gap", row, start, stop, {"steps_missing": stop - start})
        for row, start, stop in shared_runs(inside & ~present, inside)
    ]
    counts = {row: [one for one in found if one.row == row] for row in {one.row for one in found}}
    return [
        one
        for row, of_row in counts.items()
        for one in (of_row if row is None or len(of_row) <= MANY_GAPS else [_many_gaps(of_row)])
    ]


def _many_gaps(found: list[Finding]) -> Finding:
    missing = sum(one.stop - one.start for one in found)
    first, last = found[0], found[-1]
    return Finding("gap", first.row, first.start, last.stop, {"gaps": len(found), "steps_missing": missing})


def partials(grid: Grid) -> list[Finding]:
    """Steps observed for less than half."""
    return [
        Finding(
            "partial",
            row,
            start,
            stop,
            {"observed_fraction": float(np.nanmin(grid.fraction[slice(None) if row is None else row, start:stop]))},
            severity="warning",
            masked=True,
        )
        for row, start, stop in shared_runs(grid.fraction < MIN_OBSERVED_FRACTION, grid.present)
    ]


def outages(grid: Grid, steps: pl.DataFrame) -> list[Finding]:
    """The steps of `outage_steps` as runs, of all classes where all were out together."""
    flags = np.zeros(grid.shape, dtype=np.bool_)
    rows = steps["workload_class"].cast(pl.Enum(grid.names)).to_physical().to_numpy()
    flags[rows, places(steps["step_start"], start=grid.start, step=grid.step)] = True
    out = flags.any(axis=0)
    day = max(timedelta(days=1) // grid.step, 1)
    index = np.arange(out.size)
    found = []
    for row, start, stop in shared_runs(flags, grid.present):
        concerned = slice(None) if row is None else slice(row, row + 1)
        total = np.sum([np.nansum(rates[concerned], axis=0) for rates in grid.rates.values()], axis=0)
        others = ((index - start) % day < stop - start) & ~out
        evidence: dict[str, float | int | str] = {"steps": stop - start}
        if others.any():
            evidence["usual_tokens_per_s"] = float(median(total[others]))
        found.append(Finding("outage", row, start, stop, evidence, severity="warning", masked=True))
    return found


def clock_skew(ahead: Mapping[str, tuple[int, datetime | None]], *, present: datetime, step: timedelta) -> pl.DataFrame:
    """FINDINGS (one, or none) of what is stamped after the present: the clock of what wrote it, or ours, is wrong.

    `ahead` gives by source how many rows or samples, and the time of the latest (None: too far to tell). They are not
    demand yet, so that nothing is masked. The finding begins with the last complete step, in which it was made.
    """
    if not ahead:
        return empty(FINDINGS)
    start = floor_to_step(present, step) - step
    evidence: dict[str, float | int | str] = {}
    for source, (rows, latest) in sorted(ahead.items()):
        evidence[f"{source}_rows"] = rows
        evidence[f"{source}_ahead_h"] = "over 700" if latest is None else (latest - present) / timedelta(hours=1)
    ends = [present, *(latest for _, latest in ahead.values() if latest is not None)]
    row = ("clock_skew", "", "", start, max(ends), "warning", False, as_json(evidence), "")
    return pl.DataFrame([row], schema=dict(FINDINGS), orient="row")


def outage_steps(demand: pl.DataFrame, *, step: timedelta, counted: Collection[str] = ()) -> pl.DataFrame:
    """Steps in which a source's collection seems to have failed: all of its classes read exactly 0 at once, while at
    the same time of other days something was served. A failure rarely begins and ends on the grid, so a step beside
    it that reads lower than the one beyond it, or whose other side is not known yet, is masked too; one that does not
    is kept, since it may be the newest there is.

    The zeros of the sources in `counted` were read from counters that stood still, so that their collection worked. A
    single class of theirs at 0 is idle; several at once are out nevertheless, as where what is in front of them failed.

    Columns: workload_class, step_start, reason.
    """
    found = [
        rows.select("workload_class", "step_start").join(
            _silences(rows, step=step, classes=2 if source in counted else 1), on="step_start", how="semi"
        )
        for (source,), rows in demand.partition_by("source", as_dict=True, include_key=False).items()
    ]
    nothing = demand.select("workload_class", "step_start").clear()
    return pl.concat([nothing, *found]).sort("workload_class", "step_start").with_columns(reason=pl.lit("outage"))


def _silences(demand: pl.DataFrame, *, step: timedelta, classes: int) -> pl.DataFrame:
    """The step_start of a source's outage steps, in which at least so many classes were silent.

    Silence is usual at a time of day where it came in many runs. A run of silence does not speak for itself, and
    speaks once for each other however many days it lasts, so that an outage of a week is believed no more than one
    of an hour.
    """
    total = (
        demand.group_by("step_start")
        .agg(
            classes=pl.len(),
            tokens=(pl.col("tokens_in") + pl.col("tokens_out")).sum() / pl.col("observed_fraction").max(),
        )
        .sort("step_start")
        .with_columns(silent=pl.col("tokens") == 0, time_of_day=pl.col("step_start").dt.time())
        .with_columns(run=pl.col("silent").rle_id())
    )
    by_time = total.group_by("time_of_day").agg(days=pl.len(), silent_runs=pl.col("run").filter("silent").n_unique())
    own_days = pl.len().over("time_of_day", "run")
    elsewhere = pl.col("days") - pl.col("own_days")
    suspects = (
        total.with_columns(own_days=own_days, own_steps=pl.len().over("run"))
        .join(by_time, on="time_of_day")
        .filter("silent", pl.col("classes") >= classes)
        .filter(
            pl.when(elsewhere > 0)
            .then((pl.col("silent_runs") - 1) / elsewhere)
            # Of a time of day that only this run has seen, the rest of the record speaks.
            .otherwise((total["silent"].sum() - pl.col("own_steps")) / (total.height - pl.col("own_steps")))
            < IDLE_SHARE
        )
        .select("step_start")
        .sort("step_start")
    )
    edges = [_partial_edges(total, suspects, step=step), _partial_edges(total, suspects, step=-step)]
    return pl.concat([suspects, *edges]).unique().sort("step_start")


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
