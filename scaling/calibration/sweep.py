"""The runs of a load test, and whether each met the latency targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from floorcast.errors import DataError

Latency = Literal["ttft", "itl", "e2e"]
LATENCIES: Mapping[Latency, str] = {
    "ttft": "time to first token",
    "itl": "time between tokens",
    "e2e": "time of a whole request",
}

_ALIKE = math.log(1.5)
"""Runs whose mean prompts and answers differ by no more than half send the same mix: recorded ones vary that much."""


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """One run at one load. Tokens are those of the requests that completed, in all; times are in seconds.

    `latencies` holds for each kind the values by percentile, as far as they were recorded. `offered_per_s` is infinite
    where requests were sent as fast as possible, None where only `concurrency` limits them.
    """

    source: str
    offered_per_s: float | None = None
    concurrency: float | None = None
    requests: int
    failed: int
    duration_s: float
    tokens_in: float
    tokens_out: float
    latencies: Mapping[Latency, Mapping[float, float]] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.duration_s

    @property
    def tokens_in_per_s(self) -> float:
        return self.tokens_in / self.duration_s

    @property
    def tokens_out_per_s(self) -> float:
        return self.tokens_out / self.duration_s

    @property
    def failed_share(self) -> float:
        return self.failed / (self.requests + self.failed)

    @property
    def mix(self) -> tuple[float, float]:
        """Mean tokens in and out of a request."""
        return self.tokens_in / self.requests, self.tokens_out / self.requests


@dataclass(frozen=True)
class Targets:
    """Seconds that `percentile` percent of requests must not pass."""

    percentile: float
    seconds: Mapping[Latency, float]


@dataclass(frozen=True)
class Judged:
    """A run against the targets. `strain` is the largest of latency over target, and infinite where more requests
    failed than may be late: the targets are met up to 1. `binding` names that target. `measured` holds the latencies
    judged, in seconds, and `percentiles` those they were recorded at."""

    point: LoadPoint
    strain: float
    binding: Latency | Literal["failed"]
    measured: Mapping[Latency, float]
    percentiles: Mapping[Latency, float]

    @property
    def met(self) -> bool:
        return self.strain <= 1


def judge(point: LoadPoint, targets: Targets) -> Judged:
    """The smallest recorded percentile that is not below the targets' is judged, so that none passes by leniency.

    Raises DataError where no such percentile of a target's latency was recorded.
    """
    measured: dict[Latency, float] = {}
    percentiles: dict[Latency, float] = {}
    for kind in targets.seconds:
        recorded = point.latencies.get(kind, {})
        at = min((p for p in recorded if p >= targets.percentile), default=None)
        if at is None:
            known = ", ".join(f"p{p:g}" for p in sorted(recorded)) or "none"
            raise DataError(
                f"the {LATENCIES[kind]} is not recorded at p{targets.percentile:g} or above (recorded: {known})",
                where=point.source,
                remedy="lower --percentile, leave that target out, or record it: vLLM does with --percentile-metrics "
                "ttft,tpot,itl,e2el --metric-percentiles 50,95,99; answers must be streamed",
            )
        measured[kind], percentiles[kind] = recorded[at], at
    if point.failed_share > 1 - targets.percentile / 100 + 1e-9:
        return Judged(point, math.inf, "failed", measured, percentiles)
    strains = {kind: measured[kind] / limit for kind, limit in targets.seconds.items()}
    binding = max(strains, key=lambda kind: strains[kind])
    return Judged(point, strains[binding], binding, measured, percentiles)


def by_mix(points: Sequence[LoadPoint]) -> list[list[LoadPoint]]:
    """The sweeps among the runs: those of the same mix, each in order of its load."""
    sweeps: list[list[LoadPoint]] = []
    for point in sorted(points, key=lambda one: (one.mix, one.source)):
        sweep = next((sweep for sweep in sweeps if _alike(sweep[0].mix, point.mix)), None)
        if sweep is None:
            sweeps.append([point])
        else:
            sweep.append(point)
    return [_by_load(sweep) for sweep in sweeps]


def _alike(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(abs(math.log(max(a, 1) / max(b, 1))) <= _ALIKE for a, b in zip(one, other, strict=True))


def _by_load(sweep: list[LoadPoint]) -> list[LoadPoint]:
    """By rate offered, or by concurrency where that alone was set; a run with neither by the rate it achieved."""
    closed = all(point.concurrency is not None and point.offered_per_s in (None, math.inf) for point in sweep)

    def load(point: LoadPoint) -> float:
        if closed and point.concurrency is not None:
            return point.concurrency
        return point.requests_per_s if point.offered_per_s is None else point.offered_per_s

    return sorted(sweep, key=lambda point: (load(point), point.requests_per_s))
