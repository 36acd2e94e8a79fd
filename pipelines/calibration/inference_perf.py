"""inference-perf's reports of single stages, `stage_N_lifecycle_metrics.json`. Times are seconds.

Prompt tokens that the server says it took from its prefix cache cost no prefill, and are left out (from 0.6 on).
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from pipelines.calibration.shared import Lenient, UnusableError
from scaling.calibration.sweep import Latency, LoadPoint

_TAGS: dict[Latency, str] = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "e2e": "request_latency"}


class _Load(Lenient):
    requested_rate: float | None = None
    concurrency: float | None = None


class _Throughput(Lenient):
    input_tokens_per_sec: float = Field(ge=0)
    output_tokens_per_sec: float = Field(ge=0)
    requests_per_sec: float = Field(ge=0)


class _Prompts(Lenient):
    total: float = 0
    cached: float = 0


class _Successes(Lenient):
    count: int = Field(ge=0)
    latency: dict[str, dict[str, float] | None]
    throughput: _Throughput
    prompt_tokens: _Prompts = _Prompts()


class _Failures(Lenient):
    count: int = Field(ge=0)


class _Stage(Lenient):
    load_summary: _Load
    successes: _Successes
    failures: _Failures


def recognised(document: dict[str, Any]) -> bool:
    return "load_summary" in document and "successes" in document


def points(document: dict[str, Any], source: str) -> list[LoadPoint]:
    stage = _Stage.model_validate(document)
    if stage.load_summary.requested_rate is None:
        raise UnusableError("is the summary of all stages, which has no one load", "name the reports of the stages")
    done, throughput = stage.successes, stage.successes.throughput
    if not done.count or not throughput.requests_per_sec:
        raise UnusableError("no request of it succeeded", "leave it out, or measure at a lower rate")
    duration_s = done.count / throughput.requests_per_sec
    cached = done.prompt_tokens.cached / done.prompt_tokens.total if done.prompt_tokens.total else 0
    closed = stage.load_summary.concurrency is not None
    return [
        LoadPoint(
            source=source,
            offered_per_s=None if closed else stage.load_summary.requested_rate,
            concurrency=stage.load_summary.concurrency,
            requests=done.count,
            failed=stage.failures.count,
            duration_s=duration_s,
            tokens_in=throughput.input_tokens_per_sec * (1 - cached) * duration_s,
            tokens_out=throughput.output_tokens_per_sec * duration_s,
            latencies={kind: _latency(done.latency.get(tag)) for kind, tag in _TAGS.items()},
        )
    ]


def _latency(found: dict[str, float] | None) -> dict[float, float]:
    named = {"p50" if name == "median" else name: value for name, value in (found or {}).items()}
    return {float(name[1:]): value for name, value in named.items() if re.fullmatch(r"p\d+(\.\d+)?", name)}
