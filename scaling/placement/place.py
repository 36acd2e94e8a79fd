"""Shares of classes on the pools that can serve them, over the steps of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from floorcast.config import Config
from floorcast.types import FloorSchedule
from scaling.calendar import limits
from scaling.capacity import Floats, Ints, Strings
from scaling.ladder import Figures, Grid
from scaling.placement.blocks import blocks_of, edges_of, uses_of
from scaling.placement.programme import Blocks, Group, cost, replicas_of, shortage, solve

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

    A block is what lies between the ends of the pools' lead windows, after these an hour of the clock, and changes of
    their calendars; it is placed for the greatest quantile of each class and metric in it, times the pool's `peaks`
    [metrics] and minimum margin. Blocks that begin within a lead window are integer programmes, later ones their linear
    relaxation rounded up. A pool has no more than what was published for it, `before` [1 + windows], while it has no
    time to start, and what its calendar lets it. What was placed before, in the block
    before or at first in `published`, stays unless another placement is cheaper by more than 2 %.
    """
    shares: dict[str, Floats] = {}
    relax: list[Relaxation] = []
    groups = _groups(config)
    by_calendar = {
        name: limits(pool.calendar, grid, windows=grid.count, width=config.lead_steps(name), zone=config.zone)
        for name, pool in config.pools.items()
        if groups and pool.calendar
    }
    for names in groups:
        group = group_of(config, names, peaks)
        edges = edges_of(config, group, grid, by_calendar)
        blocks, limiting = blocks_of(
            config, group, figures, grid, edges, peaks=peaks, limits=by_calendar, before=before, published=published
        )
        due = int(np.searchsorted(edges[:-1], max(config.lead_steps(name) for name in names)))
        found = np.concatenate(
            [
                solve(group, blocks.at(slice(due)), exact=True),
                solve(group, blocks.at(slice(due, None)), exact=False),
            ]
        )
        kept = _keep(group, found, blocks, _published_shares(group, published, grid.start))
        lengths = np.diff(edges)
        for place_, name in enumerate(group.pools):
            own = [group.classes.index(member) for member in config.classes_of(name)]
            shares[name] = np.repeat(kept[:, own, place_], lengths, axis=0).T
        times = [grid.start + edge * grid.step for edge in edges.tolist()]
        relax += _relaxations(config, group, kept, blocks, limiting, times)
        relax += _class_relaxations(group, kept, blocks, times)
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
    spec = [config.classes[member] for member in classes]
    spot = np.array([pool.gpu.spot for pool in pools])
    gpus = np.array([pool.gpu.per_replica for pool in pools], dtype=float)
    # A pool without a price takes part through a quota alone: its classes have no other place.
    usd = np.array([pool.gpu.price or 0.0 for pool in pools]) * gpus
    return Group(
        pools=tuple(names),
        classes=tuple(classes),
        usd=usd,
        gpus=gpus,
        warm=np.array([pool.margin.warm for pool in pools], dtype=float),
        per_token=tuple(uses_of(pool, peaks[name]) for name, pool in zip(names, pools, strict=True)),
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


def _keep(group: Group, found: Floats, blocks: Blocks, first: Floats | None) -> Floats:
    """The shares found, but those of the block before (at first those published) where they cost hardly more."""
    kept = found.copy()
    best = cost(group, found, blocks)
    last = first
    for block in range(len(found)):
        if last is not None:
            stays = cost(group, last[None], blocks.at([block]))[0]
            if stays <= best[block] * (1 + _KEEP):
                kept[block] = last
        last = kept[block]
    return kept


def _published_shares(group: Group, published: FloorSchedule | None, at: datetime) -> Floats | None:
    """The shares that were published for `at`, if they are of the same classes and pools, and within their limits."""
    shares = ((group.place >= 0) & ((group.place >= 0).sum(axis=1, keepdims=True) == 1)).astype(np.float64)
    for place_, name in enumerate(group.pools):
        windows = published.pools[name].windows if published and name in published.pools else ()
        reason = next((window.reason for window in windows if window.start <= at < window.end), None)
        for member, share in reason.placed.items() if reason else ():
            if member in group.classes:
                shares[group.classes.index(member), place_] = share
    right = np.abs(shares.sum(axis=1) - 1).max() < _EDGE and not shares[group.place < 0].any()
    spot = all(shares[k, those].sum() <= most + _EDGE for k, (those, most) in group.spot.items())
    long = all(shares[k, those].sum() >= least - _EDGE for k, (those, least) in group.long.items())
    return shares if right and spot and long else None


def _relaxations(
    config: Config, group: Group, shares: Floats, blocks: Blocks, limiting: Strings, times: list[datetime]
) -> list[Relaxation]:
    """Which limits would have to give, over runs of blocks; `limiting` [blocks, pools] names those of the pools."""
    over, beyond = shortage(group, replicas_of(group, shares, blocks), blocks)
    quotas = [quota for quota in config.quotas if any(quota.covers(config.pools[name]) for name in group.pools)]
    lacks = {
        limit: np.where(limiting[:, place_] == limit, over[:, place_], 0)
        for place_ in range(len(group.pools))
        for limit in dict.fromkeys(limiting[:, place_].tolist())
    }
    lacks |= {f"quota {quota.label}": beyond[:, place_] for place_, quota in enumerate(quotas)}
    return [
        Relaxation(times[run[0]], times[run[-1] + 1], limit, int(by[run].max()))
        for limit, by in lacks.items()
        for run in _runs(by > 0)
    ]


def _class_relaxations(group: Group, shares: Floats, blocks: Blocks, times: list[datetime]) -> list[Relaxation]:
    """Which limits of classes stand in the way where replicas or GPUs are lacked, and at what they would not."""
    over, beyond = shortage(group, replicas_of(group, shares, blocks), blocks)
    short = np.asarray(over.any(axis=1) | beyond.any(axis=1))
    if not short.any() or not (group.spot or group.long):
        return []
    soft = solve(group, blocks.at(short), exact=False, soft=True)
    found = []
    for key, limited, sign in (("max_spot_share", group.spot, 1), ("long_context.share", group.long, -1)):
        for one, (those, limit) in limited.items():
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
