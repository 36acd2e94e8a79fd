"""Where demand comes from."""

from pipelines.sources.chunk import CLOCK_TOLERANCE, Chunk
from pipelines.sources.prometheus import Examined, examine, import_prometheus
from pipelines.sources.sql import import_sql
from pipelines.sources.traces import TraceImport, import_trace

__all__ = [
    "CLOCK_TOLERANCE",
    "Chunk",
    "Examined",
    "TraceImport",
    "examine",
    "import_prometheus",
    "import_sql",
    "import_trace",
]
