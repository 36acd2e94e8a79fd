"""The record of runs, which outlives the orchestrator's own."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from floorcast.errors import NotFoundError
from store.connection import Store


def start_run(store: Store, *, run_id: str, kind: str, started_at: datetime, as_of: datetime) -> None:
    """Record that a run began, with status `running`. The same run_id begins anew."""
    with store.transaction():
        store.execute("DELETE FROM runs WHERE run_id = $run_id", {"run_id": run_id})
        store.execute(
            "INSERT INTO runs BY NAME SELECT $run_id AS run_id, $kind AS kind, $as_of AS as_of, "
            "$started_at AS started_at, 'running' AS status",
            {"run_id": run_id, "kind": kind, "as_of": as_of, "started_at": started_at},
        )


def finish_run(store: Store, run_id: str, *, finished_at: datetime, status: str, detail: str) -> None:
    """Record how a run ended; `detail` is JSON. Raises NotFoundError where it never started."""
    if store.read("SELECT 1 FROM runs WHERE run_id = $run_id", {"run_id": run_id}).is_empty():
        raise NotFoundError(f"no run {run_id}", where=str(store.path), remedy="record its start with start_run first")
    with store.transaction():
        store.execute(
            "UPDATE runs SET finished_at = $finished_at, status = $status, detail = $detail WHERE run_id = $run_id",
            {"run_id": run_id, "finished_at": finished_at, "status": status, "detail": detail},
        )


def list_runs(store: Store, limit: int = 20) -> pl.DataFrame:
    """The runs started last, newest first: run_id, kind, as_of, started_at, finished_at, status, detail.

    A run that was killed keeps the status `running` and has no finished_at.
    """
    return store.read(
        "SELECT run_id, kind, as_of, started_at, finished_at, status, detail FROM runs "
        "ORDER BY started_at DESC, run_id LIMIT $limit",
        {"limit": limit},
    )
