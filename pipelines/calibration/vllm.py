"""vLLM's serving benchmark: `vllm bench serve --save-result`, and `benchmark_serving.py` before it.

One JSON object a run; `--append-result` writes one after another, a sweep's summary lists them. Up to 0.10 it had no
`failed`, and no end-to-end latency unless asked for.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ConfigDict, Field

from pipelines.calibration.shared import Lenient, UnusableError
from scaling.calibration.sweep import Latency, LoadPoint

_PERCENTILE = re.compile(r"(median|p\d+(?:\.\d+)?)_(ttft|itl|tpot|e2el)_ms")


class _Run(Lenient):
    model_config = ConfigDict(extra="allow")

    duration: float = Field(gt=0)
    completed: int = Field(ge=0)
    failed: int | None = Field(default=None, ge=0)
    num_prompts: int | None = Field(default=None, ge=0)
    total_input_tokens: float = Field(ge=0)
    total_output_tokens: float = Field(ge=0)
    request_rate: float | None = None
    max_concurrency: float | None = None


def recognised(document: dict[str, Any]) -> bool:
    return "total_input_tokens" in document and "duration" in document


def points(document: dict[str, Any], source: str) -> list[LoadPoint]:
    if "total_output_tokens" not in document:
        raise UnusableError("is a benchmark of embeddings, which generate no tokens", "benchmark generation")
    if document.get("ramp_up_strategy"):
        raise UnusableError("ramps its rate up, so it has no one load", "run each rate on its own, without ramp-up")
    run = _Run.model_validate(document)
    failed = run.failed
    if failed is None:
        if run.num_prompts is None:
            raise UnusableError("tells neither `failed` nor `num_prompts`, so failures are not known", "run it anew")
        failed = max(run.num_prompts - run.completed, 0)
    return [
        LoadPoint(
            source=source,
            offered_per_s=run.request_rate,
            concurrency=run.max_concurrency,
            requests=run.completed,
            failed=failed,
            duration_s=run.duration,
            tokens_in=run.total_input_tokens,
            tokens_out=run.total_output_tokens,
            latencies=_latencies(run.model_extra or {}),
        )
    ]


def _latencies(values: dict[str, Any]) -> dict[Latency, dict[float, float]]:
    by_metric: dict[str, dict[float, float]] = {}
    for key, value in values.items():
        found = _PERCENTILE.fullmatch(key)
        if found and isinstance(value, int | float):
            percentile = 50.0 if found[1] == "median" else float(found[1][1:])
            by_metric.setdefault(found[2], {})[percentile] = value / 1000
    # Where gaps between tokens were not recorded, their mean by request stands for them.
    between = by_metric.get("itl") or by_metric.get("tpot", {})
    return {"ttft": by_metric.get("ttft", {}), "itl": between, "e2e": by_metric.get("e2el", {})}
