"""What the tables of the pages show, from the frames of a `SiteData`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from dashboards.data import SiteData
from dashboards.text import horizon_order, notes, page_name, top_expert
from floorcast.columns import Metric
from floorcast.pool import Margin, Pool
from floorcast.types import Reason


@dataclass(frozen=True)
class Change:
    """A published window: a span of equal floors on one rung, with the reason of its most demanding step."""

    start: datetime
    end: datetime
    min_replicas: int
    required_replicas: float
    rung: str
    reason: Reason
    shortfall_replicas: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What changed the forecasts of the binding metric, as `chat: x1.5 launch-day`; without classes if all are."""
        classes = self.reason.classes
        sides = {"tokens_in": ("in",), "tokens_out": ("out",), "sum": ("in", "out")}.get(self.reason.binding, ())
        of: dict[str, dict[str, None]] = {}
        for name, demand in classes.items():
            for note in (note for side in sides for note in notes(getattr(demand, f"model_{side}"))):
                of.setdefault(note, {})[name] = None
        return tuple(
            note if len(names) == len(classes) else f"{', '.join(names)}: {note}" for note, names in of.items()
        )


@dataclass(frozen=True)
class PoolView:
    """One pool. Values of the current floor are None where no window holds `now`."""

    name: str
    page: str
    spec: Pool
    classes: tuple[str, ...]
    gate: str | None
    changes: tuple[Change, ...]
    now: Change | None
    peak: Change | None

    @property
    def shortfall_replicas(self) -> int:
        """The most that is wanted above the pool's maximum in the steps to come."""
        return max((change.shortfall_replicas for change in self.changes), default=0)

    @property
    def gpus(self) -> int | None:
        """GPUs at the current floor."""
        return None if self.now is None else self.now.min_replicas * self.spec.gpu.per_replica

    @property
    def usd_per_hour(self) -> float | None:
        """At the current floor; None also where no price is configured."""
        price = self.spec.gpu.usd_per_gpu_hour
        return None if self.gpus is None or price == 0 else self.gpus * price


@dataclass(frozen=True)
class ClassView:
    """One workload class; `pools` is empty and `kind` None where the configuration does not know it.

    `observed_share` is of the steps from its first to its last in the demand shown; `fits` is by metric and horizon, a
    row of FITS each; `wape` by metric and model, at the nearest horizon, and `judged` by metric how many forecasts it
    rests on; `experts` the model of most weight in the next step's forecast by metric, with its weight where it is one
    of several.
    """

    name: str
    page: str
    kind: str | None
    pools: tuple[str, ...]
    last_observed: datetime | None
    observed_share: float | None
    fits: dict[str, dict[str, dict[str, str]]]
    wape: dict[str, dict[str, float]]
    judged: dict[str, int]
    experts: dict[str, tuple[str, float | None]]


def pool_views(data: SiteData) -> list[PoolView]:
    """All pools of the configuration, in name order."""
    floors, none = data.floors.partition_by("pool", as_dict=True), data.floors.clear()
    gates = _gates(data)
    return [_pool_view(data, name, floors.get((name,), none), gates.get(name)) for name in sorted(data.config.pools)]


def _pool_view(data: SiteData, name: str, floors: pl.DataFrame, gate: str | None) -> PoolView:
    changes = tuple(change for change in _changes(floors) if change.end > data.now)
    return PoolView(
        name=name,
        page=page_name("pool", name),
        spec=data.config.pools[name],
        classes=data.config.classes_of(name),
        gate=gate,
        changes=changes,
        now=changes[0] if changes and changes[0].start <= data.now else None,
        peak=max(changes, key=lambda change: change.min_replicas, default=None),
    )


def _gates(data: SiteData) -> dict[str, str]:
    if data.publication is None:
        return {}
    pools = json.loads(data.publication.schedule)["pools"]
    return {name: pool["gate"] for name, pool in pools.items()}


