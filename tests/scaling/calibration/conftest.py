"""Runs of load tests whose capacity is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaling.calibration.sweep import LoadPoint


@pytest.fixture
def run() -> Callable[..., LoadPoint]:
    """`run(rate, ttft, ...)`: 1,000 s at `rate` requests per s of 1,000 + 200 tokens, p99 of the first token `ttft`."""

    def make(rate: float, ttft: float, *, tokens=(1000, 200), offered=None, failed=0, **more: object) -> LoadPoint:
        requests = round(rate * 1000)
        given = {
            "source": f"run at {rate:g}",
            "offered_per_s": rate if offered is None else offered,
            "requests": requests,
            "failed": failed,
            "duration_s": 1000.0,
            "tokens_in": requests * float(tokens[0]),
            "tokens_out": requests * float(tokens[1]),
            "latencies": {"ttft": {50.0: ttft / 2, 99.0: ttft}},
        }
        return LoadPoint(**{**given, **more})

    return make
