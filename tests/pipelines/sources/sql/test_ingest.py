"""An SQL source in the product: from its configuration into the store, run after run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.project import Project, load_project
from pipelines.stages.ingest import ingest
from store.connection import open_store
from store.demand import read_demand

EXAMPLE = Path(__file__).parents[4] / "examples" / "gateway-logs"
END = datetime(2026, 11, 3, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Project]:
    """The example in a folder of its own, with the logs that its README says how to make."""

    def make(name: str) -> Project:
        folder = shutil.copytree(EXAMPLE, tmp_path / name)
        (folder / "logs").mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        duckdb.sql((folder / "make_logs.sql").read_text())
        return load_project(folder / "files.yaml", environment=os.environ)

    return make


def demand(project: Project) -> pl.DataFrame:
    with open_store(project.store_path) as store:
        return read_demand(store)


def test_many_runs_store_what_one_run_stores(project: Callable[[str], Project]) -> None:
    once, often = project("once"), project("often")
    result = ingest(once, END)
    for now in (END - 30 * HOUR, END - 30 * HOUR + 7 * MINUTE, END - 2 * HOUR, END, END):
        ingest(often, now)
    found = demand(once)
    assert found.height == 2 * (48 * 12 - 1)
    assert found["requests"].sum() == pytest.approx(result.sources[0].rows, abs=300)
    assert_frame_equal(demand(often), found)


def test_rows_written_late_change_the_steps_that_are_still_read_again(project: Callable[[str], Project]) -> None:
    here = project("late")
    ingest(here, END - 24 * HOUR)
    before = demand(here)
    late = END - 24 * HOUR - 12 * MINUTE
    duckdb.sql(
        f"COPY (SELECT TIMESTAMP '{late:%F %T}' AS received_at, 'qwen-coder' AS model, 1000000 AS prompt_tokens, "
        "5 AS completion_tokens, 200 AS status) TO 'logs/late.parquet'"
    )
    result = ingest(here, END - 24 * HOUR + 5 * MINUTE)
    changed = before.join(demand(here), on=["workload_class", "step_start"], suffix="_now").filter(
        pl.col("tokens_in") != pl.col("tokens_in_now")
    )
    assert changed.select("workload_class", "step_start").rows() == [("code", late - 3 * MINUTE)]
    assert result.sources[0].reopened_steps == 1
