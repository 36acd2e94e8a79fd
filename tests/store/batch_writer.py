"""Run as a process of its own that tests kill: writes numbered batches, and says which are committed.

python batch_writer.py DATABASE FIRST_BATCH
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from floorcast.columns import DEMAND, FLOORS, FORECASTS, TIME, Schema
from store.connection import open_store
from store.demand import upsert_demand
from store.floors import write_floors
from store.forecasts import write_forecasts
from store.publications import PublicationRecord, record_publication

T0 = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)
ROWS = 3000


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def filled(schema: Schema, **constants: object) -> pl.DataFrame:
    """Consecutive steps in every time column, 1 in every number, unless given."""
    steps = pl.datetime_range(T0, T0 + (ROWS - 1) * STEP, STEP, time_unit="us")
    columns = {name: steps if dtype == TIME else pl.lit(1) for name, dtype in schema.items()}
    columns |= {name: pl.lit(value) for name, value in constants.items()}
    return pl.select(column.alias(name) for name, column in columns.items())


def main(path: Path, first: int) -> None:
    say("started")
    with open_store(path) as store:
        # A small threshold, so that kills also land inside checkpoints.
        store.execute("SET checkpoint_threshold = '256KB'")
        say("opened")
        for batch in range(first, first + 10_000):
            name, issued_at = f"batch-{batch}", T0 + batch * STEP
            demand = filled(DEMAND, workload_class=name, observed_fraction=1.0, source="writer")
            shared = filled(DEMAND, workload_class="shared", tokens_in=batch, observed_fraction=1.0, source="writer")
            forecasts = filled(FORECASTS, workload_class=name, metric="tokens_in", cutoff=issued_at, model="last_value")
            floors = filled(FLOORS, pool="pool", rung="fresh", reason="{}")
            with store.transaction():
                upsert_demand(store, demand)
                # The same class in all batches: rewritten each time, so that deletes are under way too.
                upsert_demand(store, shared)
                write_forecasts(store, name, forecasts)
                write_floors(store, name, floors)
                record_publication(
                    store, PublicationRecord(batch + 1, name, issued_at, issued_at + STEP, "advisory", "-", "{}")
                )
            say(str(batch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
