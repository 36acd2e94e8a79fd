"""What the classes of a pool can still be served where its floor is less than it should be. Pure, over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from floorcast.replica import Capacity
from floorcast.workload import WorkloadClass
from scaling.capacity import Floats, Strings


def class_rates(classes: Floats, demand: Floats) -> Floats:
    """The classes' rates, scaled so that they add up to the pool's: [classes, metrics, windows].

    A pool's `demand` [metrics, windows] is not the sum of its classes' quantiles, since they peak apart, and is
    raised for the busiest minute. A rate not known is 0.
    """
    known = np.nan_to_num(classes)
    total = known.sum(axis=0)
    scaled: Floats = known * np.divide(demand, total, out=np.zeros_like(total), where=total > 0)
    return scaled


def class_parts(rates: Floats, binding: Strings, capacity: Capacity) -> Floats:
    """Share of a pool's required replicas that each class is the cause of: [classes, windows], adding up to 1.

    `rates` is [classes, metrics, windows]; the share is that of the `binding` [windows] term of the capacity formula.
    Where there is no demand, or it is not known, all classes have the same.
    """
    load = rates / _sustained(capacity)[:, None]
    decisive = {"tokens_in": load[:, 0], "tokens_out": load[:, 1], "sum": load.sum(axis=1)}
    own = np.select([binding == term for term in decisive], list(decisive.values()), default=0.0)
    total = own.sum(axis=0)
    return np.where(total > 0, own / np.where(total > 0, total, 1), 1 / len(rates))


def admitted(
    rates: Floats,
    replicas: npt.ArrayLike,
    specs: Sequence[WorkloadClass],
    *,
    capacity: Capacity,
    role: Literal["unified", "prefill", "decode"],
) -> tuple[Floats, Floats]:
    """The share of each class's demand that `replicas` [windows] can serve, and the budget in tokens per second:
    [classes, windows] and [classes, metrics, windows].

    `rates` [classes, metrics, windows] is the demand, `specs` the classes. In order of rank (priority, then
    anything but batch) classes are served whole while capacity at the target utilization lasts. Within the rank at
    which it ends, each is served the share weight x level, at most all of it, with the greatest common level that
    fits. What a class is served is so of its tokens in and out alike, since a request has both. No budget is above the
    class's demand.
    """
    uses = _uses(rates, capacity, role)
    have = np.broadcast_to(np.asarray(replicas) * capacity.target_utilization, uses.shape[1:])
    left = have.astype(np.float64)
    shares = np.zeros((len(rates), rates.shape[2]))
    ranks = [spec.rank for spec in specs]
    for level in sorted(set(ranks), reverse=True):
        own = [place for place, one in enumerate(ranks) if one == level]
        shares[own] = _fill(uses[own], left, np.array([specs[place].weight for place in own]))
        left = left - (shares[own][:, None] * uses[own]).sum(axis=0)
    return shares, rates * shares[:, None]


def _fill(uses: Floats, left: Floats, weights: Floats) -> Floats:
    """Shares [classes, windows] with min(1, weight x level), for the greatest level at which the classes' `uses`
    [classes, resources, windows] fit into what is `left` [resources, windows]."""
    # Between two weights' saturation points the use grows linearly with the level: from the heaviest down.
    order = np.argsort(-weights, kind="stable")
    level, open_ = np.zeros(uses.shape[2]), np.ones(uses.shape[2], dtype=bool)
    for place, saturating in enumerate(order):
        active = order[place:]
        slope = np.einsum("c,crw->rw", weights[active], uses[active])
        fixed = uses[order[:place]].sum(axis=0)
        reach = np.divide(np.maximum(left - fixed, 0), slope, out=np.full(slope.shape, np.inf), where=slope > 0).min(
            axis=0, initial=np.inf
        )
        level = np.where(open_, np.minimum(reach, 1 / weights[saturating]), level)
        open_ &= reach >= 1 / weights[saturating]
    shares: Floats = np.minimum(1, weights[:, None] * level)
    return shares


def _uses(rates: Floats, capacity: Capacity, role: Literal["unified", "prefill", "decode"]) -> Floats:
    """Busy replicas that each class keeps of each resource: [classes, resources, windows]."""
    load = rates / _sustained(capacity)[:, None]
    if role == "prefill":
        return load[:, :1]
    if role == "decode":
        return load[:, 1:]
    return load.sum(axis=1, keepdims=True) if capacity.combine == "sum" else load


def _sustained(capacity: Capacity) -> Floats:
    return np.array([capacity.prefill_tokens_per_s, capacity.decode_tokens_per_s])
