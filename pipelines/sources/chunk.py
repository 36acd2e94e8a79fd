"""What a source that is read piece by piece gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from floorcast.columns import REJECTS, empty


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What a source holds from `start` to `end`: replaces all that was stored of it for that time."""

    start: datetime
    end: datetime
    demand: pl.DataFrame
    """`floorcast.columns.DEMAND`"""
    samples: int
    """Samples or rows read, those before and after the chunk included."""
    server_s: float
    """Time spent waiting for the server."""
    rejects: pl.DataFrame = field(default_factory=lambda: empty(REJECTS))
    """`floorcast.columns.REJECTS`: the rows that could not be used, a limited number of each reason."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """How many rows could not be used, by reason."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """One of them, by reason."""
