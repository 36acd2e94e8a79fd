"""A small fleet: two pools, three classes, twelve days of 5-minute sums on an hourly grid, and what lies after them.

Fitted and published once a session; tests get copies of the folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.project import Project, load_project
from pipelines.stages.runner import STAGES, StageRun, run_stage
from store.connection import open_store

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
BEFORE, AFTER = timedelta(days=12), timedelta(days=8)
RATES = {"chat": (9000, 3000), "agent": (5000, 900), "code": (6000, 3500)}

CONFIG = """\
mode: advisory
step: 1h
horizon: 12h
sources:
  - name: history
    kind: trace
    format: generic
    path: trace.parquet
    row_interval: 5m
    max_tokens: 100000000
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out, requests: requests}
pools:
  chat-70b:
    gpu: {type: H100, per_replica: 2, usd_per_gpu_hour: 3.99}
    capacity: {prefill_tokens_per_s: 1600, decode_tokens_per_s: 900}
    startup: {p90: 4m}
    bounds: {min: 1, max: 60}
    fallback_replicas: 30
  code-8b:
    gpu: {type: A100}
    capacity: {prefill_tokens_per_s: 1700, decode_tokens_per_s: 700, combine: sum}
    startup: {p90: 2m}
    bounds: {min: 1, max: 60}
    fallback_replicas: 25
classes:
  chat: {kind: chat, pools: [chat-70b]}
  agent: {kind: agent, pools: [chat-70b]}
  code: {kind: code_generation, pools: [code-8b]}
"""

Live = Callable[..., dict[str, StageRun]]
Dump = Callable[[Project], dict[str, list[tuple[object, ...]]]]


@pytest.fixture(scope="session")
def now() -> datetime:
    """A Monday morning on the ramp. The trace goes on for days after it."""
    return NOW


@pytest.fixture(scope="session")
def trace() -> pl.DataFrame:
    """Daily cycles with drift and noise: time, class, tokens_in, tokens_out, requests of each 5 minutes."""
    times = pl.datetime_range(NOW - BEFORE, NOW + AFTER, "5m", closed="left", time_zone="UTC", eager=True)
    days = np.arange(len(times)) / 288
    rng = np.random.default_rng(7)
    frames = []
    for number, (name, (rate_in, rate_out)) in enumerate(RATES.items()):
        # Days differ, so that a forecast that lost sight of the last hours shows it.
        drift = pl.Series(rng.normal(0, 1, len(times))).ewm_mean(half_life=144).to_numpy() * 1.5
        level = 300 * (1 + 0.6 * np.sin(2 * np.pi * (days - 0.1 * number))) * np.exp(drift)
        noise = rng.lognormal(0, 0.08, (2, len(times)))
        frames.append(
            pl.DataFrame(
                {
                    "time": times,
                    "class": [name] * len(times),
                    "tokens_in": (rate_in * level * noise[0]).round(),
                    "tokens_out": (rate_out * level * noise[1]).round(),
                    "requests": (rate_in * level / 1000).round(),
                }
            )
        )
    return pl.concat(frames).sort("time", "class")


@pytest.fixture(scope="session")
def _blank(tmp_path_factory: pytest.TempPathFactory, trace: pl.DataFrame) -> Path:
    folder = tmp_path_factory.mktemp("blank")
    (folder / "floorcast.yaml").write_text(CONFIG)
    trace.write_parquet(folder / "trace.parquet")
    return folder


@pytest.fixture(scope="session")
def _published(tmp_path_factory: pytest.TempPathFactory, _blank: Path, live: Live) -> Path:
    folder = shutil.copytree(_blank, tmp_path_factory.mktemp("published") / "project")
    live(_load(folder), NOW, "ingest", "fit", "forecast", "plan", "publish")
    return folder


def _load(folder: Path) -> Project:
    return load_project(folder / "floorcast.yaml", environment=os.environ)


@pytest.fixture
def project(_blank: Path, tmp_path: Path) -> Project:
    """Configuration and trace; nothing stored yet."""
    return _load(shutil.copytree(_blank, tmp_path / "blank"))


@pytest.fixture
def published(_published: Path, tmp_path: Path) -> Project:
    """Ingested, fitted, forecast, planned and published at `now`."""
    return _load(shutil.copytree(_published, tmp_path / "fleet"))


@pytest.fixture(scope="session")
def live() -> Live:
    """`live(project, moment, *stages)` runs the stages named, and returns what each did."""

    def run(project: Project, moment: datetime, *stages: str) -> dict[str, StageRun]:
        return {name: run_stage(name, STAGES[name], project, moment) for name in stages}

    return run


@pytest.fixture(scope="session")
def reconfigure() -> Callable[[Project, str, str], Project]:
    """`reconfigure(project, old, new)` replaces text of the configuration and loads it anew."""

    def replace(project: Project, old: str, new: str) -> Project:
        text = project.file.read_text()
        assert text.count(old) == 1, old
        project.file.write_text(text.replace(old, new))
        return _load(project.base)

    return replace


@pytest.fixture(scope="session")
def dump() -> Dump:
    """All rows of all tables but what tells the clock, with paths relative to the project's folder.

    The record of a `fit` is left out too: a second one finds that there is nothing left to fit.
    """

    def rows(project: Project) -> dict[str, list[tuple[object, ...]]]:
        tables = {}
        with open_store(project.store_path) as store:
            for table in store.read("SELECT table_name FROM duckdb_tables() ORDER BY ALL")["table_name"]:
                hidden = {"schema_migrations": ["applied_at"], "scores": ["seconds"]}.get(table, [])
                hidden = ["started_at", "finished_at"] if table == "runs" else hidden
                frame = store.read(f"SELECT * FROM {table}").drop(hidden)
                if table == "runs":
                    here = pl.col("detail").str.replace_all('"/[^"]*/published/', '"./published/')
                    frame = frame.with_columns(detail=pl.when(pl.col("kind") != "fit").then(here))
                tables[table] = frame.sort(frame.columns).rows()
        return tables

    return rows
