"""Quantiles from the stored fits and the newest data: the fast cadence."""

from __future__ import annotations

from datetime import datetime
from itertools import product
from typing import Any

import polars as pl

from floorcast.columns import FORECASTS, POOL_SHARES, Metric, empty
from floorcast.errors import ForecastError
from floorcast.units import format_duration
from forecasting.cleaning import aligned
from forecasting.drift import find_all, said
from forecasting.forecast import Forecast, Request, StoredFit
from forecasting.outlook import NO_MODEL
from forecasting.pools import kept_share, peak_factor
from forecasting.series import Series
from pipelines.project import Project
from pipelines.stages.common import StageResult, count, read_series, run_id
from pipelines.stages.fanout import forecast_on_cores
from pipelines.stages.fit import target_of
from pipelines.stages.known import apply_known
from store.connection import open_store
from store.drift import write_drift
from store.fits import read_fits
from store.forecasts import write_forecasts
from store.pool_shares import read_pool_shares, write_pool_shares


class ForecastResult(StageResult):
    """`failed` names each series without a forecast and why; its pool's floors fall back. `drifted` says which series
    have left what their fits knew, and how; `unjudged` of which that could not be told, and why. `without_experts` says
    of which series experts failed and left their weight to others, and why."""

    series: int
    steps: int
    newest_cutoff: datetime | None
    failed: dict[str, str]
    drifted: dict[str, str]
    unjudged: dict[str, str]
    without_experts: dict[str, str]

    @property
    def summary(self) -> str:
        why = next(iter(self.failed.values()), "")
        missing = f", {count(len(self.failed), 'series')} without: {why}" if self.failed else ""
        return (
            f"{count(self.series, 'series')} forecast, {count(self.steps, 'step')}{missing}"
            + (f", {len(self.drifted)} drifted" if self.drifted else "")
            + (f", {len(self.without_experts)} lacking an expert" if self.without_experts else "")
        )


def forecast(project: Project, now: datetime) -> ForecastResult:
    """Forecast every series that has a model. One that fails is recorded and stops no other.

    Raises ForecastError where nothing was ever fitted.
    """
    as_of = project.as_of(now)
    observed, demand = read_series(project, as_of=as_of)
    known = apply_known(project, observed, as_of=as_of)
    with open_store(project.store_path) as store:
        fits = read_fits(store, at=as_of)
        shares_before = read_pool_shares(store, at=as_of)
    if fits.is_empty():
        raise ForecastError("no model was ever fitted", where=str(project.store_path), remedy="run `floorcast fit`")
    requests: dict[tuple[str, Metric], Request] = {}
    fitted: dict[tuple[str, Metric], datetime] = {}
    failed: dict[str, str] = {}
    for (name, metric), rows in fits.group_by(["workload_class", "metric"], maintain_order=True):
        key = (str(name), Metric(str(metric)))
        if key[0] not in project.config.classes:
            continue
        wanted = _request(project, known.series.get(key), {row["horizon"]: row for row in rows.to_dicts()}, as_of)
        if isinstance(wanted, str):
            failed[" ".join(key)] = wanted
        else:
            requests[key], fitted[key] = wanted, rows["cutoff"][0]
    for name, metric in product(project.config.classes, Metric):
        if (name, metric) not in requests:
            failed.setdefault(f"{name} {metric}", "it was never fitted")
    done: dict[tuple[str, Metric], Forecast] = {}
    for key, outcome in zip(requests, forecast_on_cores(list(requests.values())), strict=True):
        if isinstance(outcome, str):
            failed[" ".join(key)] = outcome
        else:
            done[key] = outcome
            if outcome.lacks_outlook:
                failed[f"{' '.join(key)} after the lead window"] = outcome.lacks_outlook
    shares = _pool_shares(project, requests, done, demand, shares_before)
    peaks = _least_peaks(project, shares)
    frames = [known.put_onto(one.frame, key, peak=peaks[key]) for key, one in done.items()]
    made = pl.concat(frames) if frames else empty(FORECASTS)
    with open_store(project.store_path) as store, store.transaction():
        write_forecasts(store, run_id("forecast", as_of), made)
        write_pool_shares(store, run_id("forecast", as_of), shares)
    drift, unjudged = find_all([(requests[key], one, fitted[key]) for key, one in done.items()], as_of=as_of)
    # Apart from the forecasts, which no failure of this may cost.
    with open_store(project.store_path) as store:
        write_drift(store, run_id("forecast", as_of), as_of, drift)
    newest: Any = made["cutoff"].max()
    return ForecastResult(
        series=len(done),
        steps=made.height,
        newest_cutoff=newest,
        failed=failed,
        drifted=said(drift),
        unjudged=unjudged,
        without_experts={" ".join(key): "; ".join(one.failed) for key, one in done.items() if one.failed},
    )


