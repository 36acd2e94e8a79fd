"""A pool whose replica serves one token a second of either kind, and exact queues to compare with."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from floorcast.pool import Pool
from scaling.replay.conditions import NO_KNEE, Conditions
from scaling.replay.traffic import Stream, Traffic

START = datetime(2026, 11, 1, tzinfo=UTC)


def _pool(**changed: Any) -> Pool:
    spec = {
        "gpu": {"type": "H100", "per_replica": 2, "usd_per_gpu_hour": 3},
        "capacity": {"prefill_tokens_per_s": 1, "decode_tokens_per_s": 1, "target_utilization": 1},
        "startup": {"p90": "1m"},
        "bounds": {"min": 0, "max": 1000},
    }
    spec |= changed
    if spec["bounds"]["min"] == 0:
        spec["scale_to_zero"] = {"wake_up": "1m", "below_tokens_per_s": 0.1}
    return Pool.model_validate(spec)


def _stream(
    tokens: npt.ArrayLike, *, requests: npt.ArrayLike | None = None, name: str = "chat", **limits: float
) -> Stream:
    """So many tokens in, and as many out, in each step: replica-seconds of work at that pool."""
    each = np.asarray(tokens, dtype=np.float64)
    count = each if requests is None else np.asarray(requests, dtype=np.float64)
    return Stream(name, each, each, count, **{"max_wait_s": 10.0, "timeout_s": inf} | limits)


def _traffic(*streams: Stream, step_s: float = 10.0) -> Traffic:
    return Traffic(START, step_s, streams)


def _conditions(**changed: Any) -> Conditions:
    """No knee, no delay of metrics, startups of one minute."""
    return Conditions(
        **{"startup_s": np.array([60.0]), "knee": NO_KNEE, "metric_age_s": (0.0, 0.0), "tick_s": 10.0} | changed
    )


def _exact_waits(arrival_s: npt.ArrayLike, service_s: npt.ArrayLike, servers: int) -> npt.NDArray[np.float64]:
    """Wait of every request before so many servers, first come, first served; request by request."""
    free = [0.0] * servers
    waits = []
    for arrival, service in zip(np.asarray(arrival_s).tolist(), np.asarray(service_s).tolist(), strict=True):
        begun = max(arrival, heapq.heappop(free))
        heapq.heappush(free, begun + service)
        waits.append(begun - arrival)
    return np.array(waits)


def _erlang_c(servers: int, load: float) -> float:
    """Probability that a request must wait in M/M/c at an offered load of `load` servers."""
    below = sum(load**k / np.prod(np.arange(1.0, k + 1)) for k in range(servers))
    full = load**servers / np.prod(np.arange(1.0, servers + 1)) / (1 - load / servers)
    return float(full / (below + full))


def _deterministic_wait(servers: int, load: float) -> float:
    """Mean wait in M/D/c in service times (Crommelin 1932): sum over i of P(N_i >= ic) - c/A P(N_i >= ic + 1), with
    N_i Poisson of mean iA and A the offered load."""
    i = np.arange(1, 4000)
    many, more = stats.poisson.sf(i * servers - 1, i * load), stats.poisson.sf(i * servers, i * load)
    return float((many - servers / load * more).sum())


@pytest.fixture(scope="session")
def make_pool() -> Callable[..., Pool]:
    return _pool


@pytest.fixture(scope="session")
def make_stream() -> Callable[..., Stream]:
    return _stream


@pytest.fixture(scope="session")
def make_traffic() -> Callable[..., Traffic]:
    return _traffic


@pytest.fixture(scope="session")
def make_conditions() -> Callable[..., Conditions]:
    return _conditions


@pytest.fixture(scope="session")
def exact_waits() -> Callable[..., npt.NDArray[np.float64]]:
    return _exact_waits


@pytest.fixture(scope="session")
def erlang_c() -> Callable[[int, float], float]:
    return _erlang_c


@pytest.fixture(scope="session")
def deterministic_wait() -> Callable[[int, float], float]:
    return _deterministic_wait
