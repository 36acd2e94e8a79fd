"""Steps whose demand changed after it was stored: by late data, by a source that was mended, by a backfill."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.columns import REOPENED
from store.connection import Store, Value, query
from store.tables import Table, read_rows

_KEY = ("workload_class", "step_start")
_TABLE = Table("reopened", REOPENED, key=_KEY, unit=_KEY)


def record_reopened(
    store: Store,
    source: str,
    *,
    start: datetime,
    end: datetime,
    frame: pl.DataFrame,
    extent: pl.DataFrame,
    replaces: bool,
) -> int:
    """Record which stored steps the DEMAND frame is about to change; returns how many.

    Call it in the transaction that stores the frame, before it does. `replaces`: the frame is all that the source
    has from `start` to before `end`, so that what is stored there and not in it goes. A step that fills a gap has
    changed too: `extent` is the source's `demand_extent` before the run, since steps before a class's first are a
    history that is stored piece by piece. The time is the database's own clock, as that of runs is: not the `now` of a
    run in the past.
    """
    parameters: dict[str, Value] = {
        "source": source,
        "start": start,
        "end": end,
        "replaces": "yes" if replaces else "no",
    }
    with store.transaction():
        store.execute(f"CREATE TEMP TABLE changed AS {query('changed_steps')}", parameters, rows=frame, extent=extent)
        store.execute(
            "DELETE FROM reopened USING changed WHERE reopened.workload_class = changed.workload_class "
            "AND reopened.step_start = changed.step_start"
        )
        store.execute(
            "INSERT INTO reopened BY NAME SELECT *, $source AS source, now() AS reopened_at FROM changed",
            {"source": source},
        )
        steps: int = store.read("SELECT count(*) AS steps FROM changed")["steps"].item()
        store.execute("DROP TABLE changed")
    return steps


def read_reopened(store: Store) -> pl.DataFrame:
    """REOPENED of all sources."""
    return read_rows(store, _TABLE, "SELECT * FROM {table}", {})
