"""How far each source has been imported, by what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from floorcast.columns import TIME
from store.connection import Store, utc


def read_watermark(store: Store, source: str) -> datetime | None:
    """How far the source has been read: the latest of its classes' times. None where none of them was ever seen."""
    until: datetime | None = store.read(
        "SELECT max(until) AS until FROM watermarks WHERE source = $source", {"source": source}
    )["until"].item()
    return until


def read_watermarks(store: Store, source: str, asked: Mapping[str, str]) -> dict[str, datetime]:
    """The time of each class before which everything is stored. `asked` gives by class a hash of what it is asked for
    with; a class that was never seen, or was asked for otherwise then, is left out. The class may be empty: of all."""
    rows = store.read(
        "SELECT workload_class, query_hash, until FROM watermarks WHERE source = $source", {"source": source}
    )
    return {name: until for name, query_hash, until in rows.iter_rows() if asked.get(name) == query_hash}


def write_watermarks(store: Store, source: str, asked: Mapping[str, str], until: Mapping[str, datetime]) -> None:
    """Record the times (aware) of the classes in `until`, in place of what was recorded of them.

    Write them in the transaction that stores the demand, so that they never claim what is not there.
    """
    rows = pl.DataFrame(
        [(name, asked[name], utc(moment, "until")) for name, moment in until.items()],
        schema={"workload_class": pl.String(), "query_hash": pl.String(), "until": TIME},
        orient="row",
    )
    with store.transaction():
        store.execute(
            "DELETE FROM watermarks USING rows "
            "WHERE watermarks.source = $source AND watermarks.workload_class = rows.workload_class",
            {"source": source},
            rows=rows,
        )
        store.execute(
            "INSERT INTO watermarks BY NAME SELECT $source AS source, *, now() AS updated_at FROM rows",
            {"source": source},
            rows=rows,
        )
