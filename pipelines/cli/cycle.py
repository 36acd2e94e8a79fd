"""`floorcast cycle`."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.outcomes import say_outcomes
from pipelines.cli.output import NOT_EVERYWHERE, SHORT, say, say_json
from pipelines.prefect_settings import prepare
from pipelines.project import Project

if TYPE_CHECKING:
    from pipelines.flows import CycleRun

STAGE_FAILED = 8


def register(app: typer.Typer) -> None:
    @app.command("cycle")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run the whole line once: ingest, fit what is stale, forecast, plan, publish, evaluate, dashboard.

        A stage other than plan and publish may fail: floors are then made from what is stored, and the exit
        code is 8. Where all stages went well but a publisher did not bring a floor to where it belongs, it is 10.
        Where that went well too but a floor is less than it should be, for its bounds, a ceiling or a quota, it is 9.

        \b
        Example:
          floorcast cycle --config floorcast.yaml --now 2026-11-30T08:50
        """
        done = run(project_of(config, data), now_or(now))
        from pipelines.stages.plan import PlanResult
        from pipelines.stages.publish import PublishResult

        published = [one.result for one in done.runs if isinstance(one.result, PublishResult)]
        if as_json:
            say_json(document(done))
        else:
            for line in lines(done):
                say(line)
            for one in published:
                say_outcomes(one.outcomes)
        if done.failed:
            raise typer.Exit(STAGE_FAILED)
        if any(one.at_fault for one in published):
            raise typer.Exit(NOT_EVERYWHERE)
        if any(isinstance(one.result, PlanResult) and one.result.shortfalls for one in done.runs):
            raise typer.Exit(SHORT)


def run(project: Project, now: datetime) -> CycleRun:
    if sys.stderr.isatty():
        typer.echo("starting Prefect, which takes a while the first time", err=True)
    prepare(os.environ, home=project.output.absolute() / ".prefect")
    from pipelines.flows import run_cycle

    return run_cycle(project.file, now)


def document(done: CycleRun) -> dict[str, object]:
    return {
        "stages": {
            run.name: {"seconds": round(run.seconds, 3), **run.result.model_dump(mode="json")} for run in done.runs
        },
        "failed": done.failed,
        "without_prefect": done.without_prefect,
    }


def lines(done: CycleRun) -> list[str]:
    width = max(len(name) for name in ("dashboard", *done.failed))
    ran = [f"{run.name:<{width}}  {run.seconds:5.1f} s  {run.result.summary}" for run in done.runs]
    if done.without_prefect:
        ran.append(f"ran without Prefect, which could not begin: {done.without_prefect}")
    return ran + [f"{name:<{width}}   failed  {error}" for name, error in done.failed.items()]
