"""Where demand comes from."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

from floorcast.source import TraceSource
from pipelines.sources.prometheus import Chunk, Examined, examine, import_prometheus
from pipelines.sources.traces import TraceImport, import_trace

__all__ = ["Chunk", "Examined", "TraceImport", "examine", "import_prometheus", "import_source", "import_trace"]


def import_source(
    source: TraceSource, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read recorded requests of any format into demand steps. See `import_trace` for arguments and errors."""
    return import_trace(source, step=step, classes=classes, until=until, base=base)
