"""Request traces into demand steps, read by DuckDB.

What is decided here, since the formats leave it open:

- Requests (Azure, BurstGPT, Mooncake, generic without `row_interval`): the trace observes everything from its first
  row to its last. Steps between without requests are idle: rows of zeros for every class mapped from the source. The
  first step's `observed_fraction` is the share after the first row; the step of the last row is left out.
- Sums (ServeGen, generic with `row_interval`): only what has a row was observed. A step is complete when the last
  row's interval reaches its end. A sum belongs to the past only once its interval is over, so with `until` the
  intervals that end after it are not looked at.
- BurstGPT's failed requests (0 response tokens) arrived and are demand: counted with the tokens in that they had.
- Azure, BurstGPT and Mooncake promise order. A row more than five minutes behind an earlier one, or ahead of both
  rows after it, is `time_out_of_order`; anything less is used where its time says. Generic files promise nothing.
- `duplicate`: for sums, the same class and time twice (the first is kept). For requests only Azure's clock of 100 ns
  makes two equal rows implausible; elsewhere equal rows are taken for two requests.
- `max_tokens` bounds one request; a sum is bounded by that many tokens for each second of its interval.
- A row of a CSV is a record: a quoted field may hold line ends. Where quotes do not fit together, a row is a line.
- Times before 2000 or after 2100 are `unparsable_time`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

from floorcast.source import TraceSource
from pipelines.sources.traces.result import TraceImport
from pipelines.sources.traces.rows import import_rows
from pipelines.sources.traces.servegen import import_servegen

__all__ = ["TraceImport", "import_trace"]


def import_trace(
    source: TraceSource, *, step: timedelta, classes: Collection[str], until: datetime | None, base: Path
) -> TraceImport:
    """Read a trace's files into demand steps.

    `base` is the folder that relative paths start from; rows at or after `until` (aware) are not looked at, so that
    history can be run as if it were then. A file is scanned once; again
    where a token of an unquoted CSV is no number; and once more only to keep its rejected rows.

    Raises ConfigError where source, step and classes do not fit together, and DataError where a file is missing,
    empty or not what it should be, or where more than `source.max_reject_share` of its rows cannot be used.
    """
    read = import_servegen if source.format == "servegen" else import_rows
    return read(source, step=step, classes=classes, until=until, base=base)
