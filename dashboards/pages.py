"""What the templates of the pool, class, accuracy and quality pages are given: charts, and rows of tables. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import plotly.graph_objects as go
import polars as pl
from markupsafe import Markup

from dashboards.data import SiteData
from dashboards.evidence import in_words
from dashboards.figures.accuracy import backtest_figure, calibration_figure, wape_figure
from dashboards.figures.costs import cost_figure
from dashboards.figures.fan import forecast_fan
from dashboards.figures.floors import floors_over_required
from dashboards.text import FEW, notes
from dashboards.views import ClassView, PoolView, horizons, nominal_quantile
from floorcast.columns import Metric
from floorcast.units import format_duration

METRIC_NAMES = {Metric.TOKENS_IN: "Tokens in", Metric.TOKENS_OUT: "Tokens out"}
CLASSES_IN_FIGURE = 30
"""The accuracy figures draw the classes with the largest errors; their table has all."""


@dataclass(frozen=True)
class Chart:
    """A figure on a page. `label` says to a reader who cannot see it what it shows."""

    title: str
    caption: str
    label: str
    spec: Markup
    height: int


def chart(fig: go.Figure, *, title: str, caption: str = "", label: str) -> Chart:
    # Plotly writes `<`, `>` and `/` as \u escapes, which makes its JSON safe inside a script element.
    return Chart(title=title, caption=caption, label=label, spec=Markup(fig.to_json()), height=fig.layout.height)


def pool_chart(data: SiteData, pool: PoolView, floors: pl.DataFrame | None) -> Chart | None:
    """The pool's figure, if it has floors (FLOORS of this pool alone)."""
    if floors is None:
        return None
    bounds, quantile = pool.spec.bounds, pool.spec.margin.quantile
    return chart(
        floors_over_required(floors, bounds=bounds, quantile=quantile, now=data.now, step=data.config.step),
        title="Floor over required replicas",
        caption=(
            f"Replicas; times in UTC. Required: for the most demanding step within the lead time of "
            f"{format_duration(data.config.lead(pool.name))}, before margins and rounding. "
            f"Bounds {bounds.min} to {bounds.max}."
        ),
        label=f"Step lines of the floor of pool {pool.name} and of its required replicas over the coming hours",
    )


def cost_context(data: SiteData) -> dict[str, object]:
    """Rows of what the floors cost by pool, class and day, and their chart if any has a price."""
    rows = data.costs.with_columns(
        pl.when(pl.col("tokens") > 0).then(1e6 * pl.col("usd") / pl.col("tokens")).alias("usd_per_million")
    )
    priced = data.costs.filter(pl.col("usd").is_not_null())
    drawn = chart(
        cost_figure(priced),
        title="By class",
        caption="Over the horizon; each class on its pools.",
        label="Bars of the cost of each class over the horizon; the table below has the numbers",
    )
    return {"costs": rows.to_dicts(), "cost_chart": drawn if priced.height else None}


def class_context(data: SiteData, view: ClassView, own: Mapping[str, pl.DataFrame]) -> dict[str, object]:
    """`own` holds the rows of this class of demand, forecasts, scores, drift and accuracy, by these names."""
    sections = {}
    for metric, name in METRIC_NAMES.items():
        charts = []
        quantile = nominal_quantile(data, view.name, metric)
        scores = own["scores"].filter(pl.col("metric") == metric).sort("horizon", "pinball", nulls_last=True)
        at_lead = scores.filter(pl.col("horizon") == "lead")
        accuracy = _by_horizon(own["accuracy"].filter(pl.col("metric") == metric))
        if own["demand"].height or own["forecasts"].height:
            charts.append(
                chart(
                    forecast_fan(
                        own["demand"],
                        own["forecasts"],
                        metric=metric,
                        step=data.config.step,
                        quantile=quantile,
                    ),
                    title=f"{name}: observed and forecast",
                    caption="Tokens per second, mean of each step; times in UTC. "
                    "A gap is a step that was not observed. "
                    f"The dashed line is the floor's quantile: {quantile:.0%} of steps should lie at or under it.",
                    label=f"{name} per second of class {view.name}: observed, and forecast with its bands",
                )
            )
        if accuracy["wape"].is_not_null().any():
            charts.append(
                chart(
                    wape_figure(accuracy, by="horizon"),
                    title=f"{name}: error of past forecasts",
                    caption="By horizon, as published, against two simple forecasts. "
                    f"Faint: fewer than {FEW} forecasts judged.",
                    label=f"WAPE by horizon of {name.lower()} of class {view.name}; the table below has the numbers",
                )
            )
        if at_lead["pinball"].is_not_null().any():
            charts.append(
                chart(
                    backtest_figure(at_lead),
                    title=f"{name}: experts of the lead window",
                    caption="Loss at the floor's quantile over the lead window's greatest rate. "
                    "Blue: their mixture, which is published, and the experts that have weight in it.",
                    label=f"Pinball loss of candidate models for {name.lower()}; the table below has the numbers",
                )
            )
        sections[metric] = {
            "name": name,
            "charts": charts,
            "scores": scores.to_dicts(),
            "accuracy": _accuracy_rows(data, accuracy),
            "fits": view.fits.get(metric, {}),
            "notes": _note_rows(own["forecasts"].filter(pl.col("metric") == metric), data.config.step),
            "drift": _drift_rows(view, own["drift"].filter(pl.col("metric") == metric)),
        }
    return {"view": view, "sections": sections}


