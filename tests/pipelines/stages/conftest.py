"""Two days of requests, read by a query or as a trace, and what of them is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.project import Project, load_project
from store.connection import open_store
from store.demand import read_demand
from store.reopened import read_reopened

T0 = datetime(2026, 11, 1, tzinfo=UTC)
SPAN = timedelta(days=2, minutes=2)

SQL = """\
sources:
  - name: gateway
    kind: sql
    query: SELECT * FROM read_parquet('rows.parquet') WHERE time >= $start AND time < $end
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}
    classes: {chat: chat, agent: agent}
    chunk: 12h
    history: 2d
pools:
  pool:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 5000, decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [pool]}
  agent: {pools: [pool]}
"""


TRACE = """\
sources:
  - name: gateway
    kind: trace
    format: generic
    path: rows.parquet
    columns: {time: time, class: class, tokens_in: tokens_in, tokens_out: tokens_out}
    classes: {chat: chat, agent: agent}
"""


@pytest.fixture(scope="session")
def requests() -> pl.DataFrame:
    """Two days and two minutes of two classes, a request of each about every half minute."""
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.uniform(0, SPAN.total_seconds() - 1, 12_000))
    return pl.DataFrame(
        {
            "time": [T0 + timedelta(seconds=float(s)) for s in seconds],
            "class": rng.choice(["chat", "agent"], seconds.size),
            "tokens_in": rng.integers(1, 5000, seconds.size),
            "tokens_out": rng.integers(1, 900, seconds.size),
        }
    )


@pytest.fixture
def gateway(tmp_path: Path, requests: pl.DataFrame) -> Project:
    """The requests by a query; nothing stored yet."""
    (tmp_path / "floorcast.yaml").write_text(SQL)
    requests.write_parquet(tmp_path / "rows.parquet")
    return load_project(tmp_path / "floorcast.yaml", environment={})


@pytest.fixture(params=["sql", "trace"])
def recorder(gateway: Project, request: pytest.FixtureRequest) -> Project:
    """The requests, by a query and as a trace: what has no row between others is idle."""
    if request.param == "trace":
        text = gateway.file.read_text()
        gateway.file.write_text(TRACE + text[text.index("pools:") :])
    return load_project(gateway.file, environment={})


@pytest.fixture(scope="session")
def stored() -> Callable[..., pl.DataFrame]:
    """`stored(project, start=..., end=...)`: its demand."""

    def read(project: Project, **span: Any) -> pl.DataFrame:
        with open_store(project.store_path) as store:
            return read_demand(store, **span)

    return read


@pytest.fixture(scope="session")
def marks() -> Callable[[Project], set[tuple[Any, ...]]]:
    """`marks(project)`: class and start of each step that was opened again."""

    def read(project: Project) -> set[tuple[Any, ...]]:
        with open_store(project.store_path) as store:
            return set(read_reopened(store).select("workload_class", "step_start").rows())

    return read
