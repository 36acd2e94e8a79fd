"""Token counters of serving engines, read from Prometheus or what speaks its HTTP API.

What is decided here, since the world leaves it open:

- Counters are read as raw samples, by instant queries with a range selector. Prometheus, Thanos, Mimir and
  VictoriaMetrics all answer them with the times of the scrapes, so neither extrapolation nor lookback is involved.
- An answer that says of itself that it is partial is refused, as is any failure that outlasts the attempts: the import
  ends there with a DataError, and what was not read stays missing.
- NaN and infinities are missing. An empty answer is missing. Neither is a zero; a counter that stands still is.
- Classes without `match` are not this source's.
"""

from pipelines.sources.chunk import Chunk
from pipelines.sources.prometheus.examine import Examined, examine
from pipelines.sources.prometheus.importer import import_prometheus

__all__ = ["Chunk", "Examined", "examine", "import_prometheus"]
