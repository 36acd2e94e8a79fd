"""How far each source has been imported."""

from __future__ import annotations

from datetime import datetime

from store.connection import Store


def read_watermark(store: Store, source: str) -> datetime | None:
    """The time before which everything of the source is stored; None where it was never imported."""
    rows = store.read("SELECT until FROM watermarks WHERE source = $source", {"source": source})
    return rows["until"][0] if rows.height else None


def write_watermark(store: Store, source: str, until: datetime) -> None:
    """Record that everything of the source before `until` (aware) is stored, in place of what was recorded.

    Write it in the transaction that stores the demand, so that it never claims what is not there.
    """
    with store.transaction():
        store.execute("DELETE FROM watermarks WHERE source = $source", {"source": source})
        store.execute(
            "INSERT INTO watermarks BY NAME SELECT $source AS source, $until AS until, now() AS updated_at",
            {"source": source, "until": until},
        )
