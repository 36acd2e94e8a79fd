"""Capacities from the edges of sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import scipy

Role = Literal["unified", "prefill", "decode"]
Combine = Literal["max", "sum"]

APART = 1.5
"""By so much the tokens out per token in must differ between mixes to tell the two capacities apart."""

_BETTER = 0.02
"""By so much of an edge `max` must fit better than `sum`, which asks for more replicas between the mixes seen."""


class Edge(Protocol):
    """What one replica serves at its limit, at one mix."""

    @property
    def tokens_in_per_s(self) -> float: ...

    @property
    def tokens_out_per_s(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """C_in and C_out of one replica in tokens per second; None for the side that the role does not use.

    `separated` says whether the edges tell the two apart. `misfit` is the largest distance of an edge's load from 1.
    """

    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    combine: Combine
    separated: bool
    misfit: float


def fit_edges(edges: Sequence[Edge], *, role: Role, combine: Combine | None = None) -> Fitted:
    """The capacities that put every edge at a load of 1. `edges` must not be empty.

    A prefill pool sustains the fewest tokens in of all edges, a decode pool the fewest tokens out. Of a unified pool:

    - `sum`: least squares of R_in / C_in + R_out / C_out = 1 over the edges, both not negative;
    - `max`: the edges with the fewest tokens out per token in are those of C_in, the others those of C_out, divided
      where the loads come nearest to 1; each is the median of its edges, which one lucky sweep does not move;
    - with one mix, which shows one point of that line, C_in = R_in and C_out = R_out of the smallest edge. Both are
      lower bounds: on the line through it C_in >= R_in and C_out >= R_out. With `max` they are right for that mix, and
      for any other ask for no fewer replicas than the line would.

    Without `combine` the one that fits better is taken, and `sum` where both do.
    """
    rates = np.array([[edge.tokens_in_per_s, edge.tokens_out_per_s] for edge in edges])
    least_in, least_out = rates.min(axis=0).tolist()
    if role != "unified":
        prefill = role == "prefill"
        side = rates[:, 0 if prefill else 1]
        return Fitted(
            prefill_tokens_per_s=least_in if prefill else None,
            decode_tokens_per_s=None if prefill else least_out,
            combine="max",
            separated=True,
            misfit=float(np.abs(side / side.min() - 1).max()),
        )
    if not separable(edges):
        return Fitted(
            prefill_tokens_per_s=least_in,
            decode_tokens_per_s=least_out,
            combine="max",
            separated=False,
            misfit=float(np.abs((rates / [least_in, least_out]).max(axis=1) - 1).max()),
        )
    most = rates.max(axis=0)
    highest = _by_sides(rates)
    # Scaled, so that both unknowns are near 1.
    per_capacity, _ = scipy.optimize.nnls(rates / most, np.ones(len(rates)))
    if (per_capacity <= 0).any():
        return highest
    summed = _fitted(most / per_capacity, rates, "sum")
    if combine is not None:
        return summed if combine == "sum" else highest
    return highest if highest.misfit < summed.misfit - _BETTER else summed


def separable(edges: Sequence[Edge]) -> bool:
    """Whether the edges' mixes differ enough to tell C_in from C_out."""
    ratios = [math.log(max(edge.tokens_out_per_s, 1e-9) / max(edge.tokens_in_per_s, 1e-9)) for edge in edges]
    return max(ratios) - min(ratios) >= math.log(APART)


def _by_sides(rates: np.ndarray) -> Fitted:
    """`max`, of two edges or more: of all divisions by mix the one whose loads have the least squared error."""
    ordered = rates[np.argsort(rates[:, 1] / np.maximum(rates[:, 0], 1e-9), kind="stable")]
    found = []
    for place in range(1, len(ordered)):
        capacities = np.array([np.median(ordered[:place, 0]), np.median(ordered[place:, 1])])
        error = float((((ordered / capacities).max(axis=1) - 1) ** 2).sum())
        found.append((error, place, capacities))
    return _fitted(min(found, key=lambda one: one[:2])[2], rates, "max")


def _fitted(capacities: np.ndarray, rates: np.ndarray, combine: Combine) -> Fitted:
    loads = rates / capacities
    load = loads.sum(axis=1) if combine == "sum" else loads.max(axis=1)
    return Fitted(
        prefill_tokens_per_s=float(capacities[0]),
        decode_tokens_per_s=float(capacities[1]),
        combine=combine,
        separated=True,
        misfit=float(np.abs(load - 1).max()),
    )
