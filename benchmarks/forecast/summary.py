"""From the rows of all series to the headline figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from benchmarks.forecast.judge import LEADS, OURS, OUTLOOK, OWN_MARGIN, Row
from forecasting.conformal import MARGINS

FLOOR_LEVELS = (0.9, 0.95)
"""The levels that a floor is taken at, which the headline counts."""

DAILY_SHARE = 0.3
"""A class has a daily cycle where the mean at each time of day explains more than this share of its variance."""

SERIES = ("workload_class", "metric")
WEIGHT = "weight of "


def frame_of(rows: Sequence[Row]) -> pl.DataFrame:
    """Rows of all series with `loss`: pinball at 0.9 plus that at 0.95 over the series' mean rate, so that all weigh
    alike, and `loss_tokens_per_s`, the same undivided."""
    tokens = pl.sum_horizontal(f"pinball_{level}" for level in FLOOR_LEVELS)
    return pl.DataFrame(list(rows), infer_schema_length=None).with_columns(
        loss=tokens / pl.col("mean_rate"), loss_tokens_per_s=tokens
    )


def headline_margin(frame: pl.DataFrame) -> str:
    """The form of margin that makes the best single alternative best, over the lead windows in sum."""
    return str(_ranked(frame, "loss")["margin"][0])


def summarise(frame: pl.DataFrame) -> tuple[dict[str, float], dict[str, Any]]:
    """The headline figures, and what stands behind them."""
    lead = frame.filter(pl.col("horizon").is_in(list(LEADS)))
    margin = headline_margin(frame)
    best = _ranked(frame, "loss").row(0, named=True)
    ours = _ours(lead, "loss")
    tokens = _ranked(frame, "loss_tokens_per_s").row(0, named=True)
    by_margin = {
        form: _ranked(frame.filter(pl.col("margin").is_in([form, OWN_MARGIN])), "loss").row(0, named=True)
        for form in MARGINS
    }
    classes = ratios(lead, margin, str(best["method"]))
    calibration = calibration_errors(frame, LEADS)
    cyclic = calibration.filter(pl.col("daily_share") > DAILY_SHARE)
    outlook = frame.filter(pl.col("horizon") == OUTLOOK)
    ahead = _ranked(frame, "loss", (OUTLOOK,)).row(0, named=True)
    day_ahead = calibration_errors(frame, (OUTLOOK,))
    day_ahead_cyclic = day_ahead.filter(pl.col("daily_share") > DAILY_SHARE)
    summary = {
        "pinball_ratio": ours / float(best["loss"]),
        "worst_class_ratio": float(classes["against_last_value"].max()),  # type: ignore[arg-type]
        "calibration_error_max": float(cyclic["error"].max() or 0.0),  # type: ignore[arg-type]
        "day_ahead_ratio": _ours(outlook, "loss") / float(ahead["loss"]),
        "day_ahead_calibration_error_max": float(day_ahead_cyclic["error"].max() or 0.0),  # type: ignore[arg-type]
    }
    detail = {
        "best_alternative": best["method"],
        "margin_of_the_headline": margin,
        "pinball_ratio_by_margin": {form: ours / row["loss"] for form, row in by_margin.items()},
        "best_alternative_by_margin": {form: row["method"] for form, row in by_margin.items()},
        "pinball_ratio_tokens_per_s": _ours(lead, "loss_tokens_per_s") / float(tokens["loss_tokens_per_s"]),
        "best_alternative_tokens_per_s": f"{tokens['method']} {tokens['margin']}",
        "calibration_error_max_of_all_classes": calibration["error"].max(),
        "classes_with_a_daily_cycle": cyclic.select(SERIES).unique().height,
        "worst_calibrated": cyclic.sort("error", descending=True).head(5).to_dicts(),
        "best_alternative_day_ahead": f"{ahead['method']} {ahead['margin']}",
        "day_ahead_calibration_error_of_the_mean": {
            str(level): abs(float(shares.mean()) - level)  # type: ignore[arg-type]
            for (level,), shares in ((key, rows["share"]) for key, rows in day_ahead_cyclic.group_by("level"))
        },
        "worst_calibrated_day_ahead": day_ahead_cyclic.sort("error", descending=True).head(5).to_dicts(),
        "classes": classes.to_dicts(),
    }
    return summary, detail


def by_method(frame: pl.DataFrame, margin: str) -> pl.DataFrame:
    """Each horizon's figures by method, with that margin for the alternatives: means over series, the pinball ones over
    their mean rates, and `against_best`, the floor levels' loss over the best alternative's."""
    scaled = [(pl.col(f"pinball_{level}") / pl.col("mean_rate")).mean() for level in (0.5, *FLOOR_LEVELS)]
    shares = [pl.col(f"share_{level}").mean() for level in (0.5, *FLOOR_LEVELS)]
    kept = frame.filter(pl.col("margin").is_in([margin, OWN_MARGIN]))
    figures = kept.group_by("horizon", "method", maintain_order=True).agg(
        pl.col("loss").sum(), *scaled, *shares, pl.col("wape", "point_wape", "mase", "bias", "seconds").mean()
    )
    others = pl.col("loss").filter(pl.col("method") != OURS).min().over("horizon")
    return figures.with_columns(against_best=pl.col("loss") / others).drop("loss")


def ratios(frame: pl.DataFrame, margin: str, best: str) -> pl.DataFrame:
    """floorcast's loss of every series over that of last value and of the best alternative, the worst first."""
    kept = frame.filter(pl.col("margin").is_in([margin, OWN_MARGIN]))
    losses = kept.group_by(*SERIES, "method").agg(pl.col("loss").sum())

    def of(method: str) -> pl.DataFrame:
        return losses.filter(pl.col("method") == method).select(*SERIES, pl.col("loss").alias("other"))

    ours = of(OURS).rename({"other": "loss"})
    # Two losses of 0 are as good as each other.
    ratio = pl.when(pl.col("loss") == pl.col("other")).then(1.0).otherwise(pl.col("loss") / pl.col("other"))
    for name, method in (("against_last_value", "last_value"), ("against_best", best)):
        ours = ours.join(of(method), on=SERIES).with_columns(ratio.alias(name)).drop("other")
    return ours.sort("against_last_value", *SERIES, descending=[True, False, False])


