"""The record of runs."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from floorcast.errors import NotFoundError
from store.connection import Store
from store.runs import finish_run, list_runs, start_run

HOUR = timedelta(hours=1)


def test_run_is_running_until_it_is_finished(store: Store, t0: datetime) -> None:
    start_run(store, run_id="r1", kind="cycle", started_at=t0 + HOUR, as_of=t0)
    running = {"run_id": "r1", "kind": "cycle", "as_of": t0, "started_at": t0 + HOUR}
    assert list_runs(store).rows(named=True) == [running | {"finished_at": None, "status": "running", "detail": None}]
    ended = {"finished_at": t0 + 2 * HOUR, "status": "done", "detail": '{"seconds": 3}'}
    for _ in "12":
        finish_run(store, "r1", **ended)
    assert list_runs(store).rows(named=True) == [running | ended]


def test_started_again_it_runs_anew(store: Store, t0: datetime) -> None:
    start_run(store, run_id="r1", kind="cycle", started_at=t0, as_of=t0)
    finish_run(store, "r1", finished_at=t0 + HOUR, status="failed", detail="{}")
    start_run(store, run_id="r1", kind="cycle", started_at=t0 + 2 * HOUR, as_of=t0)
    assert list_runs(store).select("status", "finished_at", "detail").rows() == [("running", None, None)]


def test_list_is_newest_first_and_limited(store: Store, t0: datetime) -> None:
    for n in (1, 3, 2):
        start_run(store, run_id=f"r{n}", kind="fit", started_at=t0 + n * HOUR, as_of=t0)
    assert list_runs(store)["run_id"].to_list() == ["r3", "r2", "r1"]
    assert list_runs(store, 2)["run_id"].to_list() == ["r3", "r2"]


def test_finishing_an_unknown_run_is_refused(store: Store, t0: datetime) -> None:
    with pytest.raises(NotFoundError, match="no run r9"):
        finish_run(store, "r9", finished_at=t0, status="done", detail="{}")
