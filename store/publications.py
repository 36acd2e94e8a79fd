"""The record of what was published."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

import polars as pl

from floorcast.errors import DataError
from floorcast.units import format_time
from store.connection import Store, query


@dataclass(frozen=True)
class PublicationRecord:
    """One publication. `schedule` is the JSON document as published."""

    version: int
    run_id: str
    issued_at: datetime
    valid_until: datetime
    mode: str
    content_hash: str
    schedule: str


def record_publication(store: Store, record: PublicationRecord) -> None:
    """Record a publication in place of one with the same issued_at.

    Raises DataError where the version belongs to a publication issued at another time.
    """
    taken = store.read(
        "SELECT issued_at FROM publications WHERE version = $version AND issued_at <> $issued_at",
        {"version": record.version, "issued_at": record.issued_at},
    )
    if taken.height:
        raise DataError(
            f"version {record.version} is already the publication of {format_time(taken['issued_at'][0])}",
            where="publications",
            remedy="give it a version above all others",
        )
    with store.transaction():
        store.execute("DELETE FROM publications WHERE issued_at = $issued_at", {"issued_at": record.issued_at})
        store.execute(
            "INSERT INTO publications BY NAME SELECT $version AS version, $run_id AS run_id, $issued_at AS issued_at, "
            "$valid_until AS valid_until, $mode AS mode, $content_hash AS content_hash, $schedule AS schedule",
            asdict(record),
        )


def latest_publication(
    store: Store, *, before: datetime | None = None, at: datetime | None = None
) -> PublicationRecord | None:
    """The publication last issued, strictly earlier than `before` and not later than `at` where given."""
    rows = store.read(query("latest_publication"), {"before": before, "at": at})
    return PublicationRecord(**rows.row(0, named=True)) if rows.height else None


def list_publications(store: Store) -> pl.DataFrame:
    """One row per publication by version: version, run_id, issued_at, valid_until, mode, content_hash."""
    return store.read("SELECT * EXCLUDE (schedule) FROM publications ORDER BY version")


def read_publication(store: Store, version: int) -> PublicationRecord:
    """The publication of that version. Raises DataError where there is none."""
    rows = store.read("SELECT * FROM publications WHERE version = $version", {"version": version})
    if rows.is_empty():
        raise DataError(f"no version {version}", where="publications", remedy="see `floorcast status`")
    return PublicationRecord(**rows.row(0, named=True))
