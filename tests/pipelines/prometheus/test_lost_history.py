"""A live server that lost what is stored of it: wiped, or asked by a label that it no longer has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import polars as pl
import pytest

from pipelines.project import Project
from pipelines.stages.ingest import ingest
from store.connection import open_store
from store.demand import read_demand
from store.findings import read_findings

pytestmark = pytest.mark.server

HOUR, MINUTE, STEP = timedelta(hours=1), timedelta(minutes=1), timedelta(minutes=5)
KEY = ["workload_class", "step_start"]

Ask = Callable[..., Project]


@pytest.fixture
def ask(tmp_path: Path, write_project: Ask) -> Ask:
    """The same project, asking the server at `url` for the classes' models."""

    def make(url: str, **models: str) -> Project:
        models = {"chat": "llama-70b", "steady": "qwen-8b"} | models
        return write_project(tmp_path, models, url=url, history="5h", chunk="3h")

    return make


@pytest.fixture
def wiped(tmp_path: Path, tools: SimpleNamespace) -> Iterator[str]:
    """A server without any data."""
    folder = tmp_path / "wiped"
    folder.mkdir()
    with tools.victoria_metrics(folder) as url:
        yield url


def stored(project: Project) -> pl.DataFrame:
    with open_store(project.store_path) as store:
        return read_demand(store)


def lost(project: Project) -> list[dict[str, Any]]:
    with open_store(project.store_path) as store:
        return read_findings(store).filter(kind="history_lost").to_dicts()


def test_a_wiped_server_takes_nothing_away_and_is_read_on_once_it_collects_again(
    ask: Ask, world: Any, victoria_metrics: str, wiped: str, tools: SimpleNamespace
) -> None:
    now = world.end - 3 * HOUR - 2 * MINUTE
    project = ask(victoria_metrics)
    ingest(project, now)
    before = stored(project)
    end = before["step_start"].max() + STEP
    assert lost(project) == []

    project = ask(wiped)
    result = ingest(project, now + STEP)
    assert stored(project).equals(before)
    # Read again from the chunk's beginning to where late samples may still come.
    first, settled = world.end - 6 * HOUR, now + STEP - 18 * MINUTE
    again = before.filter(pl.col("step_start").is_between(first, settled, closed="left"))
    assert result.sources[0].kept_steps == again.height == 66
    assert "66 stored steps kept that their source no longer has" in result.summary
    [finding] = lost(project)
    assert (finding["start"], finding["end"], finding["masked"]) == (first, settled, False)
    assert json.loads(finding["evidence"]) == {"prod_steps_kept": 66, "prod_classes": "chat, steady"}

    # It collects from the middle of the last stored step on, which it holds in part.
    since = (end - STEP / 2).timestamp()
    kept = [(labels, times[times >= since], values[times >= since]) for labels, times, values in world.series]
    text = "\n".join(tools.lines(type(world)(series=kept), 1000)) + "\n"
    httpx.post(f"{wiped}/api/v1/import/prometheus", content=text.encode(), timeout=60).raise_for_status()
    httpx.get(f"{wiped}/internal/force_flush", timeout=30).raise_for_status()
    ingest(project, end + 2 * STEP + MINUTE)
    after = stored(project)
    assert after.join(before, on=KEY, how="semi").equals(before)
    assert set(after.join(before, on=KEY, how="anti")["step_start"]) == {end, end + STEP}


def test_a_class_whose_label_was_renamed_keeps_its_steps_and_is_named(
    ask: Ask, world: Any, victoria_metrics: str
) -> None:
    now = world.end - 3 * HOUR - 2 * MINUTE
    ingest(ask(victoria_metrics), now)
    project = ask(victoria_metrics, steady="qwen-8b-renamed")
    before = stored(project)
    ingest(project, now + STEP)
    after = stored(project)
    assert after.filter(workload_class="steady").equals(before.filter(workload_class="steady"))
    assert after.filter(workload_class="chat").height > before.filter(workload_class="chat").height
    [finding] = lost(project)
    assert json.loads(finding["evidence"])["prod_classes"] == "steady"
