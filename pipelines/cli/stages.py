"""One command for each stage. They call the plain functions and never import Prefect."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import (
    DEFAULT_CONFIG,
    ConfigOption,
    DataOption,
    JsonOption,
    NowOption,
    now_or,
    project_of,
    time_of,
)
from pipelines.cli.outcomes import say_outcomes
from pipelines.cli.output import NOT_EVERYWHERE, SHORT, say, say_json
from pipelines.project import Project

if TYPE_CHECKING:
    from pipelines.stages.runner import Stage

HELP = {
    "fit": "Choose and fit a model for every class and metric.",
    "forecast": "Forecast from the stored fits and the newest demand.",
    "plan": "Turn the newest forecasts into floors.",
    "publish": "Publish the planned floors: schedule, manifests and publishers.",
    "evaluate": "Judge the stored forecasts against what came.",
    "dashboard": "Write the dashboards as a site that opens from disk.",
}


def run_and_say(name: str, stage: Stage, project: Project, now: datetime, *, as_json: bool) -> None:
    from pipelines.stages.plan import PlanResult
    from pipelines.stages.publish import PublishResult
    from pipelines.stages.runner import run_stage

    run = run_stage(name, stage, project, now)
    if as_json:
        say_json({"stage": name, "seconds": round(run.seconds, 3), **run.result.model_dump(mode="json")})
    else:
        say(f"{name}: {run.result.summary} ({run.seconds:.1f} s)")
        if isinstance(run.result, PublishResult):
            say_outcomes(run.result.outcomes)
    if isinstance(run.result, PlanResult) and run.result.shortfalls:
        raise typer.Exit(SHORT)
    if isinstance(run.result, PublishResult) and run.result.at_fault:
        raise typer.Exit(NOT_EVERYWHERE)


FromOption = Annotated[
    datetime | None,
    typer.Option("--from", parser=time_of, metavar="TIME", help="Backfill from TIME on (UTC unless it has a zone)."),
]
ToOption = Annotated[
    datetime | None,
    typer.Option("--to", parser=time_of, metavar="TIME", help="Backfill to before TIME; the last complete step."),
]
SourceOption = Annotated[str | None, typer.Option("--source", metavar="NAME", help="Read this source alone.")]


def register(app: typer.Typer) -> None:
    app.command("ingest")(_ingest)
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
        from pipelines.stages.runner import STAGES

        run_and_say(name, STAGES[name], project_of(config, data), now_or(now), as_json=as_json)


def _ingest(
    config: ConfigOption = DEFAULT_CONFIG,
    data: DataOption = None,
    now: NowOption = None,
    start: FromOption = None,
    end: ToOption = None,
    source: SourceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read the sources into stored demand, each from where it stopped.

    With --from it is a backfill: the steps from there to --to are replaced by what the sources have for them now, and
    nothing else is. Killed or failed, it is simply run again.

    \b
    Example:
      floorcast ingest --config floorcast.yaml --now 2026-11-30T08:50
      floorcast ingest --from 2026-11-28T06:00 --to 2026-11-28T09:00 --source prod
    """
    from pipelines.stages.ingest import ingest
    from pipelines.stages.reading import Interval

    project, moment = project_of(config, data), now_or(now)
    if start is None:
        if end is not None:
            raise typer.BadParameter("only with --from", param_hint="--to")
        run_and_say("ingest", partial(ingest, only=source), project, moment, as_json=as_json)
        return
    interval = Interval(start=start, end=end or project.as_of(moment))
    run_and_say("backfill", partial(ingest, only=source, interval=interval), project, moment, as_json=as_json)
