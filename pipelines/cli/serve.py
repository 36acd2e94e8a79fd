"""`floorcast serve`."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, project_of
from pipelines.cli.output import local, say, say_json, say_table
from pipelines.project import load_project

if TYPE_CHECKING:
    from pipelines.service.board import Board

OnceOption = Annotated[bool, typer.Option("--once", help="Decide once, print the decisions, and end.")]


def register(app: typer.Typer) -> None:
    @app.command("serve")
    def command(
        config: ConfigOption = DEFAULT_CONFIG,
        data: DataOption = None,
        once: OnceOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Decide each tick how many replicas every pool should have, and serve floors and decisions.

        It reads what was published and live signals alone: neither the database nor Prefect need be there. SIGTERM
        ends it once the requests under way are answered; a second one at once.

        \b
        Example:
          floorcast serve --config floorcast.yaml
          floorcast serve --config floorcast.yaml --once
        """
        from pipelines.service.loop import Loop
        from pipelines.service.serve import only_one, serve, stopping

        project = project_of(config, data)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
        # It tells of every request, and there are several each tick.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        with only_one(project.state_dir), stopping() as stop:
            loop = Loop(project, lambda: load_project(project.file, environment=os.environ))
            try:
                if not once:
                    serve(loop, stop)
                    return
                board = loop.once_saved()
            finally:
                loop.close()
            if as_json:
                say_json(document(board))
            else:
                _say_board(board, project.config.zone)


def document(board: Board) -> dict[str, object]:
    schedule = board.publication.schedule
    return {
        "decided_at": board.now,
        "publication": {
            "version": schedule.version if schedule else None,
            "validity": board.publication.validity(board.now),
            "valid_until": schedule.valid_until if schedule else None,
            "fault": board.publication.fault,
        },
        "decisions": {
            name: {
                "desired": one.desired,
                "current": one.current,
                "floor": one.floor,
                "floor_source": one.floor_source,
                "ceiling": one.ceiling,
                "ready": one.ready,
                "starting": one.starting,
                "draining": one.draining,
                "alert": one.alert,
                "lost": one.lost,
                "triggers": one.triggers,
                "rules": one.rules,
            }
            for name, one in board.decisions.items()
        },
        "sources": [{"name": one.name, "fault": one.fault, "seconds": round(one.seconds, 3)} for one in board.sources],
        "faults": list(board.faults),
    }


def _say_board(board: Board, zone: str) -> None:
    publication, schedule = board.publication, board.publication.schedule
    said = (
        "none" if schedule is None else f"version {schedule.version}, valid until {local(schedule.valid_until, zone)}"
    )
    say(f"decided at {local(board.now, zone)}; schedule: {said} ({publication.validity(board.now)})")
    say()
    say_table(
        ("pool", "desired", "floor", "from", "ceiling", "ready", "signals lost"),
        (
            (
                one.pool,
                one.desired,
                one.floor,
                one.floor_source,
                one.ceiling,
                "-" if one.ready is None else one.ready,
                ", ".join(one.lost) or "-",
            )
            for one in board.decisions.values()
        ),
    )
    faults = [publication.fault, *(f"source {one.name}: {one.fault}" for one in board.sources if one.fault)]
    for fault in filter(None, (*faults, *board.faults)):
        say(f"! {fault}")
    for one in board.decisions.values():
        say()
        say(f"{one.pool}: {one.words}")
