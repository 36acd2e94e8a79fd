"""GuideLLM's `benchmarks.json`: all runs of a profile in one document (0.2 on).

Its distributions of rates are over instants, not over the run, so rates are taken from totals and durations. From 0.4
on the run's strategy stands in `config`, before that in `args`, and only requests of the measured time count.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pipelines.calibration.shared import Lenient, UnusableError
from scaling.calibration.sweep import LoadPoint

_PERCENTILES = {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9}


class _Distribution(Lenient):
    count: int = Field(ge=0)
    total_sum: float
    percentiles: dict[str, float]


class _ByStatus(Lenient):
    successful: _Distribution
    errored: _Distribution | None = None


class _Metrics(Lenient):
    prompt_token_count: _ByStatus
    output_token_count: _ByStatus
    request_latency: _ByStatus
    time_to_first_token_ms: _ByStatus
    inter_token_latency_ms: _ByStatus


class _Strategy(Lenient):
    rate: float | None = None
    streams: float | None = None


class _Setting(Lenient):
    strategy: _Strategy = _Strategy()


class _Scheduler(Lenient):
    measure_start_time: float = -1
    measure_end_time: float = -1


class _Benchmark(Lenient):
    config: _Setting | None = None
    args: _Setting | None = None
    scheduler_metrics: _Scheduler = _Scheduler()
    start_time: float
    end_time: float
    metrics: _Metrics


class _Report(Lenient):
    benchmarks: list[_Benchmark]


def recognised(document: dict[str, Any]) -> bool:
    return isinstance(document.get("benchmarks"), list)


def points(document: dict[str, Any], source: str) -> list[LoadPoint]:
    report = _Report.model_validate(document)
    if not report.benchmarks:
        raise UnusableError("holds no benchmark", "run it to the end")
    return [_point(one, f"{source}, benchmark {place}") for place, one in enumerate(report.benchmarks, start=1)]


def _point(one: _Benchmark, source: str) -> LoadPoint:
    metrics, strategy = one.metrics, (one.config or one.args or _Setting()).strategy
    measured = one.scheduler_metrics.measure_end_time - one.scheduler_metrics.measure_start_time
    duration_s = measured if measured > 0 else one.end_time - one.start_time
    if duration_s <= 0:
        raise UnusableError("a benchmark ends when it begins", "run it anew")
    errored = metrics.request_latency.errored
    return LoadPoint(
        source=source,
        offered_per_s=strategy.rate,
        concurrency=strategy.streams,
        requests=metrics.request_latency.successful.count,
        failed=errored.count if errored else 0,
        duration_s=duration_s,
        tokens_in=metrics.prompt_token_count.successful.total_sum,
        tokens_out=metrics.output_token_count.successful.total_sum,
        latencies={
            "ttft": _latency(metrics.time_to_first_token_ms, 1000),
            "itl": _latency(metrics.inter_token_latency_ms, 1000),
            "e2e": _latency(metrics.request_latency, 1),
        },
    )


def _latency(found: _ByStatus, per_s: float) -> dict[float, float]:
    return {
        _PERCENTILES[key]: value / per_s for key, value in found.successful.percentiles.items() if key in _PERCENTILES
    }
