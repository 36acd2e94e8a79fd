"""Backfills from the real servers, and samples that their clocks put into the future."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.project import Project
from pipelines.stages.ingest import ingest
from pipelines.stages.reading import Interval
from store.connection import open_store
from store.demand import read_demand
from store.findings import read_findings

pytestmark = pytest.mark.server

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def project(tmp_path: Path, request: pytest.FixtureRequest, write_project: Any) -> Project:
    url = request.getfixturevalue(request.param)
    models = {"chat": "llama-70b", "steady": "qwen-8b"}
    project: Project = write_project(tmp_path, models, url=url, history="20h", chunk="3h")
    return project


@pytest.fixture
def stored(project: Project) -> Callable[[], pl.DataFrame]:
    def read() -> pl.DataFrame:
        with open_store(project.store_path) as store:
            return read_demand(store)

    return read


def test_a_backfill_gives_its_interval_what_one_import_gives_it(
    project: Project, world: Any, stored: Callable[[], pl.DataFrame]
) -> None:
    """The interval begins and ends within chunks, where replicas churn and counters are renamed."""
    ingest(project, world.end)
    whole = stored()
    with open_store(project.store_path) as store, store.transaction():
        store.execute("UPDATE demand SET tokens_in = tokens_in / 2 WHERE source = 'prod'")
    halved = stored()
    span = Interval(start=world.end - 13 * HOUR + 5 * MINUTE, end=world.end - 8 * HOUR - 10 * MINUTE)
    inside = pl.col("step_start").is_between(span.start, span.end, closed="left")
    result = ingest(project, world.end, interval=span, only="prod")
    after = stored()
    assert after.filter(~inside).equals(halved.filter(~inside))
    assert_frame_equal(after.filter(inside), whole.filter(inside))
    assert result.sources[0].reopened_steps == whole.filter(inside).height == result.sources[0].steps
    assert after.filter(inside).height > 0


def test_samples_of_the_future_are_told_and_not_stored(
    project: Project, world: Any, stored: Callable[[], pl.DataFrame]
) -> None:
    """The servers hold samples of after `now`, as where their clock is ahead of ours."""
    now = world.end - 3 * HOUR - 2 * MINUTE
    ingest(project, now)
    honest = stored()
    project.store_path.unlink()
    result = ingest(project, now, present=now)
    assert stored().equals(honest)
    assert honest["step_start"].max() == world.end - 3 * HOUR - 10 * MINUTE
    with open_store(project.store_path) as store:
        [evidence] = map(json.loads, read_findings(store, at=now).filter(kind="clock_skew")["evidence"])
    assert evidence["prod_rows"] == result.sources[0].ahead > 100
    assert evidence["prod_ahead_h"] == pytest.approx(0.25, abs=0.01)
    assert "of the future" in result.summary
