"""An SQL source in the product: from its configuration into the store, run after run."""

from __future__ import annotations

import os
import re
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
from pipelines.stages.runner import STAGES, run_stage
from store.connection import open_store
from store.demand import read_demand
from store.findings import read_findings
from store.rejects import read_rejects

EXAMPLE = Path(__file__).parents[4] / "examples" / "gateway-logs"
END = datetime(2026, 11, 3, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Project]:
    """The example in a folder of its own, with the logs that its README says how to make: two days."""

    def make(name: str) -> Project:
        folder = shutil.copytree(EXAMPLE, tmp_path / name)
        (folder / "logs").mkdir(exist_ok=True)
        text = (folder / "files.yaml").read_text()
        (folder / "files.yaml").write_text(text.replace("    kind: sql\n", "    kind: sql\n    history: 3d\n"))
        monkeypatch.chdir(folder)
        duckdb.sql((folder / "make_logs.sql").read_text())
        return load_project(folder / "files.yaml", environment=os.environ)

    return make


def demand(project: Project) -> pl.DataFrame:
    with open_store(project.store_path) as store:
        return read_demand(store)


def test_the_examples_logs_are_unsuspicious_and_forecast_up_to_now(project: Callable[[str], Project]) -> None:
    here = project("whole line")
    for name in ("ingest", "fit", "forecast", "plan"):
        run_stage(name, STAGES[name], here, END)
    with open_store(here.store_path) as store:
        assert read_findings(store).is_empty()
        rungs = store.read("SELECT DISTINCT pool, rung FROM floors ORDER BY ALL")
    assert rungs.rows() == [("chat-70b", "fresh"), ("code-32b", "fresh")]


@pytest.mark.parametrize("page", sorted(EXAMPLE.parent.glob("*/README.md")), ids=lambda page: page.parent.name)
def test_the_examples_call_the_command_by_a_path_that_is_there(page: Path) -> None:
    commands = re.findall(r"^(\S*floorcast) (?=\w)", page.read_text(), re.MULTILINE)
    assert commands
    assert set(commands) == {"../../.venv/bin/floorcast"}


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


def test_a_gateway_that_deletes_its_rows_after_hours_takes_no_step_away(project: Callable[[str], Project]) -> None:
    """Runs go on from the watermark, not from the day's beginning, of which the rows are gone."""
    whole, here = project("whole"), project("deleting")
    rows = pl.concat([pl.read_parquet(file) for file in sorted((here.base / "logs").glob("*.parquet"))])
    for file in (here.base / "logs").glob("*.parquet"):
        file.unlink()
    ingest(whole, END - 2 * HOUR)
    read = []
    for ago in (8, 6, 4, 2):
        now = (END - ago * HOUR).replace(tzinfo=None)
        kept = rows.filter(pl.col("received_at").is_between(now - 3 * HOUR - 1.5 * MINUTE, now, closed="left"))
        kept.write_parquet(here.base / "logs" / "kept.parquet")
        read.append(ingest(here, END - ago * HOUR).sources[0])
    first = demand(here)["step_start"].min() + 5 * MINUTE  # whose own step the gateway holds in part
    expected = demand(whole).filter(pl.col("step_start") >= first)
    assert_frame_equal(demand(here).filter(pl.col("step_start") >= first), expected)
    assert [one.reopened_steps for one in read] == [0] * 4
    assert all(one.rows < read[0].rows for one in read[1:]), "no more is read than what came since"


def test_rows_that_were_rejected_stay_listed_after_later_runs(project: Callable[[str], Project]) -> None:
    here = project("rejecting")
    for ago in (30, 20):
        duckdb.sql(
            f"COPY (SELECT TIMESTAMP '{END - ago * HOUR:%F %T}' AS received_at, 'qwen-coder' AS model, "
            f"-1 AS prompt_tokens, 5 AS completion_tokens, 200 AS status) TO 'logs/bad{ago}.parquet'"
        )
    for now in (END - 30 * HOUR + 7 * MINUTE, END - 30 * HOUR + 12 * MINUTE, END, END):
        ingest(here, now)
        with open_store(here.store_path) as store:
            rejects = read_rejects(store, "gateway")
        assert rejects["reason"].to_list() == ["negative_tokens"] * (2 if now == END else 1)
