"""The integer programme of one group of pools, for several blocks of time at once. HiGHS solves it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from floorcast.errors import FloorcastError
from scaling.capacity import Floats

_SLACK = 1e-4
"""Share of a replica's usable capacity left free, so that rounding shares to 6 digits buys no replica."""

_LACKING = 1e3
"""A GPU that is not there costs so many times the dearest one: nothing is short that money can place elsewhere."""

_SOFTENED = 30.0
"""A limit of a class gives way at so many times what all of the class costs on its dearest pool: for no saving, and
before a GPU is lacked."""

_PREFERENCE = 1e-4
"""Between pools of equal cost the earlier in a class's list wins, by so much of the mean price a place."""

_NODES = 200
"""Of the branch-and-bound tree. A count, since a time limit would make plans depend on the machine."""

_DECIMALS = 6


@dataclass(frozen=True)
class Group:
    """Pools and classes that must be placed together. P pools, K classes, Q quotas, R resources of a replica.

    `usd` [P] is the price of a replica-hour, `gpus` [P] what it takes, `warm` [P] replicas of a pool that carry no
    load. `per_token` [P, R, 2] is the replicas that a token per second in or out keeps busy. `place` [K, P] is a pool's
    position in the class's list, from 0, or -1 where it does not serve it. `spot` and `long` hold for classes that have
    one a limit: the pools [P] it speaks of, and the most or the least share. `quotas` [Q, P] are GPUs of a quota that a
    replica takes.
    """

    pools: tuple[str, ...]
    classes: tuple[str, ...]
    usd: Floats
    gpus: Floats
    warm: Floats
    per_token: tuple[Floats, ...]
    place: npt.NDArray[np.int64]
    spot: dict[int, tuple[npt.NDArray[np.bool_], float]]
    long: dict[int, tuple[npt.NDArray[np.bool_], float]]
    quotas: Floats

    @property
    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Class and pool of every share that is decided."""
        classes, pools = np.nonzero(self.place >= 0)
        return classes, pools


@dataclass(frozen=True)
class Blocks:
    """Blocks of time of a group: `demand` [blocks, K, 2] in tokens per second in and out, replicas that are there
    anyway, `least` [blocks, P], and that can be there, `most` [blocks, P], and `room` [blocks, Q], GPUs of each quota.
    """

    demand: Floats
    least: Floats
    most: Floats
    room: Floats

    def at(self, which: slice | list[int] | npt.NDArray[np.bool_]) -> Blocks:
        """Some of them."""
        return Blocks(self.demand[which], self.least[which], self.most[which], self.room[which])


def solve(group: Group, blocks: Blocks, *, exact: bool, soft: bool = False) -> Floats:
    """Shares [blocks, K, P] of each class on each pool, at the least cost of whole replicas.

    What cannot be had is lacked at a price above all others, so that there is always an
    answer; `shortage` says how much. Not `exact`, replicas may be parts of one. `soft`, the classes' own limits give
    way where that helps, by as little as does.
    """
    if not len(blocks.demand):
        return np.zeros((0, *group.place.shape))
    if exact:
        one_by_one = [blocks.at([place]) for place in range(len(blocks.demand))]
        return np.concatenate(
            [_solve(group, one, _soft_costs(group, one.demand, soft=soft), exact=True) for one in one_by_one]
        )
    return _solve(group, blocks, _soft_costs(group, blocks.demand, soft=soft), exact=False)


def _soft_costs(group: Group, demand: Floats, *, soft: bool) -> Floats:
    """What it costs that a limit gives way by all of its class: [blocks, limits]. Infinite where none may."""
    limited = [*group.spot, *group.long]
    if not soft:
        return np.full((len(demand), len(limited)), np.inf)
    dearest = np.zeros((len(demand), len(group.classes)))
    for pool, uses in enumerate(group.per_token):
        own = np.einsum("bkm,rm->bkr", demand, uses).max(axis=2) * group.usd[pool]
        dearest = np.maximum(dearest, np.where(group.place[:, pool] >= 0, own, 0))
    costs: Floats = _SOFTENED * dearest[:, limited]
    return costs


def replicas_of(group: Group, shares: Floats, blocks: Blocks) -> Floats:
    """Whole replicas [blocks, P] that the shares ask for. Where nothing is placed, none is warm that cannot be."""
    load = np.zeros((len(shares), len(group.pools)))
    for pool, uses in enumerate(group.per_token):
        busy = np.einsum("bk,bkm,rm->br", shares[:, :, pool], blocks.demand, uses)
        load[:, pool] = busy.max(axis=1)
    warm = np.where(load > 0, group.warm, np.minimum(group.warm, blocks.most))
    whole: Floats = np.maximum(np.ceil(load - 1e-9 * np.maximum(load, 1)) + warm, blocks.least)
    return whole


def shortage(group: Group, replicas: Floats, blocks: Blocks) -> tuple[Floats, Floats]:
    """Replicas above what can be there [blocks, P], and GPUs above each quota [blocks, Q]."""
    over = np.maximum(replicas - blocks.most, 0)
    return over, np.maximum(replicas @ group.quotas.T - blocks.room, 0)


def cost(group: Group, shares: Floats, blocks: Blocks) -> Floats:
    """USD per hour of whole replicas [blocks], what is lacked included at its price."""
    replicas = replicas_of(group, shares, blocks)
    over, beyond = shortage(group, replicas, blocks)
    lacking = _LACKING * float((group.usd / group.gpus).max())
    total: Floats = replicas @ group.usd + lacking * (over @ group.gpus + beyond.sum(axis=1))
    return total


def _rows(group: Group, demand: Floats) -> tuple[Floats, Floats, Floats]:
    """Matrix, lower and upper limits of one block. Columns: replicas, those lacked, GPUs lacked, shares, and by
    how much the classes' own limits give way."""
    classes, pools = group.pairs
    count, quotas = len(group.pools), len(group.quotas)
    width = 2 * count + quotas + len(classes) + len(group.spot) + len(group.long)
    rows: list[Floats] = []
    limits: list[tuple[float, float]] = []

    def add(low: float, high: float, *parts: tuple[slice | npt.NDArray[np.int64] | int, npt.ArrayLike]) -> None:
        row = np.zeros(width)
        for columns, values in parts:
            row[columns] = values
        rows.append(row)
        limits.append((low, high))

    shares = 2 * count + quotas + np.arange(len(classes))
    for pool, uses in enumerate(group.per_token):
        mine = pools == pool
        for use in uses:
            load = demand[classes[mine]] @ use
            add(-np.inf, -group.warm[pool] * (1 - _SLACK), (shares[mine], load), (pool, -(1 - _SLACK)))
    for place, takes in enumerate(group.quotas):
        add(-np.inf, np.nan, (slice(0, count), takes), (2 * count + place, -1))
    for one in range(len(group.classes)):
        add(1, 1, (shares[classes == one], 1))
    give = 2 * count + quotas + len(classes)
    for place, (one, (those, share)) in enumerate(group.spot.items()):
        add(-np.inf, share, (shares[(classes == one) & those[pools]], 1), (give + place, -1))
    for place, (one, (those, share)) in enumerate(group.long.items(), len(group.spot)):
        add(share, np.inf, (shares[(classes == one) & those[pools]], 1), (give + place, 1))
    for pool in range(count):
        add(-np.inf, np.nan, (pool, 1), (count + pool, -1))
    low, high = np.array(limits).T
    return np.array(rows), low, high


