"""`floorcast demo`."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli import cycle
from pipelines.cli.options import JsonOption, NowOption, project_of
from pipelines.cli.output import say, say_json
from pipelines.project import Project

END = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
"""A Monday morning while Europe starts work, so that the page shows a ramp. Fixed, so that every demo is the same."""

LIVED = timedelta(hours=22)
EVERY = timedelta(hours=2)
"""The last hours are lived through with a publication every two hours, so that there is accuracy to show; under a
day, so that the fit they began with still stands at the end."""


def register(app: typer.Typer) -> None:
    @app.command("demo")
    def command(
        folder: Annotated[Path, typer.Option("--dir", help="Where to put it all.")] = Path("demo"),
        seed: Annotated[int, typer.Option(help="Another seed is another fleet's history.")] = 7,
        now: NowOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run the whole line on a generated fleet: four weeks of three pools, forecast, planned and published.

        \b
        Example:
          floorcast demo --dir demo
        """
        began = time.perf_counter()
        end = now or END
        seconds: dict[str, float] = {}
        project = _fresh(folder, end, seed)
        seconds["generate"] = time.perf_counter() - began
        if not as_json:
            say(f"generated 28 days of six classes up to {end:%Y-%m-%d %H:%M} UTC in {folder}")
        seconds |= _live(project, end)
        if not as_json:
            say(f"fitted at {end - LIVED:%Y-%m-%d %H:%M} UTC ({seconds['fit']:.1f} s)")
            say(f"lived on from there, publishing every two hours ({seconds['live']:.1f} s)")
        began = time.perf_counter()
        done = cycle.run(project, end)
        stages = {run.name: run for run in done.runs}
        for name, run in stages.items():
            seconds[name] = seconds.get(name, 0.0) + run.seconds
        seconds["orchestration"] = time.perf_counter() - began - sum(run.seconds for run in stages.values())
        if as_json:
            published = stages["publish"].result.model_dump(mode="json")
            say_json(
                {
                    "page": str(project.site / "index.html"),
                    "schedule": published["schedule"],
                    "pools": published["pools"],
                    "windows": published["windows"],
                    "seconds": {name: round(value, 3) for name, value in seconds.items()},
                    "failed": done.failed,
                }
            )
        else:
            for line in cycle.lines(done):
                say(line)
            say(f"\nopen     {project.site / 'index.html'}")
            say(f"schedule {project.output / 'schedule.json'}")
            say(f'ask      {sys.argv[0]} explain chat-70b --config {project.file} --now "{end:%Y-%m-%d %H:%M}"')
        if done.failed:
            raise typer.Exit(cycle.STAGE_FAILED)


def _fresh(folder: Path, end: datetime, seed: int) -> Project:
    """The demo's files written, and what an earlier demo stored and published taken away."""
    from pipelines.demo.write import write_demo

    project = project_of(write_demo(folder, end=end, seed=seed))
    for old in (project.store_path, project.store_path.with_name(project.store_path.name + ".wal")):
        old.unlink(missing_ok=True)
    shutil.rmtree(project.output / "schedules", ignore_errors=True)
    (project.output / "schedule.json").unlink(missing_ok=True)
    return project


def _live(project: Project, end: datetime) -> dict[str, float]:
    """Ingest, fit some hours before the end, and publish at intervals from there. Returns seconds by part."""
    from pipelines.progress import track
    from pipelines.stages.runner import STAGES, run_stage

    seconds = {
        "ingest": run_stage("ingest", STAGES["ingest"], project, end).seconds,
        "fit": run_stage("fit", STAGES["fit"], project, end - LIVED).seconds,
    }
    began = time.perf_counter()
    moments = [end - LIVED + step * EVERY for step in range(LIVED // EVERY)]
    for moment in track(moments, total=len(moments), label="living through the last hours"):
        for name in ("forecast", "plan", "publish"):
            run_stage(name, STAGES[name], project, moment)
    return seconds | {"live": time.perf_counter() - began}