def candidates(frame: pl.DataFrame) -> pl.DataFrame:
    """The weight that each of floorcast's candidates had, by horizon: its mean over the series that could use it, the
    greatest of a series, and in how many it had the most."""
    ours = frame.filter(pl.col("method") == OURS, pl.col("horizon") == OUTLOOK)
    long = ours.select(*SERIES, pl.col(f"^{WEIGHT}.*$")).unpivot(index=SERIES, value_name="weight").drop_nulls("weight")
    parts = pl.col("variable").str.strip_prefix(WEIGHT).str.split_exact(" ", 1).struct
    long = long.with_columns(parts.field("field_0").alias("part"), parts.field("field_1").alias("candidate"))
    most = pl.col("weight") == pl.col("weight").max().over(*SERIES, "part")
    return (
        long.with_columns(most=most)
        .group_by("part", "candidate")
        .agg(mean=pl.col("weight").mean(), greatest=pl.col("weight").max(), led=pl.col("most").sum())
        .sort("part", "mean", "candidate", descending=[False, True, False])
    )


def calibration_errors(frame: pl.DataFrame, horizons: Iterable[str]) -> pl.DataFrame:
    """|share of targets at or under the quantile - its level| of floorcast, over all origins after the first six days,
    by series, horizon and level."""
    ours = frame.filter(pl.col("method") == OURS, pl.col("horizon").is_in(list(horizons)))
    of_levels = [
        ours.select(
            *SERIES,
            "horizon",
            "daily_share",
            targets="targets_of_all",
            level=pl.lit(level),
            share=f"share_of_all_{level}",
            error=(pl.col(f"share_of_all_{level}") - level).abs(),
        )
        for level in FLOOR_LEVELS
    ]
    return pl.concat(of_levels).sort(*SERIES, "horizon", "level")


def _ranked(frame: pl.DataFrame, loss: str, horizons: Iterable[str] = LEADS) -> pl.DataFrame:
    """Alternatives by form of margin, the best over those horizons and all series first."""
    others = frame.filter(pl.col("horizon").is_in(list(horizons)), pl.col("method") != OURS)
    return others.group_by("method", "margin").agg(pl.col(loss).sum()).sort(loss, "method", "margin")


def _ours(frame: pl.DataFrame, loss: str) -> float:
    return float(frame.filter(pl.col("method") == OURS)[loss].sum())
