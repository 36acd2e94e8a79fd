"""What a source no longer has of what is stored of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from floorcast.columns import FINDINGS, empty
from floorcast.source import PrometheusSource, Source, SqlSource, TraceSource

LOSS = timedelta(hours=1)
"""Stored demand of so much time is not taken for idle by a source that has no row of any class there: it lost them."""

KEY = ["workload_class", "step_start"]
BUSY = pl.sum_horizontal("tokens_in", "tokens_out", "requests") > 0


def history_lost(lost: Mapping[str, pl.DataFrame], *, step: timedelta) -> pl.DataFrame:
    """FINDINGS (one, or none) of what sources no longer give of what was read again, as `Reading.lost`."""
    if not lost:
        return empty(FINDINGS)
    evidence: dict[str, int | str] = {}
    for source, rows in sorted(lost.items()):
        evidence[f"{source}_steps_kept"] = rows.height
        evidence[f"{source}_classes"] = ", ".join(rows["workload_class"].unique().sort())
    steps = pl.concat(lost.values())["step_start"]
    return pl.DataFrame(
        {
            "kind": "history_lost",
            "workload_class": "",
            "metric": "",
            "start": steps.min(),
            "end": steps.dt.offset_by(f"{round(step.total_seconds())}s").max(),
            "severity": "warning",
            "masked": False,
            "evidence": json.dumps(evidence),
            "pool": "",
        },
        schema=dict(FINDINGS),
    )


def given_and_gone(stored: pl.DataFrame, demand: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The DEMAND of a live source that is to be stored, and what is stored of it for that time that it no longer gives.

    Where what came before was lost of a class, the first step that is given of it is what is left of one: it gives way
    to a stored one of which more was observed.
    """
    gone = without(stored, demand)
    lost = gone.group_by("workload_class").agg(lost=pl.col("step_start").min())
    remnants = (
        demand.group_by("workload_class")
        .agg(pl.col("step_start", "observed_fraction").sort_by("step_start").first())
        .join(lost, on="workload_class")
        .join(stored, on=KEY, suffix="_stored")
        .filter(pl.col("lost") < pl.col("step_start"), pl.col("observed_fraction") < pl.col("observed_fraction_stored"))
    )
    return without(demand, remnants), gone


def steps_given(source: Source, demand: pl.DataFrame) -> pl.Series:
    """The steps that the source has a row of. Of requests, one without any comes as zeros."""
    requests = not isinstance(source, PrometheusSource) and not of_sums(source)
    return (demand.filter(BUSY) if requests else demand)["step_start"].unique().sort()


def silenced_steps(source: Source, stored: pl.DataFrame, demand: pl.DataFrame) -> pl.DataFrame:
    """The stored rows with demand in steps that the source has no row of, of any class. `stretch` is the same for rows
    with no step between them that it has one of."""
    given = steps_given(source, demand)
    silenced = stored.filter(BUSY, ~pl.col("step_start").is_in(given.implode()))
    return silenced.with_columns(stretch=given.search_sorted(silenced["step_start"]))


def of_sums(source: TraceSource | SqlSource) -> bool:
    return isinstance(source, TraceSource) and (source.row_interval is not None or source.format == "servegen")


def lost_steps(silenced: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    """Those of the stretches that had demand in steps of LOSS together: fewer may be a correction."""
    return silenced.filter(pl.col("step_start").n_unique().over("stretch") * step >= LOSS)


def without(demand: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The rows whose class and step the other has not."""
    return demand.join(other, on=KEY, how="anti")
