"""What an import hands back, and when it fails for too many bad rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from floorcast.columns import REJECTS, conform, empty
from floorcast.errors import DataError
from floorcast.source import TraceSource

MAX_REJECTS_KEPT = 10_000
"""Rejected rows kept per file and reason; all are counted."""


@dataclass(frozen=True, kw_only=True)
class TraceImport:
    """A trace as demand steps.

    Invariant: rows_read = rows_used + rows rejected + rows_past_until. `first_time` and `last_time` are those of the
    rows used (None without any). `incomplete_step` is the step that was left out since the trace ends inside it.
    """

    demand: pl.DataFrame
    """`floorcast.columns.DEMAND`"""
    rejects: pl.DataFrame
    """`floorcast.columns.REJECTS`, at most 10,000 rows per reason"""
    rejected: dict[str, int]
    examples: dict[str, str]
    rows_read: int
    rows_used: int
    rows_past_until: int
    first_time: datetime | None
    last_time: datetime | None
    incomplete_step: datetime | None
    rows_apart: timedelta | None = None
    """Of sums: how far apart the closer rows of a class are, the tenth percentile; None with fewer than two rows."""


@dataclass(frozen=True)
class Rejects:
    """The rejected rows that are kept, and the first of each reason in words."""

    frame: pl.DataFrame
    examples: dict[str, str]

    @staticmethod
    def none() -> pl.DataFrame:
        """No rejected rows, in the shape that `of` takes."""
        return empty(REJECTS).drop("source")

    @classmethod
    def of(cls, source: TraceSource, found: list[pl.DataFrame]) -> Rejects:
        """Put frames of file, row_number, reason, raw together."""
        rows = pl.concat([cls.none(), *found], how="vertical_relaxed").with_columns(source=pl.lit(source.name))
        frame = conform(
            rows.sort("file", "row_number", maintain_order=True)
            .group_by("reason", maintain_order=True)
            .head(MAX_REJECTS_KEPT),
            REJECTS,
        )
        first = frame.unique("reason", keep="first", maintain_order=True)
        return cls(frame, {r["reason"]: f"{r['file']} row {r['row_number']}: {r['raw']}" for r in first.to_dicts()})


def check_reject_share(
    source: TraceSource, *, rejected: dict[str, int], examples: dict[str, str], rows_considered: int, where: str
) -> None:
    """Raise DataError when more than `source.max_reject_share` of the rows before `until` were rejected."""
    count = sum(rejected.values())
    if not count or count <= source.max_reject_share * rows_considered:
        return
    lines = [
        f"  {reason}: {rejected[reason]:,}, e.g. {examples[reason]}"
        for reason in sorted(rejected, key=lambda reason: -rejected[reason])
    ]
    raise DataError(
        f"{count:,} of {rows_considered:,} rows ({count / rows_considered:.1%}) cannot be used, more than "
        f"max_reject_share {source.max_reject_share:.1%}:\n" + "\n".join(lines),
        where=where,
        remedy=_REMEDIES.get(max(rejected, key=lambda reason: rejected[reason]), "correct the rows")
        + "; or raise max_reject_share to import without them",
    )


_REMEDIES = {
    "malformed_row": "check that format and delimiter are those of the file",
    "unparsable_time": "write times as 2026-11-30T08:55:00Z, or as seconds or milliseconds since 1970; "
    "relative times need `start`",
    "missing_tokens": "check that the columns of tokens hold numbers",
    "negative_tokens": "check that the columns of tokens are the right ones",
    "absurd_tokens": "check that the columns of tokens are the right ones, or raise max_tokens",
    "missing_requests": "check that columns.requests names a column of counts",
    "missing_rate": "check that requests_per_s holds numbers that are not negative",
    "unknown_class": "map the value under `classes` (`*` takes the rest) and configure the class",
    "time_out_of_order": "sort the file by time, or read it as format: generic, which promises no order",
    "duplicate": "remove the repeated rows; look for a file that was appended twice",
}
