"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from floorcast.units import parse_time
from pipelines.project import Project, load_project


def time_of(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The configuration file.", envvar="FLOORCAST_CONFIG")
]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="Sets FLOORCAST_DATA, which the configuration may name.")
]
NowOption = Annotated[
    datetime | None,
    typer.Option("--now", parser=time_of, metavar="TIME", help="Run as if it were TIME (UTC unless it has a zone)."),
]
PoolsArgument = Annotated[list[str] | None, typer.Argument(help="The pools; all unless named.", show_default=False)]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Another seed is another draw of what is random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

DEFAULT_CONFIG = Path("floorcast.yaml")


def now_or(given: datetime | None) -> datetime:
    return given or datetime.now(UTC)


def project_of(config: Path, data: Path | None = None, settings: Mapping[str, str] | None = None) -> Project:
    """The project, with FLOORCAST_DATA set for this process and those it starts, and `settings` by key in place of what
    the file says."""
    if data is not None:
        os.environ["FLOORCAST_DATA"] = str(data.resolve())
    return load_project(config, environment=os.environ, settings=settings)