def _changes(floors: pl.DataFrame) -> tuple[Change, ...]:
    """The windows as they are published: steps joined, and their reason chosen, as for the schedule."""
    span = pl.struct("min_replicas", "rung").rle_id()
    hardest = pl.col("required_replicas").sort_by("required_replicas", descending=True, maintain_order=True)
    reason = pl.col("reason").sort_by("required_replicas", descending=True, maintain_order=True)
    short = pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64)
    spans = (
        floors.sort("window_start")
        .with_columns(span.alias("span"))
        .group_by("span", maintain_order=True)
        .agg(
            pl.col("window_start", "min_replicas", "rung").first(),
            pl.col("window_end").last(),
            hardest.first(),
            reason.first(),
            short.max().alias("shortfall_replicas"),
        )
    )
    return tuple(
        Change(
            start=row["window_start"],
            end=row["window_end"],
            min_replicas=row["min_replicas"],
            required_replicas=row["required_replicas"],
            rung=row["rung"],
            reason=Reason.model_validate_json(row["reason"]),
            shortfall_replicas=row["shortfall_replicas"] or 0,
        )
        for row in spans.iter_rows(named=True)
    )


def class_views(data: SiteData) -> list[ClassView]:
    """All classes of the configuration and those that only the data know, in name order."""
    frames = (data.demand, data.forecasts, data.scores, data.accuracy)
    seen = {name for frame in frames for name in frame["workload_class"].unique()}
    step = pl.col("step_start")
    steps = (step.max() - step.min()).dt.total_seconds() / data.config.step_s + 1
    observed = {
        name: (last, share)
        for name, last, share in data.demand.group_by("workload_class")
        .agg(step.max().alias("last"), (pl.col("observed_fraction").sum() / steps).alias("share"))
        .iter_rows()
    }
    fits = data.fits.partition_by("workload_class", as_dict=True)
    forecasts = data.forecasts.partition_by("workload_class", as_dict=True)
    accuracy = data.accuracy.partition_by("workload_class", as_dict=True)
    return [
        _class_view(
            data,
            name,
            observed.get(name, (None, None)),
            fits.get((name,), data.fits.clear()),
            accuracy.get((name,), data.accuracy.clear()),
            forecasts.get((name,), data.forecasts.clear()),
        )
        for name in sorted(seen | set(data.config.classes))
    ]


def _class_view(
    data: SiteData,
    name: str,
    observed: tuple[datetime | None, float | None],
    fits: pl.DataFrame,
    accuracy: pl.DataFrame,
    forecasts: pl.DataFrame,
) -> ClassView:
    spec = data.config.classes.get(name)
    nearest = horizons(accuracy)[:1]
    rows = accuracy.filter(pl.col("horizon").is_in(nearest) & pl.col("wape").is_not_null())
    return ClassView(
        name=name,
        page=page_name("class", name),
        kind=None if spec is None else spec.kind,
        pools=() if spec is None else spec.pools,
        last_observed=observed[0],
        observed_share=observed[1],
        fits={
            metric: {row["horizon"]: row for row in rows.iter_rows(named=True)}
            for (metric,), rows in fits.sort("horizon").partition_by("metric", as_dict=True).items()
        },
        wape={
            metric: {row["model"]: row["wape"] for row in rows.filter(pl.col("metric") == metric).iter_rows(named=True)}
            for metric in Metric
        },
        judged=dict(rows.filter(pl.col("model") == "published").select("metric", "steps").iter_rows()),
        experts={
            metric: top_expert(model)
            for metric, model in forecasts.sort("step_start")
            .group_by("metric", maintain_order=True)
            .agg(pl.col("model").first())
            .iter_rows()
        },
    )


def nominal_quantile(data: SiteData, workload_class: str, metric: str) -> float:
    """The floor's quantile of the pool that is planned for a metric of the class; the default where none is."""
    if workload_class not in data.config.classes:
        return Margin().quantile
    return data.config.pools[data.config.pool_of(workload_class, metric)].margin.quantile


def horizons(accuracy: pl.DataFrame) -> Sequence[str]:
    """The horizons of an ACCURACY frame, nearest first."""
    return sorted(accuracy["horizon"].unique(), key=horizon_order)
