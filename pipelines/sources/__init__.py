"""Where demand comes from."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

from floorcast.errors import DataError
from floorcast.source import PrometheusSource, Source
from pipelines.sources.traces import TraceImport, import_trace

__all__ = ["TraceImport", "import_source", "import_trace"]


def import_source(
    source: Source, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read a source of any kind into demand steps. See `import_trace` for arguments and errors."""
    if isinstance(source, PrometheusSource):
        raise DataError("this kind of source is not read yet", where=f"source {source.name}", remedy="use a trace")
    return import_trace(source, step=step, classes=classes, until=until, base=base)
