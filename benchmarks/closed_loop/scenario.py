"""What is run: three pools, their demand minute by minute, and the configurations made of them.

Planning happens in simulated time, at the durations that the configuration gives. The fleet, Prometheus and the service
live faster: every duration is divided by the speed and every rate multiplied by it, and the clock is the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from pydantic import BaseModel

from floorcast.pool import Pool
from floorcast.units import format_duration
from scaling.capacity import Floats
from scaling.replay.traffic import Stream, Traffic, from_minutes

START = datetime(2026, 11, 16, 7, tzinfo=UTC)
"""A Monday morning on the rise, in simulated time."""
HISTORY = timedelta(days=14)
STEP_S = 5.0
"""Simulated seconds in which the fleet advances."""
TICK, SCRAPE = timedelta(seconds=15), timedelta(seconds=30)
INTERVAL, VALID_FOR = timedelta(minutes=5), timedelta(minutes=30)
MINUTES = 215
CALMER = 0.3
"""By so much the pace of the service is slower than the speed would make it."""
EXPECTED = ("launch", "chat", 80, 120, 1.6)
UNEXPECTED = (("rush", "code", 54, 70, 2.6), ("second rush", "chat", 168, 184, 1.8))
"""What comes on top: name, class, from and to which minute of the run, and factor. The first is in the configuration as
an event; nobody knows of the others."""


@dataclass(frozen=True)
class Workload:
    """A pool and the one class that it serves. Loads are in replicas at full capacity."""

    pool: str
    workload_class: str
    kind: str
    night: float
    day: float
    tokens_in: float
    tokens_out: float
    capacity_in: float
    capacity_out: float
    startup_p50_s: float
    startup_p90_s: float
    most: int
    max_wait_s: float
    hourly: float = 0.0
    """Load on top for the first ten minutes of each hour."""


WORKLOADS = (
    Workload("chat-70b", "chat", "chat", 3.0, 13.0, 1200, 350, 16_000, 3_200, 360, 600, 40, 10),
    Workload("code-32b", "code", "code_generation", 2.0, 8.0, 2400, 300, 24_000, 3_600, 180, 300, 30, 10),
    Workload("batch-8b", "batch", "batch", 3.0, 1.0, 3000, 200, 40_000, 5_000, 90, 150, 16, 120, 2.0),
)


def load(workload: Workload, minutes: int, *, since: int) -> Floats:
    """[minutes] replicas at full capacity that arrivals take, from minute `since` of the run on (negative: before it).

    A daily rise and fall, minutes that differ by 6 % and wander by as much, and within the run what comes on top.
    """
    minute = np.arange(since, since + minutes)
    clock = (START.hour * 60 + minute) % 1440
    daily = 0.5 * (1 - np.cos(2 * np.pi * (clock - 180) / 1440)) ** 1.3
    rng = np.random.default_rng([len(workload.pool), 11, since + int(HISTORY.total_seconds())])
    # By minute, so that more minutes begin with the same.
    noise, walk = rng.normal(0, 0.06, (minutes, 2)).T
    wander = np.array(pl.Series(walk).ewm_mean(half_life=30)) * 4
    level = workload.night + (workload.day - workload.night) * daily
    level = (level + workload.hourly * (minute % 60 < 10)) * np.exp(noise + wander)
    for _, workload_class, begin, end, factor in (EXPECTED, *UNEXPECTED):
        if workload_class == workload.workload_class:
            level = np.where((minute >= begin) & (minute < end), level * factor, level)
    return np.asarray(level, dtype=np.float64)


def requests(workload: Workload, load_replicas: Floats) -> Floats:
    """[minutes] requests that make that load: the more pressing of prefill and decode is `load_replicas`."""
    each = max(workload.tokens_in / workload.capacity_in, workload.tokens_out / workload.capacity_out)
    return load_replicas * 60 / each


def traffic(workload: Workload, minutes: int) -> Traffic:
    """What arrives at the pool during the run, in steps of STEP_S."""
    count = requests(workload, load(workload, minutes, since=0))
    stream: Stream = from_minutes(
        count * workload.tokens_in,
        count * workload.tokens_out,
        count,
        name=workload.workload_class,
        step_s=STEP_S,
        max_wait_s=workload.max_wait_s,
    )
    return Traffic(START, STEP_S, (stream,))


def history(minutes: int) -> pl.DataFrame:
    """What a gateway logged of all classes from two weeks before the run to its end, by minute."""
    frames = []
    before = int(HISTORY.total_seconds() // 60)
    times = pl.datetime_range(
        START - HISTORY, interval="1m", end=START + timedelta(minutes=minutes - 1), time_zone="UTC", eager=True
    )
    for workload in WORKLOADS:
        past, run = load(workload, before, since=-before), load(workload, minutes, since=0)
        count = requests(workload, np.concatenate([past, run]))
        frames.append(
            pl.DataFrame(
                {
                    "time": times,
                    "class": [workload.workload_class] * len(times),
                    "tokens_in": (count * workload.tokens_in).round(),
                    "tokens_out": (count * workload.tokens_out).round(),
                    "requests": count.round(),
                }
            )
        )
    return pl.concat(frames).sort("time", "class")


def pool_document(workload: Workload) -> dict[str, Any]:
    """The pool as a user writes it, in simulated time."""
    return {
        "gpu": {"type": "H100", "per_replica": 1, "usd_per_gpu_hour": 3.99},
        "capacity": {
            "prefill_tokens_per_s": workload.capacity_in,
            "decode_tokens_per_s": workload.capacity_out,
            "target_utilization": 0.75,
        },
        "startup": {"p90": f"{workload.startup_p90_s:g}s"},
        "bounds": {"min": 1, "max": workload.most},
        "shape": {"step_down": 1, "every": "5m", "dwell": "10m"},
        "slo": {"max_wait": f"{workload.max_wait_s:g}s"},
        "overlay": {
            "scale_out": {"per_minute": 2, "share_per_minute": 0},
            "scale_in": {"per_minute": 1, "share_per_minute": 0},
        },
        "target": {"namespace": "llm"},
    }


def pools() -> dict[str, Pool]:
    return {one.pool: Pool.model_validate(pool_document(one)) for one in WORKLOADS}


def faster(value: Any, speed: float) -> Any:
    """A section of the configuration as a document, with every duration divided by the speed."""
    if isinstance(value, timedelta):
        return format_duration(value / speed)
    if isinstance(value, BaseModel | Mapping):
        return {key: faster(one, speed) for key, one in dict(value).items()}
    return [faster(one, speed) for one in value] if isinstance(value, tuple | list) else value


def faster_pool(pool: Pool, speed: float) -> dict[str, Any]:
    """The pool as one that lives so many times as fast."""
    made: dict[str, Any] = faster(pool, speed)
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s"):
        made["capacity"][key] *= speed
    for direction in ("scale_out", "scale_in"):
        pace = made["overlay"][direction]
        # Of a real minute, which holds many simulated ones; fewer than that, so that so short a run meets the limit.
        pace["per_minute"] = max(round(pace["per_minute"] * speed * CALMER), 1)
    return made


def classes_document(*, match: bool) -> dict[str, Any]:
    made: dict[str, Any] = {one.workload_class: {"kind": one.kind, "pools": [one.pool]} for one in WORKLOADS}
    if match:
        for one in WORKLOADS:
            made[one.workload_class]["match"] = {"model_name": one.pool}
    return made


def planning_config() -> str:
    """What floors are planned with: the gateway's log, in simulated time."""
    name, workload_class, begin, end, factor = EXPECTED
    event = {"name": name, "classes": [workload_class], "multiply": factor}
    event |= {key: (START + timedelta(minutes=at)).isoformat() for key, at in (("start", begin), ("end", end))}
    columns = {key: key for key in ("time", "class", "tokens_in", "tokens_out", "requests")}
    gateway: dict[str, Any] = {"name": "gateway", "kind": "trace", "format": "generic", "path": "trace.parquet"}
    gateway |= {"row_interval": "1m", "max_tokens": 1_000_000_000, "columns": columns}
    return _yaml(
        {
            "step": "5m",
            "horizon": "6h",
            "publication": faster({"interval": INTERVAL, "valid_for": VALID_FOR}, 1),
            "sources": [gateway],
            "pools": {one.pool: pool_document(one) for one in WORKLOADS},
            "classes": classes_document(match=False),
            "events": [event],
        }
    )


def service_config(*, speed: float, prometheus_url: str, port: int, output: Path, state: Path) -> str:
    """What the service runs with: live signals from Prometheus, at the fleet's speed."""
    source = {"name": "live", "kind": "prometheus", "url": prometheus_url, "preset": "vllm"}
    source |= {"scrape_interval": format_duration(SCRAPE / speed)}
    return _yaml(
        {
            # What the fleet obeys is applied.
            "mode": "apply",
            "step": "1m",
            "horizon": "1h",
            "output": {"dir": str(output)},
            "publication": faster({"interval": INTERVAL, "valid_for": VALID_FOR}, speed),
            "sources": [source],
            "pools": {name: faster_pool(pool, speed) for name, pool in pools().items()},
            "classes": classes_document(match=True),
            "service": {"port": port, "tick": format_duration(TICK / speed), "state_dir": str(state)},
        }
    )


def _yaml(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text