def _pool_shares(
    project: Project,
    requests: dict[tuple[str, Metric], Request],
    done: dict[tuple[str, Metric], Forecast],
    demand: pl.DataFrame,
    known: pl.DataFrame,
) -> pl.DataFrame:
    """What each pool needs of its classes together. Where a class has no forecast its pool has no row, and adds up.
    `known` are the POOL_SHARES before."""
    config = project.config
    by_class = {name: rows for (name,), rows in demand.partition_by("workload_class", as_dict=True).items()}
    before = {(row["pool"], row["metric"]): row["peak"] for row in known.to_dicts()}
    rows = []
    for pool, metric in product(config.pools, Metric):
        spec, keys = config.pools[pool], [(name, metric) for name in config.classes_of(pool)]
        if metric in spec.metrics and keys and all(key in done for key in keys):
            members = [(requests[key].series, done[key]) for key in keys]
            cutoff = max(requests[key].cutoff for key in keys)
            share, peak = kept_share(members, quantile=spec.margin.quantile), 1.0
            # Work that may wait has no busiest minute.
            hurried = [member for member, (name, _) in zip(members, keys, strict=True) if not config.wait_steps(name)]
            if spec.margin.peak and hurried:
                column = f"peak_{metric.value}_per_s"
                peaks = [
                    aligned(by_class.get(series.workload_class, demand.clear()), series, column)
                    for series, _ in hurried
                ]
                found = peak_factor(hurried, peaks, quantile=spec.margin.quantile, share=share)
                # What is not known now does not lower a floor: the busiest minute stays as it was.
                peak = before.get((pool, metric.value), 1.0) if found is None else found
            rows.append({"pool": pool, "metric": metric.value, "cutoff": cutoff, "share": share, "peak": peak})
    return pl.DataFrame(rows, schema=dict(POOL_SHARES))


def _least_peaks(project: Project, shares: pl.DataFrame) -> dict[tuple[str, Metric], float]:
    """By class and metric the factor for the busiest minute that a plan applies to it: the least among the pools that
    can serve it. Work that may wait has none, nor has a pool without a row of POOL_SHARES."""
    config = project.config
    known = {(row["pool"], row["metric"]): row["peak"] for row in shares.to_dicts()}
    return {
        (name, metric): 1.0
        if config.wait_steps(name)
        else min(
            (known.get((pool, metric), 1.0) for pool in spec.pools if metric in config.pools[pool].metrics), default=1.0
        )
        for (name, spec), metric in product(config.classes.items(), Metric)
    }


def _request(
    project: Project, series: Series | None, fits: dict[str, dict[str, Any]], as_of: datetime
) -> Request | str:
    """What to forecast, or why it cannot be. `fits` is by horizon."""
    lead, outlook = fits["lead"], fits.get("outlook")
    if lead["model"] == NO_MODEL:
        return str(lead["reason"])
    if series is None or not len(series.values):
        return "nothing was observed"
    if as_of - series.end > project.config.horizon:
        return f"the newest data are {format_duration(as_of - series.end)} old"
    return Request(
        series=series,
        cutoff=series.end,
        target=target_of(project, series, as_of),
        lead=_stored(lead),
        outlook=_stored(outlook) if outlook and outlook["model"] != NO_MODEL else None,
    )


def _stored(fit: dict[str, Any]) -> StoredFit:
    return StoredFit(fit["model"], fit["parameters"], fit["margins"])