def _note_rows(forecasts: pl.DataFrame, step: timedelta) -> list[dict[str, object]]:
    """Spans of steps whose forecast events or the like changed: notes, start, end (excluded)."""
    said = {model: ", ".join(notes(model)) for model in forecasts["model"].unique()}
    spans = (
        forecasts.sort("step_start")
        .with_columns(pl.col("model").replace_strict(said, return_dtype=pl.String).alias("notes"))
        .group_by("notes", pl.col("notes").rle_id().alias("span"), maintain_order=True)
        .agg(pl.col("step_start").min().alias("start"), pl.col("step_start").max().alias("end") + step)
    )
    return spans.filter(pl.col("notes") != "").select("notes", "start", "end").to_dicts()


def _drift_rows(view: ClassView, drift: pl.DataFrame) -> list[dict[str, object]]:
    """The rows with `refitted`: whether a fit has seen since what showed the drift."""
    rows = []
    for row in drift.iter_rows(named=True):
        seen = [fit["cutoff"] >= row["cutoff"] for fit in view.fits.get(row["metric"], {}).values()]
        rows.append({**row, "kind": row["kind"].replace("_", " "), "refitted": any(seen)})
    return rows


def accuracy_context(data: SiteData, pages: Mapping[str, str]) -> dict[str, object]:
    """`pages` is the page of each class."""
    classes = data.accuracy["workload_class"].unique()
    groups = []
    for horizon in horizons(data.accuracy):
        for metric, name in METRIC_NAMES.items():
            rows = data.accuracy.filter((pl.col("horizon") == horizon) & (pl.col("metric") == metric))
            nominal = {each: nominal_quantile(data, each, metric) for each in classes}
            worst, total = _worst_first(rows), rows["workload_class"].n_unique()
            shown = "" if total <= CLASSES_IN_FIGURE else f" The {CLASSES_IN_FIGURE} largest errors of {total} classes."
            charts = [
                chart(
                    wape_figure(worst, by="workload_class"),
                    title=f"{name}: error, horizon {horizon}",
                    caption="Published forecasts against two simple ones. "
                    f"Faint: fewer than {FEW} forecasts judged.{shown}",
                    label=f"WAPE of {name.lower()} by class at horizon {horizon}; the table below has the numbers",
                ),
                chart(
                    calibration_figure(worst, by="workload_class", nominal=nominal),
                    title=f"{name}: calibration, horizon {horizon}",
                    caption="Share of steps at or under the floor's quantile, minus that quantile. "
                    "Left of zero, it was passed too often. "
                    f"Shaded: within 2 points.{shown}",
                    label=f"Calibration of {name.lower()} by class at horizon {horizon}; numbers in the table below",
                ),
            ]
            if rows.height:
                groups.append(charts)
    table = _accuracy_rows(data, _by_horizon(data.accuracy, "workload_class", "metric"))
    return {"groups": groups, "rows": table, "pages": pages}


def quality_context(data: SiteData, pages: Mapping[str, str]) -> dict[str, object]:
    """`pages` is the page of each class. Newest first."""
    rows = data.findings.sort("start", "kind", "workload_class", "metric", descending=[True, False, False, False])
    return {
        "rows": [
            {
                **row,
                "kind": row["kind"].replace("_", " "),
                "length": row["end"] - row["start"],
                "evidence": in_words(row["kind"], json.loads(row["evidence"])),
            }
            for row in rows.iter_rows(named=True)
        ],
        "pages": pages,
    }


def _by_horizon(accuracy: pl.DataFrame, *keys: str) -> pl.DataFrame:
    order = {horizon: rank for rank, horizon in enumerate(horizons(accuracy))}
    rank = pl.col("horizon").replace_strict(order, return_dtype=pl.Int64())
    return accuracy.sort(*keys, rank)


def _worst_first(rows: pl.DataFrame) -> pl.DataFrame:
    published = rows.filter(pl.col("model") == "published").select("workload_class", pl.col("wape").alias("error"))
    worst = published.sort("error", descending=True, nulls_last=True).head(CLASSES_IN_FIGURE)
    return worst.join(rows, on="workload_class", how="left", maintain_order="left")


def _accuracy_rows(data: SiteData, accuracy: pl.DataFrame) -> list[dict[str, object]]:
    """The rows of published forecasts, each with the WAPE of both baselines and the nominal quantile beside it."""
    keys = ["workload_class", "metric", "horizon"]
    rows = accuracy.filter(pl.col("model") == "published")
    for baseline in ("last_value", "seasonal_naive"):
        theirs = accuracy.filter(pl.col("model") == baseline).select(*keys, pl.col("wape").alias(baseline))
        rows = rows.join(theirs, on=keys, how="left", maintain_order="left")
    return [
        {**row, "nominal": nominal_quantile(data, row["workload_class"], row["metric"])}
        for row in rows.iter_rows(named=True)
    ]
