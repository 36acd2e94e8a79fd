from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import FLOORS
from floorcast.config import Config
from floorcast.parsing import parse_config
from floorcast.types import Buffer, FloorSchedule, Reason, Rung
from pipelines.publishers.schedule import build_schedule

FIRST_STEP = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)
STEP = timedelta(minutes=5)
ISSUED_AT = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)

Steps = Sequence[tuple[int, float] | tuple[int, float, str]]
FloorsOf = Callable[[dict[str, Steps]], pl.DataFrame]
ScheduleOf = Callable[..., FloorSchedule]

CONFIG = """
pools:
  chat-70b:
    gpu: {type: H100, per_replica: 2}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
    target: {namespace: llm}
  code-8b:
    gpu: {type: L40S}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 2m}
    bounds: {min: 1, max: 6}
    shape: {step_down: 2, every: 2h, dwell: 3h}
    target: {kind: StatefulSet, name: vllm-code}
  batch.405b:
    gpu: {type: H200, per_replica: 16}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 10m}
    bounds: {min: 0, max: 3}
    scale_to_zero: {wake_up: 10m, below_tokens_per_s: 5}
    target: {namespace: batch, kind: LeaderWorkerSet}
classes:
  chat: {kind: chat, pools: [chat-70b]}
  code: {kind: code_generation, pools: [code-8b]}
  batch: {kind: batch, pools: [batch.405b]}
"""


def _reason(at: datetime, required: float) -> Reason:
    return Reason(
        binding="tokens_out",
        needed_by=at + timedelta(minutes=9),
        lead_s=570,
        quantile=0.95,
        tokens_in_per_s=1000,
        tokens_out_per_s=required * 1950,
        median_tokens_per_s=required * 1500,
        demand_tokens_per_s=required * 1950,
        required_replicas=required,
        buffers=(Buffer(name="minimum_margin", value=0.1, replicas=required * 1.1),),
    )


@pytest.fixture(scope="session")
def floors_of() -> FloorsOf:
    """Floors of steps given as (min_replicas, required_replicas[, rung]) by pool."""

    def make(pools: dict[str, Steps]) -> pl.DataFrame:
        rows = []
        for pool, steps in pools.items():
            for i, (min_replicas, required, *rung) in enumerate(steps):
                at = FIRST_STEP + i * STEP
                reason = _reason(at, required).model_dump_json()
                rows.append((pool, at, at + STEP, min_replicas, required, rung[0] if rung else "fresh", reason))
        return pl.DataFrame(rows, schema=dict(FLOORS), orient="row")

    return make


@pytest.fixture(scope="session")
def schedule_of(floors_of: FloorsOf) -> ScheduleOf:
    """The advisory schedule, issued 08:50, of steps as `floors_of` takes them."""

    def make(pools: dict[str, Steps], version: int = 42, issued_at: datetime = ISSUED_AT) -> FloorSchedule:
        return build_schedule(
            mode="advisory",
            version=version,
            issued_at=issued_at,
            valid_until=issued_at + timedelta(hours=2),
            floors=floors_of(pools),
            rungs=dict.fromkeys(pools, Rung.FRESH),
            settings={},
        )

    return make


@pytest.fixture(scope="session")
def config() -> Config:
    """Three pools: a Deployment, a StatefulSet, and a LeaderWorkerSet that may scale to zero."""
    return parse_config(CONFIG, file="floorcast.yaml", environment={})


@pytest.fixture(scope="session")
def fleet(schedule_of: ScheduleOf) -> FloorSchedule:
    """A schedule of the three pools; code-8b's floor is above its maximum, batch.405b's is 0 for a while."""
    return schedule_of(
        {
            "chat-70b": [(14, 10.92), (14, 11.5), (13, 10.0)],
            "code-8b": [(9, 7.4), (9, 7.4), (1, 0.2)],
            "batch.405b": [(0, 0.0), (2, 1.6), (2, 1.7)],
        }
    )
