"""The capacity of one replica from production: what it served where requests began to wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from floorcast.errors import DataError
from floorcast.pool import Pool
from floorcast.units import format_duration
from scaling.calibration.fit import APART, Combine, Fitted, fit_edges, separable
from scaling.calibration.loaded import load_of, per_replica, queued, quiet
from scaling.capacity import Floats
from scaling.demand import METRICS

_FEWEST = 3
"""Times that a queue must have begun at one mix: one may be an accident of how requests were spread."""

_REACHED = timedelta(hours=1)
"""Where nothing ever queued, the load that counts was reached for so long in all."""

_WIDE = 1.3

_NOTHING = 1e-9
"""Tokens a second that count as none."""


@dataclass(frozen=True, kw_only=True)
class QueueEdge:
    """What one replica served when requests began to wait, at one mix: the median of the `onsets`, and the quartiles of
    their load around it as shares of it. Without any onset it is what was reached without a queue."""

    tokens_in_per_s: float
    tokens_out_per_s: float
    onsets: int
    low: float
    high: float


@dataclass(frozen=True)
class HistoryCalibration:
    """`at_least` says that no queue began often enough to show an edge, so that a replica may sustain more. `steps`
    counts those looked at, `queued` those of them in which requests waited."""

    fitted: Fitted
    edges: tuple[QueueEdge, ...]
    at_least: bool
    steps: int
    queued: int
    notes: tuple[str, ...]


def calibrate_history(
    steps: pl.DataFrame, pool: Pool, *, step: timedelta, combine: Combine | None = None
) -> HistoryCalibration:
    """Capacity of one replica of a pool from its `loaded_steps`.

    A queue begins in a step in which requests wait that comes after one in which none did, directly or with one of
    neither kind between them. What a replica served then is what it served in that step or the next, whichever was
    more: a queue that begins late in a step leaves the most of it to what came before. Onsets are grouped by their
    tokens out per token in; each group of three or more has an edge, their median. Without one, the edge is the load
    (by the configured capacity) that was reached for an hour in all without a queue.

    Raises DataError where less than that hour is known, or nothing of a kind of tokens was served.
    """
    rates, is_quiet = per_replica(steps), quiet(steps)
    loads, _ = load_of(rates, pool)
    began = _onsets(steps, loads, step)
    mixes = _by_mix(rates[began]) if pool.role == "unified" else [rates[began]]
    groups = [group for group in mixes if len(group) >= _FEWEST]
    edges = [_edge(group, pool) for group in groups]
    at_least = not edges
    if not edges:
        least = max(-(-_REACHED // step), 1)
        reached = rates[is_quiet][np.argsort(loads[is_quiet], kind="stable")[-least:]]
        if len(reached) < least:
            raise DataError(
                f"only {format_duration(len(reached) * step)} without a queue have replicas and demand known together",
                where="the history of the pool",
                remedy=f"let `floorcast ingest` collect {format_duration(_REACHED)} or more, or use a load test",
            )
        edges = [_edge(reached[:1], pool, onsets=0)]
    fitted = fit_edges(edges, role=pool.role, combine=combine)
    notes = _notes(edges, fitted, pool, onsets=len(began), at_least=at_least)
    return HistoryCalibration(fitted, tuple(edges), at_least, steps.height, int(queued(steps).sum()), tuple(notes))


def _onsets(steps: pl.DataFrame, loads: Floats, step: timedelta) -> npt.NDArray[np.int64]:
    """The places of the steps that show what was served when a queue began."""
    is_quiet, is_queued = quiet(steps), queued(steps)
    since = steps["step_start"].diff().dt.total_seconds().fill_null(0).to_numpy()
    follows = since == step.total_seconds()
    before = np.roll(is_quiet, 1) & follows
    unclear = np.roll(~is_quiet & ~is_queued, 1) & follows & np.roll(before, 1)
    first = np.flatnonzero(is_queued & (before | unclear))
    after = np.minimum(first + 1, steps.height - 1)
    goes_on = follows[after] & is_queued[after] & (after > first)
    return np.where(goes_on & (loads[after] > loads[first]), after, first)


def _by_mix(rates: Floats) -> Iterator[Floats]:
    """Rates [onsets, 2] in groups within which the tokens out per token in differ by less than would tell C_in from
    C_out."""
    mix = _mix(rates)
    order = np.argsort(mix, kind="stable")
    while order.size:
        own = mix[order] < mix[order[0]] + math.log(APART)
        yield rates[order[own]]
        order = order[~own]


def _mix(rates: Floats) -> Floats:
    mix: Floats = np.log(np.maximum(rates[:, 1], _NOTHING) / np.maximum(rates[:, 0], _NOTHING))
    return mix


def _edge(rates: Floats, pool: Pool, onsets: int | None = None) -> QueueEdge:
    served = np.median(rates, axis=0)
    if min(served[METRICS.index(metric)] for metric in pool.metrics) <= _NOTHING:
        raise DataError(
            "replicas served no tokens of a kind that the capacity is given in",
            where="the history of the pool",
            remedy="use a load test",
        )
    loads, _ = load_of(rates, pool)
    low, middle, high = np.quantile(loads, [0.25, 0.5, 0.75])
    return QueueEdge(
        tokens_in_per_s=float(served[0]),
        tokens_out_per_s=float(served[1]),
        onsets=len(rates) if onsets is None else onsets,
        low=float(low / middle),
        high=float(high / middle),
    )


def _notes(edges: list[QueueEdge], fitted: Fitted, pool: Pool, *, onsets: int, at_least: bool) -> Iterator[str]:
    if at_least:
        times = f"began only {onsets} times" if onsets else "never began"
        yield f"a queue {times}, so a replica sustains at least what it served without one"
    elif (left := onsets - sum(edge.onsets for edge in edges)) > 0:
        yield f"{left} of {onsets} queues began at mixes seen fewer than {_FEWEST} times, and count for nothing"
    if pool.role == "unified" and not separable(edges):
        yield (
            "the mix of tokens in and out hardly changes, which shows one point of the line R_in / C_in + "
            "R_out / C_out = 1, not both capacities: given is the lower bound of each, with `max`, right for this mix"
        )
    for edge in edges:
        if edge.onsets and edge.high > _WIDE * edge.low:
            yield (
                f"queues began at loads from {edge.low:.0%} to {edge.high:.0%} of the median (quartiles): requests may "
                "be spread unevenly over the replicas, or differ much in length"
            )
    if fitted.misfit > 0.1:
        yield f"the edges miss what was fitted by up to {fitted.misfit:.0%}: the capacity depends on more than the mix"
    if not at_least:
        yield (
            "a queue says when replicas are full, not whether they met their latencies until then: if a load test at "
            "your targets gives less, use that"
        )
