"""Quantiles from the stored fits and the newest data: the fast cadence."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from floorcast.columns import FORECASTS, Metric, empty
from floorcast.errors import ForecastError, LeakageError
from floorcast.units import format_duration
from forecasting.forecast import StoredFit, forecast_series
from forecasting.selection import NO_MODEL
from forecasting.series import Series
from pipelines.project import Project
from pipelines.stages.common import StageResult, count, read_series, run_id
from pipelines.stages.fit import target_of
from store.connection import open_store
from store.fits import read_fits
from store.forecasts import write_forecasts


class ForecastResult(StageResult):
    """`failed` names each series without a forecast and why; its pool's floors fall back."""

    series: int
    steps: int
    newest_cutoff: datetime | None
    failed: dict[str, str]

    @property
    def summary(self) -> str:
        why = next(iter(self.failed.values()), "")
        missing = f", {count(len(self.failed), 'series')} without: {why}" if self.failed else ""
        return f"{count(self.series, 'series')} forecast, {count(self.steps, 'step')}{missing}"


def forecast(project: Project, now: datetime) -> ForecastResult:
    """Forecast every series that has a model. One that fails is recorded and stops no other.

    Raises ForecastError where nothing was ever fitted.
    """
    as_of = project.as_of(now)
    series, _ = read_series(project, as_of=as_of)
    with open_store(project.store_path) as store:
        fits = read_fits(store, at=as_of)
    if fits.is_empty():
        raise ForecastError("no model was ever fitted", where=str(project.store_path), remedy="run `floorcast fit`")
    frames: list[pl.DataFrame] = []
    failed: dict[str, str] = {}
    for (name, metric), rows in fits.group_by(["workload_class", "metric"], maintain_order=True):
        key = (str(name), Metric(str(metric)))
        if key[0] not in project.config.classes:
            continue
        outcome = _forecast_one(project, series.get(key), {row["horizon"]: row for row in rows.to_dicts()}, as_of)
        if isinstance(outcome, str):
            failed[" ".join(key)] = outcome
        else:
            frames.append(outcome)
    made = pl.concat(frames) if frames else empty(FORECASTS)
    with open_store(project.store_path) as store:
        write_forecasts(store, run_id("forecast", as_of), made)
    newest: Any = made["cutoff"].max()
    return ForecastResult(series=len(frames), steps=made.height, newest_cutoff=newest, failed=failed)


def _forecast_one(
    project: Project, series: Series | None, fits: dict[str, dict[str, Any]], as_of: datetime
) -> pl.DataFrame | str:
    """The forecast, or why there is none. `fits` is by horizon."""
    lead, outlook = fits["lead"], fits.get("outlook")
    if lead["model"] == NO_MODEL:
        return str(lead["reason"])
    if series is None or not len(series.values):
        return "nothing was observed"
    if as_of - series.end > project.config.horizon:
        return f"the newest data are {format_duration(as_of - series.end)} old"
    try:
        return forecast_series(
            series,
            lead=_stored(lead),
            outlook=_stored(outlook) if outlook and outlook["model"] != NO_MODEL else None,
            cutoff=series.end,
            target=target_of(project, series, as_of),
        )
    except LeakageError:
        raise
    except ForecastError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever a model raises costs its own class the forecast, no other's
        return f"{type(error).__name__}: {error}"


def _stored(fit: dict[str, Any]) -> StoredFit:
    return StoredFit(fit["model"], fit["parameters"], fit["margins"])
