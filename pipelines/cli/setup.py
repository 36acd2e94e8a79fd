"""`floorcast init` and `floorcast check`."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from floorcast.errors import ConfigError
from floorcast.source import PrometheusSource, TraceSource
from floorcast.units import format_duration
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say, say_json, say_table
from pipelines.project import Project

NEEDS = (
    (timedelta(days=42) / 2, "all models"),
    (timedelta(days=3) * 1.5, "daily models; a weekly shape needs three weeks"),
    (timedelta(0), "last value only; a daily shape needs three days"),
)
"""What a history of at least so long lets a backtest use, whose candidates see two thirds of it."""


def register(app: typer.Typer) -> None:
    @app.command("init")
    def init(
        path: Annotated[Path, typer.Argument(help="The file to write.")] = DEFAULT_CONFIG,
        force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Write a commented configuration to start from.

        \b
        Example:
          floorcast init floorcast.yaml
        """
        if path.exists() and not force:
            raise ConfigError("the file is there already", where=str(path), remedy="name another, or add --force")
        template = files("pipelines.cli").joinpath("floorcast.yaml").read_text(encoding="utf-8")
        try:
            path.write_text(template, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"cannot be written: {error.strerror}",
                where=str(path),
                remedy="name a path in a folder you can write to",
            ) from None
        if as_json:
            say_json({"config": str(path)})
        else:
            say(f"wrote {path}; edit it, then run: floorcast check --config {path}")

    @app.command("check")
    def check(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Validate the configuration and read every source without storing anything.

        Prints what each source holds for each class, the rows it would reject, and what is missing for a forecast.

        \b
        Example:
          floorcast check --config floorcast.yaml
        """
        project, moment = project_of(config, data), now_or(now)
        found = examine(project, moment)
        if as_json:
            say_json(found)
        else:
            _say(found, project)


def examine(project: Project, now: datetime) -> dict[str, Any]:
    """What each source holds. Raises what reading it raises."""
    sources = [
        _examine_live(source, project, now)
        if isinstance(source, PrometheusSource)
        else _examine_trace(source, project, now)
        for source in project.config.sources
    ]
    seen = {entry["class"] for source in sources for entry in source["classes"] if entry["first"]}
    return {
        "config": str(project.file),
        "mode": project.config.mode,
        "pools": {name: format_duration(project.config.lead(name)) for name in project.config.pools},
        "sources": sources,
        "classes_without_demand": sorted(set(project.config.classes) - seen),
    }


def _examine_live(source: PrometheusSource, project: Project, now: datetime) -> dict[str, Any]:
    from pipelines.sources import examine as examine_live

    found = examine_live(source, project.config.classes, now)
    classes = [
        {
            "class": one.workload_class,
            "metric": one.metric,
            "names": ", ".join(one.names) or "your query",
            "series": one.series,
            "first": one.first,
            "last": one.last,
            "resolution": None if one.resolution is None else format_duration(one.resolution),
            "gaps": [gap.model_dump() for gap in one.gaps],
            "missing": list(one.missing),
        }
        for one in found
    ]
    return {"source": source.name, "kind": source.kind, "url": source.url, "classes": classes}


def _examine_trace(source: TraceSource, project: Project, now: datetime) -> dict[str, Any]:
    from pipelines.sources import import_trace

    config = project.config
    found = import_trace(source, step=config.step, classes=list(config.classes), until=now, base=project.base)
    classes = []
    for (name,), rows in found.demand.group_by(["workload_class"], maintain_order=True):
        first, last = rows["step_start"].min(), rows["step_start"].max()
        history = (last - first + config.step) if isinstance(first, datetime) and isinstance(last, datetime) else None
        classes.append(
            {
                "class": name,
                "first": first,
                "last": last,
                "steps": rows.height,
                "missing_steps": history // config.step - rows.height if history else 0,
                "age_s": (now - last - config.step).total_seconds() if isinstance(last, datetime) else None,
                "allows": next(words for need, words in NEEDS if history is None or history >= need),
            }
        )
    return {
        "source": source.name,
        "kind": source.kind,
        "rows": found.rows_read,
        "rejected": found.rejected,
        "examples": found.examples,
        "incomplete_step": found.incomplete_step,
        "classes": classes,
    }


def _say(found: dict[str, Any], project: Project) -> None:
    from scaling.ladder import fallback_replicas

    say(f"{found['config']}: valid, mode {found['mode']}")
    for pool, lead in found["pools"].items():
        say(f"  pool {pool}: lead time {lead}, serves {', '.join(project.config.classes_of(pool))}")
    for source in found["sources"]:
        if source["kind"] == "prometheus":
            _say_live(source)
        else:
            _say_trace(source)
    for entry in (entry for source in found["sources"] for entry in source["classes"]):
        if entry.get("age_s") and entry["age_s"] > project.config.horizon.total_seconds():
            fallback = fallback_replicas(project.config.pool_of(entry["class"]))
            say(
                f"  class {entry['class']}: the newest data are {format_duration(entry['age_s'])} old, too old to "
                f"forecast from; floors will be those of past weeks, or fallback_replicas ({fallback})"
            )
    if not found["sources"]:
        say("\nno sources yet: add one under `sources`")
    for name in found["classes_without_demand"]:
        fallback = fallback_replicas(project.config.pool_of(name))
        say(f"  class {name}: no demand in any source; its pool's floors will be fallback_replicas ({fallback})")


def _say_trace(source: dict[str, Any]) -> None:
    say(f"\nsource {source['source']}: {source['rows']:,} rows")
    say_table(
        ("class", "steps", "missing", "first", "last", "allows"),
        (
            (
                entry["class"],
                f"{entry['steps']:,}",
                f"{entry['missing_steps']:,}",
                _clock(entry["first"]),
                _clock(entry["last"]),
                entry["allows"],
            )
            for entry in source["classes"]
        ),
    )
    for reason, rows in source["rejected"].items():
        say(f"  rejected {rows:,} rows: {reason}, e.g. {source['examples'].get(reason, '')}")


def _say_live(source: dict[str, Any]) -> None:
    say(f"\nsource {source['source']}: {source['url']}")
    say_table(
        ("class", "metric", "series", "found as", "first", "last", "every", "gaps"),
        (
            (
                entry["class"],
                entry["metric"],
                entry["series"],
                entry["names"],
                _clock(entry["first"]),
                _clock(entry["last"]),
                entry["resolution"] or "-",
                len(entry["gaps"]),
            )
            for entry in source["classes"]
        ),
    )
    for entry in source["classes"]:
        for missing in entry["missing"]:
            say(f"  {entry['class']} {entry['metric']}: {missing}")


def _clock(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
