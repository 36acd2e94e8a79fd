"""What `--tried` found, as sections of `benchmarks/results/forecast.md`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from benchmarks.forecast.judge import Row
from benchmarks.forecast.table import figure, table

BEGIN, END = "<!-- made by --tried -->", "<!-- end of what --tried made -->"
_SECTION = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}\n\n", re.DOTALL)

COMMAND = "python -m benchmarks.forecast --tried --json benchmarks/results/forecast.json"

SHOWN = 3
"""Classes in which no forecast pays that are told."""

_KEYS = ("data", "window", "candidate")


def sections(found: Mapping[str, Sequence[Row]]) -> str:
    """Of the rows of `tried.try_series` by data set, between two marks."""
    frame = pl.concat(
        [
            pl.DataFrame(list(rows), infer_schema_length=None).with_columns(data=pl.lit(data))
            for data, rows in found.items()
            if rows
        ],
        how="diagonal_relaxed",
    )
    parts = [
        BEGIN,
        "## Tried and dropped",
        f"Made by `{COMMAND}`. Each candidate beside the product's own: its loss at 0.9 and 0.95 alone, with margins "
        "made like all others', over that of last value; the weight it earned (the least candidate earns some, so that "
        "weight alone shows nothing); and by how much the mixture's loss is higher with it than without, over all "
        "series and in the best and the worst of them. Seconds are of one fit. The lead window's are the greatest rate "
        "of the next 20 minutes over the last four days; the outlook's the point forecasts day ahead, fitted four days "
        "before the end. Events and holidays are no regressors: they are taken out of what models see, and put on "
        "their forecasts. Added is what lowers the loss in sum by half a percent on one data set and raises it on "
        "none.",
        _changes(frame.filter(pl.col("left_out").is_null(), pl.col("window") != "says")),
        "## What each one kept is worth",
        "The same of the product's own candidates where they had weight: by how much the mixture's loss is higher with "
        "the candidate than without.",
        _changes(frame.filter(pl.col("left_out").is_not_null())),
        "## Where no forecast pays",
        f"The {SHOWN} classes in which the lead window's mixture gains least on last value with the same margins, and "
        "what the fit says of them, which `floorcast status` and the pages of the classes show.",
        _says(frame),
        END,
    ]
    return "\n\n".join(parts) + "\n\n"


def put_into(page: str, made: str) -> str:
    """The page with these sections in place of those it had, before its part on the demo history or at its end."""
    rest = _SECTION.sub("", page)
    before, demo, after = rest.partition("# The demo history\n")
    return f"{before.rstrip()}\n\n{made}{demo}{after}".rstrip() + "\n"


def kept_in(page: str) -> str:
    """The sections that a page has, empty where it has none."""
    found = _SECTION.search(page)
    return found.group() if found else ""


def _changes(frame: pl.DataFrame) -> str:
    change = pl.col("with") / pl.col("without") - 1
    rows = (
        frame.drop_nulls("with")
        .group_by(*_KEYS, maintain_order=True)
        .agg(
            pl.len().alias("series"),
            own=pl.col("own").sum() / pl.col("last_value").sum(),
            mean=pl.col("weight").mean(),
            most=pl.col("weight").max(),
            change=pl.col("with").sum() / pl.col("without").sum() - 1,
            least=change.min(),
            greatest=change.max(),
            seconds=pl.col("seconds").mean(),
        )
        .sort("window", "candidate", "data", maintain_order=True)
    )
    header = ("window", "candidate", "data", "series", "own loss", "mean weight", "greatest weight", "change", "best")
    return table(
        (*header, "worst", "seconds"),
        (
            (
                row["window"],
                row["candidate"],
                row["data"],
                str(row["series"]),
                *(figure(row[name]) for name in ("own", "mean", "most")),
                *(f"{row[name]:+.1%}" for name in ("change", "least", "greatest")),
                figure(row["seconds"]),
            )
            for row in rows.to_dicts()
        ),
    )


def _says(frame: pl.DataFrame) -> str:
    series = ["workload_class", "metric"]
    of_lead = frame.filter(pl.col("window") == "lead", pl.col("left_out").is_not_null())
    ratio = of_lead.group_by(series).agg(ratio=(pl.col("with") / pl.col("last_value")).first())
    said = (
        frame.filter(pl.col("window") == "says")
        .join(ratio, on=series)
        .sort("ratio", *series, descending=[True, False, False])
    )
    worst = said.unique("workload_class", keep="first", maintain_order=True).head(SHOWN)
    rows = ((row["workload_class"], row["metric"], figure(row["ratio"]), row["why"]) for row in worst.to_dicts())
    return table(("class", "metric", "loss over last value's", "what is said"), rows)