def _solve(group: Group, blocks: Blocks, give: Floats, *, exact: bool) -> Floats:
    classes, pools = group.pairs
    matrices = [_rows(group, demand) for demand in blocks.demand]
    count, quotas, number = len(group.pools), len(group.quotas), len(matrices)
    price = float((group.usd / group.gpus).max())
    one_cost = np.concatenate(
        [
            group.usd,
            _LACKING * price * group.gpus,
            np.full(quotas, _LACKING * price),
            _PREFERENCE * float(group.usd.mean()) * group.place[classes, pools],
        ]
    )
    may = np.isfinite(give)
    costs = np.hstack([np.tile(one_cost, (number, 1)), np.where(may, give, 0)])
    lower = np.hstack([blocks.least, np.zeros((number, count + quotas + len(classes) + give.shape[1]))])
    within = np.concatenate([np.full(2 * count + quotas, np.inf), np.ones(len(classes))])
    upper = np.hstack([np.tile(within, (number, 1)), may.astype(float)])
    highs = []
    for block, (_, _, high) in enumerate(matrices):
        # In the order of `_rows`: what is not a number there depends on the block.
        filled = high.copy()
        filled[np.isnan(high)] = np.concatenate([blocks.room[block], blocks.most[block]])
        highs.append(filled)
    found = scipy.optimize.milp(
        costs.ravel(),
        constraints=scipy.optimize.LinearConstraint(
            scipy.sparse.block_diag([rows for rows, _, _ in matrices], format="csc"),
            np.concatenate([low for _, low, _ in matrices]),
            np.concatenate(highs),
        ),
        bounds=scipy.optimize.Bounds(lower.ravel(), upper.ravel()),
        integrality=np.tile(np.arange(lower.shape[1]) < count, number) * exact,
        options={"node_limit": _NODES} if exact else {},
    )
    if found.x is None and exact:
        return _solve(group, blocks, give, exact=False)
    if found.x is None:
        raise FloorcastError(
            f"the placement of {', '.join(group.classes)} was not solved: {found.message}",
            where=f"pools {', '.join(group.pools)}",
            remedy="name one pool for each of these classes until it is mended, and report it as a bug",
        )
    values = found.x.reshape(number, -1)[:, 2 * count + quotas : 2 * count + quotas + len(classes)]
    shares = np.zeros((number, len(group.classes), count))
    shares[:, classes, pools] = np.clip(values, 0, 1).round(_DECIMALS)
    # What rounding leaves goes to the largest share of each class.
    largest = shares.argmax(axis=2)[:, :, None]
    rest = 1 - shares.sum(axis=2, keepdims=True)
    np.put_along_axis(shares, largest, (np.take_along_axis(shares, largest, 2) + rest).round(_DECIMALS), 2)
    return shares
