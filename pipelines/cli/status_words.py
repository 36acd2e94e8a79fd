"""What `floorcast status` prints."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from floorcast.units import format_duration
from pipelines.cli.outcomes import say_outcomes
from pipelines.cli.output import local, say, say_table
from pipelines.cli.status_floors import say_counts, say_pools
from pipelines.project import Project

SHOWN = timedelta(days=7)
"""How far back findings and drift are shown."""


def say_status(found: dict[str, Any], project: Project, now: datetime) -> None:
    from pipelines.publishers.outcome import Outcome

    _say_publication(found, project.config.zone)
    if found["pools"]:
        say()
        say_pools(found["pools"], project.config.zone)
    say_outcomes([Outcome.model_validate(one) for one in found["publishers"]])
    if found["startups"] or found["tuned"]:
        say()
    for pool, startup in found["startups"].items():
        say(f"startup of {pool}: {startup}")
    for pool, tuned in found["tuned"].items():
        say(f"settings of {pool}: {tuned}")
    say()
    _say_sources(found)
    say()
    _say_classes(found)
    if found["no_forecast_pays"]:
        _say_unpaid(found)
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


def _say_unpaid(found: dict[str, Any]) -> None:
    say("\nno forecast pays here, as last value with the same margins loses as little; see `floorcast backtest`:")
    say_table(
        ("class", "metric", "loss of the floor's quantile within the lead window", "fitted"),
        (
            (row["workload_class"], row["metric"], row["found"], _clock(row["fitted"]))
            for row in found["no_forecast_pays"]
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


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return format_duration(seconds) if seconds >= 0 else f"{format_duration(-seconds)} in the future"


def _clock(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
