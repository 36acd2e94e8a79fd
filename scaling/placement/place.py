"""Shares of classes on the pools that can serve them, over the steps of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from floorcast.config import Config
from floorcast.types import FloorSchedule
from scaling.capacity import Floats, Ints
from scaling.ladder import Figures, Grid
from scaling.placement.programme import Group, cost, replicas_of, shortage, solve

_HOUR = timedelta(hours=1)

_KEEP = 0.02
"""A placement stays while another is not cheaper by more than this share, so that traffic does not flap."""

_EDGE = 1e-6

_GIVES = 0.005
"""A class's limit that would give by less stands in nobody's way."""


@dataclass(frozen=True)
class Relaxation:
    """A limit that the demand does not fit into from `start` to `end`, and by how much at most it would have to give:
    `by` is replicas for a pool, GPUs for a quota. A class's limit on spot or for long context that stands in the way
    would have to be `to`, which helps, if not always with all that is lacked."""

    start: datetime
    end: datetime
    limit: str
    by: int = 0
    to: float | None = None

    @property
    def text(self) -> str:
        """As `quota H100 lacks 3`, or `max_spot_share of chat would help at 34%`."""
        return f"{self.limit} lacks {self.by}" if self.to is None else f"{self.limit} would help at {self.to:.0%}"


@dataclass(frozen=True)
class Placement:
    """`shares` [classes of the pool in name order, steps] of each pool that shares a class with another."""

    shares: Mapping[str, Floats]
    relax: tuple[Relaxation, ...] = ()


def place(
    config: Config,
    figures: Figures,
    grid: Grid,
    *,
    peaks: Mapping[str, Floats],
    before: Mapping[str, Ints],
    published: FloorSchedule | None,
) -> Placement:
    """Place the classes of several unified pools at least cost, block of time by block of time.

    A block is what lies between the ends of the pools' lead windows, and after these an hour of the clock; it is
    placed for the greatest quantile of each class and metric in it, times the pool's `peaks` [metrics] and minimum
    margin. Blocks that begin within a lead window are integer programmes, later ones their linear relaxation rounded
    up. A pool has no more than what was published for it, `before` [1 + windows], while it has no time to start. What
    was placed before, in the block before or at first in `published`, stays unless another placement is cheaper by
    more than 2 %.
    """
    shares: dict[str, Floats] = {}
    relax: list[Relaxation] = []
    for names in _groups(config):
        group = group_of(config, names, peaks)
        edges = _edges(config, group, grid)
        demand = _demand(group, figures, edges)
        most, waiting = _most(config, group, edges, before)
        room = _room(config, names)
        due = int(np.searchsorted(edges[:-1], max(config.lead_steps(name) for name in names)))
        found = np.concatenate(
            [
                solve(group, demand[:due], most[:due], room, exact=True),
                solve(group, demand[due:], most[due:], room, exact=False),
            ]
        )
        kept = _keep(group, found, demand, most, room, _published_shares(group, published, grid.start))
        lengths = np.diff(edges)
        for place_, name in enumerate(group.pools):
            own = [group.classes.index(member) for member in config.classes_of(name)]
            shares[name] = np.repeat(kept[:, own, place_], lengths, axis=0).T
        times = [grid.start + edge * grid.step for edge in edges.tolist()]
        relax += _relaxations(config, group, kept, demand, most, waiting, room, times)
        relax += _class_relaxations(group, kept, demand, most, room, times)
    return Placement(shares, tuple(relax))


def _groups(config: Config) -> list[list[str]]:
    """Pools that must be placed together, since they share a class or a quota; only those with a class to place."""
    linked = {name: {name} for name in config.pools}
    placed = [spec.pools for spec in config.classes.values() if len(spec.pools) > 1 and _unified(config, spec.pools)]
    counted = [[name for name, pool in config.pools.items() if quota.covers(pool)] for quota in config.quotas]
    for names in [*placed, *counted]:
        merged = set().union(*(linked[name] for name in names))
        for name in merged:
            linked[name] = merged
    movable = {name for names in placed for name in names}
    groups = {min(group): group for group in linked.values() if group & movable}
    return [sorted(name for name in groups[first] if _unified(config, (name,))) for first in sorted(groups)]


def _unified(config: Config, pools: tuple[str, ...]) -> bool:
    return config.pools[pools[0]].role == "unified"


def group_of(config: Config, names: list[str], peaks: Mapping[str, Floats]) -> Group:
    """The programme of some unified pools, with the `peaks` [metrics] of each."""
    pools = [config.pools[name] for name in names]
    classes = sorted({member for name in names for member in config.classes_of(name)})
    uses = []
    for name, pool in zip(names, pools, strict=True):
        rates = np.array([pool.capacity.prefill_tokens_per_s, pool.capacity.decode_tokens_per_s])
        busy = np.asarray(peaks[name]) * (1 + pool.margin.minimum) / (rates * pool.capacity.target_utilization)
        uses.append(busy[None, :] if pool.capacity.combine == "sum" else np.diag(busy))
    spec = [config.classes[member] for member in classes]
    spot = np.array([pool.gpu.spot for pool in pools])
    gpus = np.array([pool.gpu.per_replica for pool in pools], dtype=float)
    # A pool without a price takes part through a quota alone: its classes have no other place.
    usd = np.array([pool.gpu.price or 0.0 for pool in pools]) * gpus
    warm = np.array([pool.margin.warm for pool in pools], dtype=float)
    return Group(
        pools=tuple(names),
        classes=tuple(classes),
        usd=usd,
        gpus=gpus,
        least=np.maximum(warm, [pool.bounds.min for pool in pools]),
        warm=warm,
        per_token=tuple(uses),
        place=np.array([[one.pools.index(name) if name in one.pools else -1 for name in names] for one in spec]),
        spot={k: (spot, one.max_spot_share) for k, one in enumerate(spec) if one.max_spot_share is not None},
        long={
            k: (np.array([one.long_context.fits(pool) for pool in pools]), one.long_context.share)
            for k, one in enumerate(spec)
            if one.long_context is not None
        },
        quotas=np.array(
            [
                [quota.covers(pool) * pool.gpu.per_replica for pool in pools]
                for quota in config.quotas
                if any(quota.covers(pool) for pool in pools)
            ],
            dtype=float,
        ).reshape(-1, len(names)),
    )


def _edges(config: Config, group: Group, grid: Grid) -> Ints:
    """Steps at which a block begins, and the end of the grid."""
    leads = [config.lead_steps(name) - 1 for name in group.pools]
    per_hour = max(1, _HOUR // grid.step)
    hours = np.flatnonzero((grid.first_index + np.arange(grid.count)) % per_hour == 0)
    inside = [*leads, *hours[hours > max(leads)].tolist()]
    return np.unique([0, *(edge for edge in inside if edge < grid.count), grid.count])


def _demand(group: Group, figures: Figures, edges: Ints) -> Floats:
    """The greatest quantile of each block: [blocks, classes, 2]. What is not known is 0, and goes where it is first
    wanted."""
    members = [figures.classes.index(name) for name in group.classes]
    known = np.nan_to_num(figures.quantile[members])
    return np.maximum.reduceat(known, edges[:-1], axis=2).transpose(2, 0, 1)


def _most(config: Config, group: Group, edges: Ints, before: Mapping[str, Ints]) -> tuple[Floats, Floats]:
    """Replicas that can be there [blocks, pools], and in which of them for want of time to start.

    Where nothing was published for a pool, nothing is known of what it has, and its bounds alone hold.
    """
    most = np.tile(np.array([config.pools[name].bounds.max for name in group.pools], dtype=float), (len(edges) - 1, 1))
    waiting = np.zeros_like(most, dtype=bool)
    for place_, name in enumerate(group.pools):
        floors = before[name][1:]
        if not before[name].any():
            continue
        late = edges[:-1] < config.lead_steps(name) - 1
        there = np.minimum.reduceat(floors, np.minimum(edges[:-1], len(floors) - 1))
        waiting[:, place_] = late & (there < most[:, place_])
        most[:, place_] = np.where(late, np.minimum(there, most[:, place_]), most[:, place_])
    return np.maximum(most, group.least), waiting


def _room(config: Config, names: list[str]) -> Floats:
    """GPUs of each quota that the group may take: what the minimums of other pools do not."""
    room = []
    for quota in config.quotas:
        covered = {name: pool for name, pool in config.pools.items() if quota.covers(pool)}
        others = [pool.bounds.min * pool.gpu.per_replica for name, pool in covered.items() if name not in names]
        if covered.keys() & set(names):
            room.append(quota.gpus - sum(others))
    return np.array(room, dtype=float)


def _keep(group: Group, found: Floats, demand: Floats, most: Floats, room: Floats, first: Floats | None) -> Floats:
    """The shares found, but those of the block before (at first those published) where they cost hardly more."""
    kept = found.copy()
    best = cost(group, found, demand, most, room)
    last = first
    for block in range(len(found)):
        if last is not None:
            stays = cost(group, last[None], demand[[block]], most[[block]], room)[0]
            if stays <= best[block] * (1 + _KEEP):
                kept[block] = last
        last = kept[block]
    return kept


def _published_shares(group: Group, published: FloorSchedule | None, at: datetime) -> Floats | None:
    """The shares that were published for `at`, if they are of the same classes and pools, and within their limits."""
    shares = np.zeros((len(group.classes), len(group.pools)))
    for place_, name in enumerate(group.pools):
        windows = published.pools[name].windows if published and name in published.pools else ()
        reason = next((window.reason for window in windows if window.start <= at < window.end), None)
        for member, demand in reason.classes.items() if reason else ():
            if member in group.classes:
                shares[group.classes.index(member), place_] = demand.share
    right = np.abs(shares.sum(axis=1) - 1).max() < _EDGE and not shares[group.place < 0].any()
    spot = all(shares[k, those].sum() <= most + _EDGE for k, (those, most) in group.spot.items())
    long = all(shares[k, those].sum() >= least - _EDGE for k, (those, least) in group.long.items())
    return shares if right and spot and long else None


def _relaxations(
    config: Config,
    group: Group,
    shares: Floats,
    demand: Floats,
    most: Floats,
    waiting: Floats,
    room: Floats,
    times: list[datetime],
) -> list[Relaxation]:
    """Which limits would have to give, over runs of blocks."""
    replicas = replicas_of(group, shares, demand)
    over, beyond = shortage(group, replicas, most, room)
    quotas = [quota for quota in config.quotas if any(quota.covers(config.pools[name]) for name in group.pools)]
    lacks: dict[str, Floats] = {}
    for place_, name in enumerate(group.pools):
        lacks[f"startup.p90 of {name}"] = np.where(waiting[:, place_], over[:, place_], 0)
        lacks[f"bounds.max of {name}"] = np.where(waiting[:, place_], 0, over[:, place_])
    lacks |= {f"quota {quota.label}": beyond[:, place_] for place_, quota in enumerate(quotas)}
    return [
        Relaxation(times[run[0]], times[run[-1] + 1], limit, int(by[run].max()))
        for limit, by in lacks.items()
        for run in _runs(by > 0)
    ]


def _class_relaxations(
    group: Group, shares: Floats, demand: Floats, most: Floats, room: Floats, times: list[datetime]
) -> list[Relaxation]:
    """Which limits of classes stand in the way where replicas or GPUs are lacked, and at what they would not."""
    over, beyond = shortage(group, replicas_of(group, shares, demand), most, room)
    short = over.any(axis=1) | beyond.any(axis=1)
    if not short.any() or not (group.spot or group.long):
        return []
    soft = solve(group, demand[short], most[short], room, exact=False, soft=True)
    found = []
    for key, limits, sign in (("max_spot_share", group.spot, 1), ("long_context.share", group.long, -1)):
        for one, (those, limit) in limits.items():
            used = np.full(len(shares), limit)
            used[short] = soft[:, one, those].sum(axis=1)
            given = sign * (used - limit)
            found += [
                Relaxation(
                    times[run[0]],
                    times[run[-1] + 1],
                    f"{key} of {group.classes[one]}",
                    to=_outwards(float(limit + sign * given[run].max()), sign),
                )
                for run in _runs(given > _GIVES)
            ]
    return found


def _outwards(share: float, sign: int) -> float:
    """A share to a whole percent that gives no less."""
    return (math.ceil(100 * share - _EDGE) if sign > 0 else math.floor(100 * share + _EDGE)) / 100


def _runs(flags: npt.NDArray[np.bool_]) -> list[Ints]:
    """The places of neighbouring blocks whose flags are set."""
    places = np.flatnonzero(flags)
    return np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if places.size else []
