"""From the runs of a load test to the capacity of one replica, with what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from floorcast.errors import DataError
from scaling.calibration.edge import Edge, find_edge, typical
from scaling.calibration.fit import Combine, Fitted, Role, fit_edges
from scaling.calibration.sweep import Judged, LoadPoint, Targets, by_mix, judge

_FEW_LATE = 10
_COARSE = 1.25
_PAST_KNEE = 1.1
_MISFIT = 0.1


@dataclass(frozen=True)
class Sweep:
    """The runs of one mix in order of load, and their edge: None where the lowest load misses the targets."""

    runs: tuple[Judged, ...]
    edge: Edge | None


@dataclass(frozen=True)
class Calibration:
    """`at_least` says that some sweep never missed the targets, so that a replica may sustain more. `notes` say what
    the figures rest on and what would make them better."""

    fitted: Fitted
    sweeps: tuple[Sweep, ...]
    at_least: bool
    notes: tuple[str, ...]


def calibrate(
    points: Sequence[LoadPoint], targets: Targets, *, role: Role, replicas: int = 1, combine: Combine | None = None
) -> Calibration:
    """Capacity of one of the `replicas` that served these runs together, at the latency targets.

    Raises DataError where a latency is not recorded, or no run of any mix meets the targets.
    """
    sweeps = []
    for runs in by_mix(points):
        judged = tuple(judge(point, targets) for point in runs)
        sweeps.append(Sweep(judged, find_edge(judged, replicas=replicas)))
    edges = [sweep.edge for sweep in sweeps if sweep.edge is not None]
    if not edges:
        best = min((run for sweep in sweeps for run in sweep.runs), key=lambda run: run.strain)
        raise DataError(
            f"no run meets the targets; the best, at {best.point.requests_per_s:.3g} requests/s, "
            + ("failed too often" if math.isinf(best.strain) else f"is {best.strain:.3g} times over"),
            where=best.point.source,
            remedy="measure at lower rates, or allow more with --ttft, --itl, --e2e or --percentile",
        )
    fitted = fit_edges(edges, role=role, combine=combine)
    notes = (*_doubts(fitted, edges, role, combine), *(note for sweep in sweeps for note in _about(sweep, targets)))
    return Calibration(fitted, tuple(sweeps), any(edge.at_least for edge in edges), notes)


def _doubts(fitted: Fitted, edges: list[Edge], role: Role, combine: Combine | None) -> Iterator[str]:
    if role == "unified" and not fitted.separated:
        why = "one mix of tokens in and out" if len(edges) == 1 else f"{len(edges)} mixes with much the same share"
        yield (
            f"{why} shows one point of the line R_in / C_in + R_out / C_out = 1, not both capacities: given is the "
            "lower bound of each, with `max`, which is right for this mix and never asks for too few replicas for "
            "another; add a sweep of a mix with far more, or far fewer, tokens out per token in to tell them apart"
        )
        if combine == "sum":
            yield "--combine sum needs sweeps of two mixes, and was not followed"
    elif role == "unified" and fitted.combine != combine and combine is not None:
        yield f"--combine {combine} does not fit: one of the two kinds of tokens would cost nothing"
    elif role == "unified" and combine is None and len(edges) == 2:
        yield (
            "two mixes cannot show whether prefill and decode share the GPU (`sum`) or not (`max`): `sum` is taken, "
            "which asks for more replicas in between; a third, balanced mix would tell"
        )
    if fitted.misfit > _MISFIT:
        yield f"the edges miss what was fitted by up to {fitted.misfit:.0%}: the capacity depends on more than the mix"


def _about(sweep: Sweep, targets: Targets) -> Iterator[str]:
    tokens = " + ".join(f"{value:,.0f}" for value in sweep.runs[0].point.mix)
    name, edge = f"mix {tokens} tokens", sweep.edge
    if edge is None:
        yield f"{name}: its lowest load misses the targets already, so it has no edge and counts for nothing"
        return
    if edge.missed_per_s is None:
        yield f"{name}: no run misses the targets, so a replica sustains at least this; add higher rates"
    elif edge.missed_per_s > _COARSE * edge.met_per_s:
        yield (
            f"{name}: the edge lies somewhere between {edge.met_per_s:.3g} and {edge.missed_per_s:.3g} requests/s; "
            "add rates between them"
        )
    if edge.knee_per_s is not None and edge.requests_per_s > _PAST_KNEE * edge.knee_per_s:
        share = edge.knee_per_s / edge.requests_per_s
        yield (
            f"{name}: latency bends up at {edge.knee_per_s:.3g} requests/s already, below the edge at "
            f"{edge.requests_per_s:.3g}: keep `target_utilization` at {share:.2f} or less"
        )
    counted = typical(sweep.runs)
    if len(counted) < len(sweep.runs):
        yield f"{name}: of runs repeated at one load, the one of median latency counts"
    if any(run.met for run in counted[_missed(counted) :]):
        yield f"{name}: a run met the targets at a higher load than one that did not; the lower one counts"
    fewest = min(run.point.requests for run in sweep.runs)
    late = fewest * (1 - targets.percentile / 100)
    if late < _FEW_LATE:
        needed = math.ceil(_FEW_LATE / (1 - targets.percentile / 100)) if targets.percentile < 100 else 0
        yield (
            f"{name}: p{targets.percentile:g} of {fewest:,} requests rests on {late:.0f} of them; "
            f"{needed:,} a run would be certain"
        )


def _missed(runs: Sequence[Judged]) -> int:
    return next((place for place, run in enumerate(runs) if not run.met), len(runs))
