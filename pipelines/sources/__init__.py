"""Where demand comes from."""

from pipelines.sources.chunk import Chunk
from pipelines.sources.prometheus import Examined, examine, import_prometheus
from pipelines.sources.traces import TraceImport, import_trace

__all__ = ["Chunk", "Examined", "TraceImport", "examine", "import_prometheus", "import_trace"]
