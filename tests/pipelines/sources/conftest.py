"""Builders of small traces, and the folder of production traces."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from floorcast.source import TraceSource
from pipelines.sources import TraceImport, import_trace

MINUTE = timedelta(minutes=1)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., TraceImport]:
    """Import from files in `tmp_path`; source keys as keywords, sensible ones left out."""

    def call(
        *,
        step: timedelta = MINUTE,
        until: datetime | None = None,
        configured: tuple[str, ...] = ("code", "chat"),
        **keys: Any,
    ) -> TraceImport:
        source = TraceSource.model_validate({"name": "trace", "kind": "trace"} | keys)
        return import_trace(source, step=step, classes=configured, until=until, base=tmp_path)

    return call


@pytest.fixture
def data_folder() -> Path:
    """Where the production traces are; tests that need it are skipped elsewhere."""
    folder = Path(os.environ.get("FLOORCAST_DATA") or Path(__file__).parents[4] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no folder of production traces (FLOORCAST_DATA)")
    return folder
