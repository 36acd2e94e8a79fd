"""`floorcast status`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from floorcast.config import Config
from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say_json
from pipelines.cli.status_floors import pools_now
from pipelines.cli.status_words import SHOWN, say_status
from pipelines.cli.tune import said_tunings
from pipelines.project import Project

if TYPE_CHECKING:
    from store.publications import PublicationRecord

_Rows = list[dict[str, Any]]


def register(app: typer.Typer) -> None:
    @app.command("status")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """What is stored and published, how old it is, and how the last runs ended.

        \b
        Example:
          floorcast status --json
        """
        project, moment = project_of(config, data), now_or(now)
        found = gather(project, moment)
        if as_json:
            say_json(found)
        else:
            say_status(found, project, moment)


def gather(project: Project, now: datetime) -> dict[str, Any]:
    """Publication and its floors due now by pool, what each publisher last did, settings that were tuned, how far each
    source is read, demand and fits by class (with every one that is configured), those in which no forecast pays, what
    of the demand changed under the newest forecasts, drift of the last days, all findings, and the last runs.

    Raises NotFoundError where there is no store.
    """
    from pipelines.publishers.record import read_record
    from pipelines.stages.common import HISTORY
    from pipelines.stages.startups import said_startups, with_measured_startups
    from pipelines.stages.tuned import tunings_of
    from store.connection import open_store
    from store.demand import demand_extent
    from store.drift import read_drift
    from store.findings import read_findings
    from store.fits import read_fits
    from store.floors import read_floors
    from store.forecasts import forecasts_on_changed_data
    from store.publications import latest_publication
    from store.rejects import read_rejects
    from store.runs import list_runs
    from store.watermarks import read_watermark

    if not project.store_path.exists():
        raise NotFoundError("no database yet", where=str(project.store_path), remedy="run `floorcast cycle`")
    as_of = project.as_of(now)
    with open_store(project.store_path) as store:
        publication = latest_publication(store, at=now)
        floors = None if publication is None else read_floors(store, publication.run_id)
        extent = demand_extent(store).to_dicts()
        watermarks = {source.name: read_watermark(store, source.name) for source in project.config.sources}
        fits = read_fits(store, at=now).to_dicts()
        runs = list_runs(store, limit=8).to_dicts()
        rejects = read_rejects(store)
        findings = read_findings(store, at=now)
        drift = read_drift(store, at=now).to_dicts()
        tunings = tunings_of(store, at=now)
        outdated = forecasts_on_changed_data(store, at=now, look_back=HISTORY)
    return {
        "publication": _publication(publication, now),
        "pools": []
        if publication is None or floors is None
        else pools_now(
            FloorSchedule.model_validate_json(publication.schedule), floors, now=now, step=project.config.step
        ),
        "publishers": [one.model_dump(mode="json") for one in read_record(project.output).outcomes],
        "startups": said_startups(with_measured_startups(project, as_of)),
        "tuned": said_tunings(project.config, tunings),
        "sources": [
            {
                "source": source.name,
                "kind": source.kind,
                "watermark": watermarks[source.name],
                "age_s": _seconds(now, watermarks[source.name]),
            }
            for source in project.config.sources
        ],
        "classes": _classes(project.config, extent, fits, now),
        "no_forecast_pays": _unpaid(project.config, fits),
        "outdated_forecasts": outdated.to_dicts(),
        "drift": _drift(drift, fits, now),
        "rejected_rows": dict(rejects["reason"].value_counts().sort("reason").iter_rows()),
        "findings": [{**row, "evidence": json.loads(row["evidence"])} for row in findings.sort("start").to_dicts()],
        "runs": runs,
    }


def _publication(publication: PublicationRecord | None, now: datetime) -> dict[str, Any] | None:
    if publication is None:
        return None
    return {
        "version": publication.version,
        "mode": publication.mode,
        "issued_at": publication.issued_at,
        "valid_until": publication.valid_until,
        "expired": now >= publication.valid_until,
    }


def _classes(config: Config, extent: _Rows, fits: _Rows, now: datetime) -> _Rows:
    """A row of `extent` for each class, that of one without demand empty, with its age and its models."""
    models = {(fit["workload_class"], fit["metric"]): fit["model"] for fit in fits if fit["horizon"] == "lead"}
    known = {row["workload_class"]: row for row in extent}
    rows = []
    for name in sorted({*config.classes, *known}):
        row = known.get(name, {"workload_class": name, "first_step": None, "last_step": None, "steps": 0})
        age = _seconds(now, row["last_step"] and row["last_step"] + config.step)
        sides = {f"model_{side}": models.get((name, f"tokens_{side}")) for side in ("in", "out")}
        rows.append({**row, "age_s": age, **sides})
    return rows


def _unpaid(config: Config, fits: _Rows) -> _Rows:
    """Of each series in which no forecast pays, what the fit of its lead window found."""
    from forecasting.lead import NO_FORECAST_PAYS

    prefix = f"{NO_FORECAST_PAYS}: "
    return [
        {
            "workload_class": fit["workload_class"],
            "metric": fit["metric"],
            "fitted": fit["cutoff"],
            "found": fit["reason"].removeprefix(prefix).partition(";")[0],
        }
        for fit in sorted(fits, key=lambda fit: (fit["workload_class"], fit["metric"]))
        if fit["horizon"] == "lead" and fit["reason"].startswith(prefix) and fit["workload_class"] in config.classes
    ]


def _drift(drift: _Rows, fits: _Rows, now: datetime) -> _Rows:
    fitted = {(fit["workload_class"], fit["metric"]): fit["cutoff"] for fit in fits}
    return [
        {**row, "refitted": row["cutoff"] <= fitted[row["workload_class"], row["metric"]]}
        for row in drift
        if row["as_of"] > now - SHOWN
    ]


def _seconds(now: datetime, moment: datetime | None) -> float | None:
    return None if moment is None else (now - moment).total_seconds()
