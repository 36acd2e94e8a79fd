"""Where a sweep leaves its latency targets, and where its latency bends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from scaling.calibration.sweep import Judged, Latency

_FEWEST = 4
"""Runs that show a bend."""


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The highest load of one mix that meets the targets, per replica.

    Found between the last run that met them, at `met_per_s` requests per second, and the first that did not, at
    `missed_per_s`: the point where the strain, as a power of the load, reaches 1. Where no run missed them the last
    run is the edge, and the replica sustains `at_least` so much. `binding` is the target missed first. `knee_per_s`,
    at `knee_strain`, is where latency bends up, by another method.
    """

    tokens_in_per_s: float
    tokens_out_per_s: float
    requests_per_s: float
    met_per_s: float
    missed_per_s: float | None
    binding: Latency | Literal["failed"] | None
    knee_per_s: float | None
    knee_strain: float | None
    runs: int

    @property
    def at_least(self) -> bool:
        return self.missed_per_s is None


def find_edge(sweep: Sequence[Judged], *, replicas: int = 1) -> Edge | None:
    """The edge of one sweep, in order of its load, that `replicas` served together; None where its first run misses
    the targets already.

    Of several runs at one load the `typical` one counts. A run that meets them again after one that did not is luck,
    and is left out. Between the two runs the logarithm of the strain is taken as linear in the rate achieved; a run
    that achieved no more than the one before moves nothing.
    """
    runs, sweep = len(sweep), typical(sweep)
    missed = next((place for place, run in enumerate(sweep) if not run.met), len(sweep))
    if missed == 0:
        return None
    last, first = sweep[missed - 1], sweep[missed] if missed < len(sweep) else None
    way = 0.0
    if first is not None and math.isfinite(first.strain):
        low, high = math.log(max(last.strain, 1e-9)), math.log(first.strain)
        way = -low / (high - low)

    knee = _knee(sweep)

    def at(rate: str) -> float:
        low: float = getattr(last.point, rate)
        high: float = low if first is None else getattr(first.point, rate)
        return (low + way * max(high - low, 0)) / replicas

    return Edge(
        tokens_in_per_s=at("tokens_in_per_s"),
        tokens_out_per_s=at("tokens_out_per_s"),
        requests_per_s=at("requests_per_s"),
        met_per_s=last.point.requests_per_s / replicas,
        missed_per_s=None if first is None else max(first.point.requests_per_s, last.point.requests_per_s) / replicas,
        binding=None if first is None else first.binding,
        knee_per_s=knee and knee[0] / replicas,
        knee_strain=knee and knee[1],
        runs=runs,
    )


def typical(sweep: Sequence[Judged]) -> list[Judged]:
    """Of the runs at each load the one of median strain, the worse of two: one run alone is luck, either way."""

    def load(run: Judged) -> tuple[float | None, ...]:
        point = run.point
        offered = point.offered_per_s, point.concurrency
        return (point.requests_per_s,) if offered == (None, None) else offered

    found = []
    for _, runs in groupby(sweep, key=load):
        ranked = sorted(runs, key=lambda run: run.strain)
        found.append(ranked[len(ranked) // 2])
    return found


def _knee(sweep: Sequence[Judged]) -> tuple[float, float] | None:
    """Requests per second and strain where the curve of strain over throughput is furthest below the line between its
    ends: the knee of Kneedle (Satopää and others, 2011, "Finding a Kneedle in a Haystack"), of a rising convex curve,
    without smoothing. None for too few runs or a curve that does not bend up."""
    finite = [run for run in sweep if math.isfinite(run.strain)]
    throughput = np.maximum.accumulate(np.array([run.point.requests_per_s for run in finite]))
    strain = np.array([run.strain for run in finite])
    if len(finite) < _FEWEST or np.ptp(throughput) == 0 or np.ptp(strain) == 0:
        return None
    below = (throughput - throughput[0]) / np.ptp(throughput) - (strain - strain.min()) / np.ptp(strain)
    knee = int(below.argmax())
    return (float(throughput[knee]), float(strain[knee])) if below[knee] > 0 else None
