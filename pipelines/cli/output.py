"""What commands print: tables and lines for people on standard output, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Table

from floorcast.units import format_time

_WIDEST = 10_000

SHORT = 9
"""Exit code of a plan that is done, but in which some floor is less than it should be."""

NOT_EVERYWHERE = 10
"""Exit code of a publication that is written, but that some publisher did not bring to where it belongs."""


def say(text: str = "") -> None:
    typer.echo(text)


def say_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, default=_plain))


def _plain(value: Any) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value)


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table without borders. On a terminal it fits the width; in a pipe nothing is cut."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDEST).print(table)


def local(moment: datetime | None, zone: str) -> str:
    """`2026-11-30 08:55 UTC (09:55 Europe/Berlin)`."""
    if moment is None:
        return "-"
    utc = f"{moment:%Y-%m-%d %H:%M} UTC"
    return utc if zone == "UTC" else f"{utc} ({moment.astimezone(ZoneInfo(zone)):%H:%M} {zone})"
