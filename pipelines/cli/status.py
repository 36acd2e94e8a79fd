"""`floorcast status`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import typer

from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from floorcast.units import format_duration
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import local, say, say_json, say_table
from pipelines.cli.status_floors import pools_now, say_counts, say_pools
from pipelines.project import Project

SHOWN = timedelta(days=7)


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
            _say(found, project, moment)


def gather(project: Project, now: datetime) -> dict[str, Any]:
    """Publication and its floors due now by pool, how far each source is read, demand and fits by class (with every one
    that is configured), what of it changed under the newest forecasts, drift of the last days, all findings, and the
    last runs.

    Raises NotFoundError where there is no store.
    """
    from pipelines.stages.common import HISTORY
    from pipelines.stages.startups import said_startups, with_measured_startups
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
    with open_store(project.store_path) as store:
        publication = latest_publication(store, at=now)
        floors = None if publication is None else read_floors(store, publication.run_id)
        extent = {row["workload_class"]: row for row in demand_extent(store).to_dicts()}
        watermarks = {source.name: read_watermark(store, source.name) for source in project.config.sources}
        fits = read_fits(store, at=now).to_dicts()
        runs = list_runs(store, limit=8).to_dicts()
        rejects = read_rejects(store)
        findings = read_findings(store, at=now)
        drift = read_drift(store, at=now).to_dicts()
        outdated = forecasts_on_changed_data(store, at=now, look_back=HISTORY)
    models = {(fit["workload_class"], fit["metric"]): fit["model"] for fit in fits if fit["horizon"] == "lead"}
    fitted = {(fit["workload_class"], fit["metric"]): fit["cutoff"] for fit in fits}
    return {
        "publication": None
        if publication is None
        else {
            "version": publication.version,
            "mode": publication.mode,
            "issued_at": publication.issued_at,
            "valid_until": publication.valid_until,
            "expired": now >= publication.valid_until,
        },
        "pools": []
        if publication is None or floors is None
        else pools_now(
            FloorSchedule.model_validate_json(publication.schedule), floors, now=now, step=project.config.step
        ),
        "startups": said_startups(with_measured_startups(project, project.as_of(now))),
        "sources": [
            {
                "source": source.name,
                "kind": source.kind,
                "watermark": watermarks[source.name],
                "age_s": _seconds(now, watermarks[source.name]),
            }
            for source in project.config.sources
        ],
        "classes": [
            {
                **(
                    row := extent.get(name, {"workload_class": name, "first_step": None, "last_step": None, "steps": 0})
                ),
                "age_s": _seconds(now, row["last_step"] and row["last_step"] + project.config.step),
                "model_in": models.get((name, "tokens_in")),
                "model_out": models.get((name, "tokens_out")),
            }
            for name in sorted({*project.config.classes, *extent})
        ],
        "outdated_forecasts": outdated.to_dicts(),
        "drift": [
            {**row, "refitted": row["cutoff"] <= fitted[row["workload_class"], row["metric"]]}
            for row in drift
            if row["as_of"] > now - SHOWN
        ],
        "rejected_rows": dict(rejects["reason"].value_counts().sort("reason").iter_rows()),
        "findings": [{**row, "evidence": json.loads(row["evidence"])} for row in findings.sort("start").to_dicts()],
        "runs": runs,
    }


def _seconds(now: datetime, moment: datetime | None) -> float | None:
    return None if moment is None else (now - moment).total_seconds()


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return format_duration(seconds) if seconds >= 0 else f"{format_duration(-seconds)} in the future"


def _clock(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"


def _say(found: dict[str, Any], project: Project, now: datetime) -> None:
    _say_publication(found, project.config.zone)
    if found["pools"]:
        say()
        say_pools(found["pools"], project.config.zone)
    if found["startups"]:
        say()
    for pool, startup in found["startups"].items():
        say(f"startup of {pool}: {startup}")
    say()
    _say_sources(found)
    say()
    _say_classes(found)
    if found["outdated_forecasts"]:
        _say_outdated(found, project.config.step)
    if found["drift"]:
        _say_drift(found)
    if found["rejected_rows"]:
        say("\nrejected rows: " + ", ".join(f"{reason} {rows:,}" for reason, rows in found["rejected_rows"].items()))
    say_counts(found["findings"])
    _say_findings([row for row in found["findings"] if row["end"] > now - SHOWN])
    say()
    _say_runs(found)


def _say_publication(found: dict[str, Any], zone: str) -> None:
    publication = found["publication"]
    if publication is None:
        say("nothing is published yet")
    else:
        state = "EXPIRED: consumers have fallen back" if publication["expired"] else "valid"
        say(f"version {publication['version']} ({publication['mode']}), issued {local(publication['issued_at'], zone)}")
        say(f"{state} until {local(publication['valid_until'], zone)}" if state == "valid" else
            f"{state} since {local(publication['valid_until'], zone)}")  # fmt: skip


def _say_sources(found: dict[str, Any]) -> None:
    say_table(
        ("source", "kind", "read until", "age"),
        (
            (
                row["source"],
                row["kind"],
                "read whole each time" if row["kind"] == "trace" else _clock(row["watermark"]),
                _age(row["age_s"]),
            )
            for row in found["sources"]
        ),
    )


def _say_classes(found: dict[str, Any]) -> None:
    say_table(
        ("class", "steps", "first", "newest data", "age", "model in", "model out"),
        (
            (
                row["workload_class"],
                f"{row['steps']:,}",
                f"{row['first_step']:%Y-%m-%d}" if row["first_step"] else "-",
                _clock(row["last_step"]),
                _age(row["age_s"]),
                row["model_in"] or "-",
                row["model_out"] or "-",
            )
            for row in found["classes"]
        ),
    )


def _say_outdated(found: dict[str, Any], step: timedelta) -> None:
    say("\nnewest forecasts made from data that changed since:")
    say_table(
        ("class", "metric", "cutoff", "steps", "from", "to"),
        (
            (
                row["workload_class"],
                row["metric"],
                _clock(row["cutoff"]),
                f"{row['steps']:,}",
                _clock(row["first_step"]),
                _clock(row["last_step"] + step),
            )
            for row in found["outdated_forecasts"]
        ),
    )


def _say_drift(found: dict[str, Any]) -> None:
    say("\ndrift found in the last 7 days:")
    say_table(
        ("class", "metric", "kind", "found", "evidence", "fitted anew"),
        (
            (
                row["workload_class"],
                row["metric"],
                row["kind"],
                _clock(row["as_of"]),
                row["evidence"],
                "yes" if row["refitted"] else "by the next cycle",
            )
            for row in found["drift"]
        ),
    )


def _say_findings(findings: list[dict[str, Any]]) -> None:
    from dashboards.evidence import in_words

    of_pools = [row for row in findings if row["pool"]]
    for row in of_pools:
        say(f"\ncapacity of {row['pool']} contradicted: {row['evidence']['says']}")
        say(f"  {row['evidence']['remedy']}")
    if len(of_pools) == len(findings):
        return
    say("\nfindings about the demand of the last 7 days:")
    say_table(
        ("kind", "class", "metric", "from", "to", "masked", "evidence"),
        (
            (
                row["kind"],
                row["workload_class"] or "all",
                row["metric"] or "both",
                _clock(row["start"]),
                _clock(row["end"]),
                "yes" if row["masked"] else "no",
                in_words(row["kind"], row["evidence"]),
            )
            for row in findings
            if not row["pool"]
        ),
    )


def _say_runs(found: dict[str, Any]) -> None:
    say_table(
        ("run", "status", "started", "seconds"),
        (
            (
                run["run_id"],
                run["status"],
                f"{run['started_at']:%Y-%m-%d %H:%M:%S} UTC",
                f"{(run['finished_at'] - run['started_at']).total_seconds():.1f}" if run["finished_at"] else "-",
            )
            for run in found["runs"]
        ),
    )
