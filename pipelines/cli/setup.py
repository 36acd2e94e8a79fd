"""`floorcast init` and `floorcast check`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from floorcast.errors import ConfigError
from pipelines.cli.options import DEFAULT_CONFIG, ConfigOption, DataOption, JsonOption, NowOption, now_or, project_of
from pipelines.cli.output import say, say_json


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

        Prints what each source holds for each class, its tokens per second, the rows it would reject, what is missing
        for a forecast, and about how many replicas the busiest step takes of each pool. Of a live server: which metrics
        it has, how much of them, and what they say now. Of a server and a database: the last day's tokens per second.

        \b
        Example:
          floorcast check --config floorcast.yaml
        """
        from pipelines.cli.check import examine, say_examined

        project, moment = project_of(config, data), now_or(now)
        found = examine(project, moment)
        if as_json:
            say_json(found)
        else:
            say_examined(found, project)
