"""Models chosen and fitted for every series: the slow cadence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import Metric
from floorcast.errors import ForecastError
from floorcast.types import Frozen
from forecasting.drift import said
from forecasting.forecast import fitted_for
from forecasting.outlook import NO_MODEL
from forecasting.rows import Row, fits_frame, scores_frame
from forecasting.series import Series
from forecasting.verdict import Target
from pipelines.progress import track
from pipelines.project import Project
from pipelines.stages.common import StageResult, count, read_series, run_id
from pipelines.stages.fanout import Fitted, fit_all
from pipelines.stages.known import apply_known
from store.connection import open_store
from store.drift import read_drift
from store.fits import read_fits, write_fits

LATEST = timedelta(hours=6)
"""Data as late as this leave the due window to the lead window's experts; later, its end falls to the outlook."""


class Chosen(Frozen):
    workload_class: str
    metric: str
    horizon: str
    model: str
    reason: str


class FitResult(StageResult):
    """`kept` counts the series whose fit was young enough to stay. `drifted` says of each that would have been kept,
    what had changed since its fit."""

    chosen: tuple[Chosen, ...]
    kept: int
    drifted: dict[str, str]

    @property
    def summary(self) -> str:
        lead = Counter(one.model for one in self.chosen if one.horizon == "lead")
        named = ": " + ", ".join(f"{model} {times}" for model, times in lead.most_common()) if lead else ""
        drift = ", ".join(f"{series} {what}" for series, what in self.drifted.items())
        return "; ".join(
            [
                f"{count(lead.total(), 'series')} fitted{named}",
                *([f"{self.kept} kept"] if self.kept else []),
                *([f"{count(len(self.drifted), 'series')} refitted for drift: {drift}"] if drift else []),
            ]
        )


def fit(project: Project, now: datetime, *, only_stale: bool = False) -> FitResult:
    """Choose and fit a model for every class and metric.

    With `only_stale`, series keep a fit that is younger than `refit_every` or has seen all their data, unless they
    got no model then, the step, the lead window or the quantile has changed, or a later forecast showed drift. Raises
    ForecastError where no class has any demand.
    """
    as_of = project.as_of(now)
    observed, _ = read_series(project, as_of=as_of)
    if not observed:
        raise ForecastError(
            "no demand is stored for any configured class",
            where=str(project.store_path),
            remedy="run `floorcast ingest`, and check that the classes of the sources are those configured",
        )
    known = apply_known(project, observed, as_of=as_of)
    series = known.series
    wanted, drifted = _stale(project, series, as_of) if only_stale else (series, {})
    fits: list[Row] = []
    scores: list[Row] = []
    for fit_rows, score_rows in track(_fit_all(project, wanted, as_of), total=len(wanted), label="fitting"):
        fits += [known.say_in(row) for row in fit_rows]
        scores += score_rows
    fits_written, scores_written = fits_frame(fits), scores_frame(scores)
    if fits:
        with open_store(project.store_path) as store:
            write_fits(store, run_id("fit", as_of), fits_written, scores_written)
    chosen = tuple(
        Chosen(**row)
        for row in fits_written.select("workload_class", "metric", "horizon", "model", "reason").to_dicts()
    )
    return FitResult(chosen=chosen, kept=len(series) - len(wanted), drifted=drifted)


def _stale(
    project: Project, series: dict[tuple[str, Metric], Series], as_of: datetime
) -> tuple[dict[tuple[str, Metric], Series], dict[str, str]]:
    """The series to fit anew, and what has changed under the fits of those that are so for drift alone."""
    with open_store(project.store_path) as store:
        known, drift = read_fits(store, at=as_of), read_drift(store, at=as_of)
    due = as_of - project.config.refit_every
    fitted = {
        (row["workload_class"], Metric(row["metric"])): (row["cutoff"], fitted_for(row["parameters"]))
        for row in known.to_dicts()
        if row["model"] != NO_MODEL
    }

    def stale(key: tuple[str, Metric], one: Series) -> bool:
        if key not in fitted:
            return True
        cutoff, settings = fitted[key]
        if settings != target_of(project, one, as_of).settings(one.step):
            return True
        return bool(cutoff <= due and cutoff < one.end)

    cutoffs = known.select("workload_class", "metric", fitted="cutoff").unique()
    # What a fit with the same cutoff has seen is no drift from it.
    later = drift.join(cutoffs, on=["workload_class", "metric"]).filter(pl.col("cutoff") > pl.col("fitted"))
    told = said(later)
    wanted = {key: one for key, one in series.items() if stale(key, one) or " ".join(key) in told}
    drifted = {" ".join(key): told[" ".join(key)] for key, one in wanted.items() if not stale(key, one)}
    return wanted, drifted


def target_of(project: Project, one: Series, as_of: datetime) -> Target:
    """What a series' forecasts are for."""
    config = project.config
    pool = config.pool_of(one.workload_class, one.metric)
    return Target(
        quantile=config.pools[pool].margin.quantile,
        lead_steps=config.class_lead_steps(one.workload_class),
        horizon_steps=_horizon_steps(project, one.end, as_of),
        late_steps=min((as_of - one.end) // config.step, LATEST // config.step),
    )


def _horizon_steps(project: Project, cutoff: datetime, as_of: datetime) -> int:
    """Steps from a cutoff to where the last window's lead time ends, and what may wait that arrives in it is due."""
    config = project.config
    longest: timedelta = max(config.lead(pool) for pool in config.pools) + config.longest_wait_steps * config.step
    return -(-(as_of + config.horizon + longest - cutoff) // config.step)


def _fit_all(project: Project, series: dict[tuple[str, Metric], Series], as_of: datetime) -> Iterator[Fitted]:
    jobs = [(one, target_of(project, one, as_of)) for one in series.values()]
    return fit_all(jobs, scheduler=project.config.compute.scheduler)
