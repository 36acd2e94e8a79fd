"""GPU quotas: where the floors of several pools do not fit, who is short. Pure, as arrays over windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from floorcast.config import Config
from floorcast.quota import Quota
from scaling.capacity import Floats, Ints

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claim:
    """What one pool asks of the quotas.

    `floors` [windows] is asked for, `least` [windows] of it is never cut. `parts` [classes, windows] is the share
    of the floor that each of its `classes` is the cause of. Of the floor, `beyond_need` [windows] replicas are
    held or guessed, but not needed: they come after all that are.
    """

    floors: Ints
    least: Ints
    classes: tuple[str, ...]
    parts: Floats
    beyond_need: Ints


@dataclass(frozen=True)
class Use:
    """GPUs of a quota in use by window, after the cut: `gpus` is [windows]."""

    quota: Quota
    gpus: Ints


def ration(config: Config, claims: Mapping[str, Claim]) -> tuple[dict[str, Ints], list[Use]]:
    """Floors [windows] of every pool that a quota covers, which keep all quotas, and how much of each they use.

    In a window in which the floors of a quota's pools exceed it, every pool first keeps its `least`; then replicas
    are granted class by class in order of their rank, as far as each class's part of its pools' floors goes; within one
    rank the pools' served shares of what they ask for keep the proportion of the classes' weights, in whole
    replicas. A pool whose next replica does not fit gets no more. Other windows stay as they are.
    """
    names = [name for name in claims if any(quota.covers(config.pools[name]) for quota in config.quotas)]
    if not names:
        return {}, []
    sizes = np.array([config.pools[name].gpu.per_replica for name in names])
    takes = sizes * np.array([[quota.covers(config.pools[name]) for name in names] for quota in config.quotas])
    room = np.array([quota.gpus for quota in config.quotas])
    asked = np.stack([claims[name].floors for name in names])
    granted = asked.copy()
    short = np.flatnonzero((takes @ asked > room[:, None]).any(axis=0))
    if short.size:
        layers = [_layers(config, claims[name], short) for name in names]
        least = np.stack([np.minimum(claims[name].least, claims[name].floors)[short] for name in names])
        for place, window in enumerate(short):
            more = _grant(
                [(upto[:, place], weight[:, place]) for upto, weight in layers],
                least[:, place],
                takes,
                room - takes @ least[:, place],
            )
            granted[:, window] = least[:, place] + more
    uses = [Use(quota, takes[place] @ granted) for place, quota in enumerate(config.quotas)]
    return dict(zip(names, granted, strict=True)), uses


def _layers(config: Config, claim: Claim, windows: Ints) -> tuple[Ints, Floats]:
    """Replicas asked for down to each rank of the fleet, and the weight of what each adds: [ranks + 1, windows].

    The last layer is what is beyond the need.
    """
    ranks = sorted({spec.rank for spec in config.classes.values()}, reverse=True)
    floors, parts = claim.floors[windows], claim.parts[:, windows]
    sure = floors - claim.beyond_need[windows]
    upto, weights = [], []
    reached = np.zeros(len(windows))
    for level in ranks:
        own = [place for place, name in enumerate(claim.classes) if config.classes[name].rank == level]
        each = parts[own]
        weight = np.array([config.classes[claim.classes[place]].weight for place in own])
        reached = reached + each.sum(axis=0)
        whole = np.ceil(sure * np.minimum(reached, 1) - _ROUNDING * np.maximum(sure, 1))
        upto.append(whole.astype(np.int64))
        total = each.sum(axis=0)
        weights.append(np.where(total > 0, weight @ each / np.where(total > 0, total, 1), 1.0))
    upto[-1] = sure
    return np.stack([*upto, floors]), np.stack([*weights, np.ones(len(windows))])


def _grant(layers: Sequence[tuple[Ints, Floats]], least: Ints, takes: Ints, room: Ints) -> Ints:
    """Replicas beyond `least` for each pool in one window: [pools].

    `takes` [quotas, pools] is the GPUs of a quota that one replica takes, `room` [quotas] what is left of it.
    """
    pools, levels, served = [], [], []
    for pool, (upto, weight) in enumerate(layers):
        reached = np.maximum(upto, least[pool])
        for level, (asked, already) in enumerate(zip(reached, [least[pool], *reached[:-1]], strict=True)):
            wanted = int(asked - already)
            pools.append(np.full(wanted, pool))
            levels.append(np.full(wanted, level))
            served.append(np.arange(1, wanted + 1) / (weight[level] * max(wanted, 1)))
    asking = np.concatenate(pools)
    queue = asking[np.lexsort((asking, np.concatenate(served), np.concatenate(levels)))]
    granted = np.zeros(len(layers), dtype=np.int64)
    while queue.size:
        fits = (np.cumsum(takes[:, queue], axis=1) <= room[:, None]).all(axis=0)
        until = len(queue) if fits.all() else int(fits.argmin())
        granted += np.bincount(queue[:until], minlength=len(layers))
        room = room - takes[:, queue[:until]].sum(axis=1)
        stuck = np.flatnonzero((takes > room[:, None]).any(axis=0))
        queue = queue[until:][~np.isin(queue[until:], stuck)]
    return granted
