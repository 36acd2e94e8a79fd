"""What a source that is read piece by piece gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import CACHED_TOKENS, REJECTS, empty

CLOCK_TOLERANCE = timedelta(minutes=1)
"""How far clocks that are kept in time may differ."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What a source holds from `start` to `end`: replaces all that was stored of it for that time."""

    start: datetime
    end: datetime
    demand: pl.DataFrame
    """`floorcast.columns.DEMAND`"""
    cached: pl.DataFrame = field(default_factory=lambda: empty(CACHED_TOKENS))
    """`floorcast.columns.CACHED_TOKENS` of steps of `demand`, where the source tells."""
    samples: int
    """Samples or rows read, those before and after the chunk included."""
    server_s: float
    """Time spent waiting for the server."""
    ahead: int = 0
    """Samples or rows later than the present, by more than `CLOCK_TOLERANCE`. They are in nothing else here."""
    newest_ahead: datetime | None = None
    """The time of the latest of them."""
    rejects: pl.DataFrame = field(default_factory=lambda: empty(REJECTS))
    """`floorcast.columns.REJECTS`: the rows that could not be used, a limited number of each reason."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """How many rows could not be used, by reason."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """One of them, by reason."""
