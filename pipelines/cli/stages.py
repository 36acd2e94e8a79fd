"""One command for each stage. They call the plain functions and never import Prefect."""

from __future__ import annotations

from pathlib import Path

import typer

from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say, say_json

HELP = {
    "ingest": "Read the sources into stored demand.",
    "fit": "Choose and fit a model for every class and metric.",
    "forecast": "Forecast from the stored fits and the newest demand.",
    "plan": "Turn the newest forecasts into floors.",
    "publish": "Publish the planned floors as a schedule and manifests.",
    "evaluate": "Judge the stored forecasts against what came.",
    "dashboard": "Write the dashboards as a site that opens from disk.",
}


def run_and_say(name: str, config: Path, data: Path | None, now: NowOption, *, as_json: bool) -> None:
    from pipelines.stages.runner import STAGES, run_stage

    run = run_stage(name, STAGES[name], project_of(config, data), now_or(now))
    if as_json:
        say_json({"stage": name, "seconds": round(run.seconds, 3), **run.result.model_dump(mode="json")})
    else:
        say(f"{name}: {run.result.summary} ({run.seconds:.1f} s)")


def register(app: typer.Typer) -> None:
    for name in HELP:
        _register_one(app, name)


def _register_one(app: typer.Typer, name: str) -> None:
    example = f"\b\nExample:\n  floorcast {name} --config floorcast.yaml --now 2026-11-30T08:50"

    @app.command(name, help=f"{HELP[name]}\n\n{example}")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        run_and_say(name, config, data, now, as_json=as_json)
