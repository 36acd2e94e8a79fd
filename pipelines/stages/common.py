"""What the stages share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import Metric
from floorcast.config import Config
from floorcast.event import Window
from floorcast.source import PrometheusSource
from floorcast.types import Frozen
from forecasting.cleaning import to_series
from forecasting.quality import find
from forecasting.series import Series
from forecasting.siblings import inherit
from pipelines.project import Project
from store.connection import open_store
from store.demand import demand_extent, read_demand
from store.findings import read_findings, replace_findings
from store.settings import claim_step

HISTORY = timedelta(days=42)
"""How far back models and fallbacks look: six weeks."""

CONTRADICTED = "capacity_contradicted"
OF_SOURCES = ("clock_skew", "history_lost", CONTRADICTED)
"""Kinds of findings that reading a source gives."""


class StageResult(Frozen):
    """What a stage did. `summary` is its one line for a person; the fields are for machines."""

    @property
    def summary(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.model_dump(mode="json").items())


def planned_on(config: Config) -> dict[str, list[str]]:
    """By pool the classes that its floors are planned for, where there are any."""
    planned = {
        name: [one for one in config.classes if any(config.pool_of(one, metric) == name for metric in pool.metrics)]
        for name, pool in config.pools.items()
    }
    return {name: classes for name, classes in planned.items() if classes}


def run_id(kind: str, as_of: datetime) -> str:
    """The identity of a run: the same stage for the same step boundary is the same run."""
    return f"{kind}-{as_of:%Y%m%dT%H%M%SZ}"


def count(number: int, noun: str) -> str:
    """`1 pool`, `3 pools`, `12 series`."""
    return f"{number:,} {noun}{'' if number == 1 or noun == 'series' else 's'}"


def read_series(project: Project, *, as_of: datetime) -> tuple[dict[tuple[str, Metric], Series], pl.DataFrame]:
    """Cleaned series of all configured classes before `as_of`, and the demand they came from without masked steps.

    A series ends at its last observed step, so that its end is the cutoff of what can be forecast from it: after
    an outage or a collection failure a forecast is as old as its data, whatever the clock says.
    """
    config, demand = project.config, _stored_demand(project, as_of)
    series, masked = to_series(
        demand, step=config.step, classes=list(config.classes), end=as_of, counted=_counted(project)
    )
    return {key: one.until_last_observed() for key, one in series.items()}, demand.join(
        masked, on=["workload_class", "step_start"], how="anti"
    )


def judge_demand(project: Project, *, as_of: datetime, of_sources: pl.DataFrame | None) -> int:
    """Store what is suspicious about the stored demand before `as_of`, in place of what was; returns the findings.

    `of_sources`: FINDINGS about the sources' clocks and history, which no demand shows; None keeps those stored.
    """
    config, demand = project.config, _stored_demand(project, as_of)
    findings = find(demand, step=config.step, classes=list(config.classes), end=as_of, counted=_counted(project))
    with open_store(project.store_path) as store, store.transaction():
        if of_sources is None:
            of_sources = read_findings(store).filter(pl.col("kind").is_in(OF_SOURCES))
        replace_findings(store, pl.concat([findings, of_sources]))
    return findings.height + of_sources.height


def _counted(project: Project) -> list[str]:
    """Sources whose zeros are counters that stood still. A query of the user's own may make zeros of nothing."""
    sources = project.config.sources
    return [one.name for one in sources if isinstance(one, PrometheusSource) and one.queries is None]


def _stored_demand(project: Project, as_of: datetime) -> pl.DataFrame:
    """The demand of all configured classes that models and judgements look back on."""
    return read_stored(project, [Window(as_of - HISTORY, as_of)], classes=list(project.config.classes))


def read_stored(project: Project, windows: Sequence[Window], *, classes: Collection[str]) -> pl.DataFrame:
    """The stored demand of classes within windows that are in order and apart, with what renamed classes inherit."""
    specs = project.config.classes
    renamed = {name: old for name in classes if (old := specs[name].renamed_from) is not None}
    with open_store(project.store_path) as store:
        claim_step(store, project.config.step)
        names = [*classes, *renamed.values()]
        demand = pl.concat([read_demand(store, start=start, end=end, classes=names) for start, end in windows])
        first_steps = dict(demand_extent(store).select("workload_class", "first_step").iter_rows()) if renamed else {}
    return inherit(demand, renamed=renamed, first_steps=first_steps).sort("workload_class", "step_start")
