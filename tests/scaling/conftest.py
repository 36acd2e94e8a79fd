"""Small fleets, forecasts and histories for the tests of scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from floorcast.columns import DEMAND, FORECASTS, QUANTILE_COLUMNS, QUANTILE_LEVELS, conform, empty
from floorcast.config import Config
from floorcast.types import FloorSchedule, FloorWindow, PoolSchedule, Reason
from scaling.floors import plan
from scaling.recompute import recompute

NOW = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
STEP = timedelta(minutes=5)


PARTNERS = {"prefill": "decode", "decode": "prefill"}


def _config(
    *,
    classes: dict[str, str] | None = None,
    pools: dict[str, Any] | None = None,
    waits: dict[str, str] | None = None,
    **pool: Any,
) -> Config:
    """One pool, `main`, of 10-tokens replicas and no margins unless `pool` says otherwise; horizon one hour.

    A prefill or decode pool has a `partner` like it. `waits` gives classes a max_wait of their own.
    """
    spec = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 10, "decode_tokens_per_s": 10, "target_utilization": 1},
        "startup": {"p90": "4m30s", "apply_delay": "30s"},
        "bounds": {"min": 1, "max": 100},
        "margin": {"quantile": 0.95, "minimum": 0},
        "shape": {"step_down": 100, "every": "5m", "dwell": "0s", "hysteresis": 0},
    }
    spec |= pool
    partner = {"partner": spec | {"role": PARTNERS[pool["role"]]}} if pool.get("role", "unified") != "unified" else {}
    return Config.model_validate(
        {
            "horizon": "1h",
            "pools": pools or {"main": spec, **partner},
            "classes": {
                name: {"pools": [at, *partner]} | ({"slo": {"max_wait": waits[name]}} if name in (waits or {}) else {})
                for name, at in (classes or {"chat": "main"}).items()
            },
        }
    )


def _forecasts(
    rates: dict[str, list[float | None]],
    *,
    cutoff: datetime = NOW,
    start: datetime = NOW,
    spread: float = 0.0,
    model: str = "ets",
    metrics: tuple[str, ...] = ("tokens_in", "tokens_out"),
) -> pl.DataFrame:
    """Median `rates` by class, one a step from `start` (None: no row); q = median + spread * (level - 0.5)."""
    rows = [
        {"workload_class": name, "metric": metric, "cutoff": cutoff, "step_start": start + i * STEP, "model": model}
        | {
            column: max(rate + spread * (level - 0.5), 0.0)
            for column, level in zip(QUANTILE_COLUMNS, QUANTILE_LEVELS, strict=True)
        }
        for name, series in rates.items()
        for metric in metrics
        for i, rate in enumerate(series)
        if rate is not None
    ]
    return conform(pl.DataFrame(rows, schema=dict(FORECASTS)), FORECASTS)


def _history(rates: dict[str, dict[datetime, float]], *, observed: float = 1.0) -> pl.DataFrame:
    """DEMAND rows at these tokens per second, in and out alike."""
    seconds = STEP.total_seconds() * observed
    rows = [
        {"workload_class": name, "step_start": at, "tokens_in": rate * seconds, "tokens_out": rate * seconds}
        | {"requests": 1.0, "peak_tokens_in_per_s": rate, "peak_tokens_out_per_s": rate}
        | {"observed_fraction": observed, "source": "test"}
        for name, series in rates.items()
        for at, rate in series.items()
    ]
    return conform(pl.DataFrame(rows, schema=dict(DEMAND)), DEMAND)


def _schedule(floors: list[int], *, start: datetime, pool: str = "main", step: timedelta = STEP) -> FloorSchedule:
    """A publication of these floors, one a step from `start`."""
    reason = Reason(
        binding="fallback_replicas",
        needed_by=start,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=0,
        tokens_out_per_s=0,
        median_tokens_per_s=0,
        demand_tokens_per_s=0,
        required_replicas=0,
    )
    windows = tuple(
        FloorWindow(start=start + i * step, end=start + (i + 1) * step, min_replicas=floor, reason=reason)
        for i, floor in enumerate(floors)
    )
    return FloorSchedule(
        version=1,
        mode="advisory",
        issued_at=start,
        valid_until=start + timedelta(hours=2),
        content_hash="sha256:" + "0" * 64,
        pools={pool: PoolSchedule(gate="untested", rung="fresh", windows=windows)},
    )


def _floors(
    config: Config, forecasts: pl.DataFrame, published: FloorSchedule | None = None
) -> tuple[dict[str, list[int]], dict[str, Reason]]:
    """Floors by pool as planned without a history, and each pool's first reason; all of them recompute."""
    made = plan(config, now=NOW, forecasts=forecasts, history=empty(DEMAND), published=published).floors
    floors, reasons = {}, {}
    for name, pool in config.pools.items():
        rows = made.filter(pool=name)
        floors[name] = rows["min_replicas"].to_list()
        explained = [Reason.model_validate_json(text) for text in rows["reason"]]
        assert [recompute(reason, pool.settings) for reason in explained] == floors[name]
        reasons[name] = explained[0]
    return floors, reasons


@pytest.fixture(scope="session")
def now() -> datetime:
    return NOW


@pytest.fixture(scope="session")
def make_config() -> Callable[..., Config]:
    return _config


@pytest.fixture(scope="session")
def make_forecasts() -> Callable[..., pl.DataFrame]:
    return _forecasts


@pytest.fixture(scope="session")
def make_history() -> Callable[..., pl.DataFrame]:
    return _history


@pytest.fixture(scope="session")
def idle_before() -> Callable[[Iterable[str]], pl.DataFrame]:
    """`idle_before(names)`: a history in which nothing came for a while before now, so that nothing waits."""
    return lambda names: _history({name: {NOW - (1 + i) * STEP: 0.0 for i in range(40)} for name in names})


@pytest.fixture(scope="session")
def make_schedule() -> Callable[..., FloorSchedule]:
    return _schedule


@pytest.fixture(scope="session")
def floors_of() -> Callable[..., tuple[dict[str, list[int]], dict[str, Reason]]]:
    return _floors
