"""Boards made by hand over a schedule that was really planned, and a real server that serves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

from floorcast.columns import DEMAND, FORECASTS, QUANTILE_COLUMNS, Metric, conform, empty
from floorcast.config import Config
from floorcast.parsing import parse_config
from floorcast.pool import Pool
from floorcast.service import Service
from floorcast.types import FloorSchedule
from pipelines.publishers.outcome import Outcome
from pipelines.publishers.schedule import build_schedule, floor_due
from pipelines.service.api import create_app
from pipelines.service.board import Board, PoolDecision, Publication, SourceHealth, TickTimes
from pipelines.service.web import WebServer
from scaling.floors import plan

ISSUED_AT = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
NOW = ISSUED_AT + timedelta(minutes=6)
STEP = timedelta(minutes=5)
CONFIG = """
horizon: 4h
pools:
  chat-70b:
    gpu: {type: H100, per_replica: 2}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  code-8b:
    gpu: {type: L40S}
    capacity: {prefill_tokens_per_s: 9000, decode_tokens_per_s: 3000}
    startup: {p90: 2m}
    bounds: {min: 1, max: 6}
  batch.405b:
    gpu: {type: H200, per_replica: 16}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 10m}
    bounds: {min: 1, max: 3}
classes:
  chat: {kind: chat, pools: [chat-70b]}
  code: {kind: code_generation, pools: [code-8b]}
  batch: {kind: batch, pools: [batch.405b]}
"""
TOKENS_OUT_PER_S = {"chat": 18_000.0, "code": 20_000.0, "batch": 900.0}


@pytest.fixture(scope="session")
def config() -> Config:
    return parse_config(CONFIG, file="floorcast.yaml", environment={})


@pytest.fixture(scope="session")
def schedule(config: Config) -> FloorSchedule:
    """Version 42, issued 08:50 for four hours, valid until 10:50. code-8b wants more than its maximum."""
    steps = config.horizon_steps + max(map(config.lead_steps, config.pools))
    shape = 1 + 0.2 * np.sin(2 * np.pi * np.arange(steps) / 60)
    frames = [
        pl.DataFrame(
            shape[:, None] * out * share * np.linspace(0.8, 1.3, len(QUANTILE_COLUMNS)), list(QUANTILE_COLUMNS)
        ).with_columns(
            workload_class=pl.lit(name),
            metric=pl.lit(str(metric)),
            cutoff=pl.lit(ISSUED_AT),
            step_start=pl.Series([ISSUED_AT + i * STEP for i in range(steps)]),
            model=pl.lit("seasonal"),
        )
        for name, out in TOKENS_OUT_PER_S.items()
        for metric, share in ((Metric.TOKENS_IN, 1.5), (Metric.TOKENS_OUT, 1.0))
    ]
    forecasts = conform(pl.concat(frames), FORECASTS)
    planned = plan(config, now=ISSUED_AT, forecasts=forecasts, history=empty(DEMAND), published=None)
    return build_schedule(
        mode="advisory",
        version=42,
        issued_at=ISSUED_AT,
        valid_until=ISSUED_AT + timedelta(hours=2),
        floors=planned.floors,
        rungs=planned.rungs,
        settings={name: pool.settings for name, pool in config.pools.items()},
    )


def decision(pool: str, schedule: FloorSchedule | None, **changed: Any) -> PoolDecision:
    """What is wanted of a pool two above its floor, with most of the signals there."""
    window = floor_due(schedule, pool, NOW) if schedule else None
    floor = window.min_replicas if window else 2
    made = PoolDecision(
        pool=pool,
        decided_at=NOW,
        desired=floor + 2,
        floor=floor,
        floor_source="schedule" if window else "missing",
        ceiling=40,
        current=floor + 1,
        ready=floor,
        starting=1,
        draining=None,
        alert=False,
        lost=("kv_cache_usage",),
        triggers=({"name": "tokens", "value": 0.91, "target": 0.8, "replicas": floor + 2.0, "vote": "out"},),
        rules=({"rule": "floor", "before": 1, "after": floor},),
        words=f"{floor + 2} replicas, {floor + 1} until now\n  tokens: 0.91 of 0.8",
        window=window,
    )
    return replace(made, **changed)


@pytest.fixture(scope="session")
def board(schedule: FloorSchedule) -> Board:
    """The third tick, all well but for one publisher."""
    return Board(
        now=NOW,
        started_at=NOW - timedelta(minutes=1),
        ticks=3,
        tick_seconds=0.04,
        publication=Publication(schedule),
        decisions={pool: decision(pool, schedule) for pool in schedule.pools},
        sources=(SourceHealth("prod", NOW, None, 0.12), SourceHealth("edge", None, "refused the connection", 2.0)),
        outcomes=(
            Outcome(publisher="kubernetes", pool="chat-70b", at=NOW, did="applied", before=12, after=14),
            Outcome(publisher="kubernetes", pool="code-8b", at=NOW, did="failed", note="403: may not patch"),
        ),
        tick_times=TickTimes().plus(0.02).plus(0.03).plus(0.04),
    )


@pytest.fixture(scope="session")
def decided() -> Callable[..., PoolDecision]:
    return decision


@dataclass
class Served:
    """A server that runs, and what it serves, which may be replaced."""

    board: Board
    web: WebServer
    site: Path
    token: str | None = None

    @property
    def port(self) -> int:
        return int(self.web.address.rpartition(":")[2])

    def get(self, path: str, *, method: str = "GET", **headers: str) -> httpx.Response:
        """One request, names of headers with underscores."""
        return self.client.request(method, path, headers={key.replace("_", "-"): text for key, text in headers.items()})

    def __post_init__(self) -> None:
        # Without gzip unless asked for.
        headers = {"accept-encoding": "identity"}
        self.client = httpx.Client(base_url=self.web.address, headers=headers, trust_env=False, verify=False)


ServingOf = Callable[..., Any]


@pytest.fixture(scope="session")
def serving() -> ServingOf:
    @contextmanager
    def run(
        board: Board, site: Path, *, token: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Iterator[Served]:
        chosen = Service.model_validate({"port": 0} | dict(settings or {}))
        served: list[Served] = []
        app = create_app(lambda: served[0].board, chosen, site=site, token=lambda: served[0].token if served else token)
        served.append(Served(board, WebServer(app, chosen), site, token))
        web = served[0].web
        web.start()
        try:
            yield served[0]
        finally:
            served[0].client.close()
            assert web.stop(within_s=10)

    return run


@pytest.fixture(scope="session")
def running(serving: ServingOf, board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    site = tmp_path_factory.mktemp("published") / "site"
    (site / "assets").mkdir(parents=True)
    (site / "index.html").write_text("<!doctype html><title>Overview</title>")
    (site / "assets" / "site.css").write_text("body { margin: 0 }")
    with serving(board, site) as made:
        yield made


@pytest.fixture
def served(running: Served, board: Board) -> Served:
    """The board over HTTP, at a free port, with a site of one page."""
    running.board = board
    return running


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], bool]], None]:
    def wait(true: Callable[[], bool]) -> None:
        """Until it is, for half a minute at most."""
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait


@pytest.fixture
def pool(config: Config) -> Pool:
    return config.pools["chat-70b"]
