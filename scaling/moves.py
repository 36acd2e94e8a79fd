"""The rules that move a floor after its buffers, in the order they apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from floorcast.pool import MOST_REPLICAS, PoolSettings
from floorcast.types import Rule
from scaling.capacity import Ints
from scaling.ladder import Grid
from scaling.shape import descend, hold, stay, whole_multiples

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Limits:
    """What rules in local time say of each window.

    `minimums` [windows] are replicas, 0 where no rule asks for one; `ceilings` [windows] are replicas, MOST_REPLICAS
    where no rule sets one. `minimum_rules` and `ceiling_rules` name for each window the rule that set its number, ""
    where none did.
    """

    minimums: Ints
    ceilings: Ints
    minimum_rules: Sequence[str]
    ceiling_rules: Sequence[str]


@dataclass(frozen=True)
class Move:
    """A rule after the buffers: the replicas [windows] after it, and for each window the name of who set them."""

    rule: Rule
    after: Ints
    names: Sequence[str] | None = None


def no_limits(windows: int) -> Limits:
    unnamed = [""] * windows
    return Limits(np.zeros(windows, dtype=np.int64), np.full(windows, MOST_REPLICAS), unnamed, unnamed)


def lower_bound(pool: PoolSettings, *, idle: bool) -> int:
    """The lowest floor: `bounds.min`, but one replica where that is 0 and demand does not stay low."""
    return pool.bounds.min if idle else max(pool.bounds.min, 1)


def moves(
    pool: PoolSettings,
    wanted: Ints,
    grid: Grid,
    *,
    idle: Flags,
    before: Ints,
    degraded: Flags,
    limits: Limits,
    closed: bool = False,
) -> tuple[tuple[Move, ...], Ints]:
    """The rules in the order of `floorcast.types.RULES`, and the shortfall [windows].

    `idle` says in which windows demand stays low enough for no replica, `before` [1 + windows] is what was published
    for the step before the grid and from there on, and `degraded` says which windows are not below that. Where the gate
    is `closed` nothing is wanted: minimums are left, to which floors come down as gently as ever. What was published
    applies after the dwell: held on again, each publication would carry it further. A ceiling comes last, so that
    neither what was published nor a gentle descent lifts a floor over it.
    """
    bounds, shape = pool.bounds, pool.shape
    # What was published under other bounds or multiples.
    before = np.minimum(whole_multiples(before, shape.multiple_of), bounds.highest)
    gated = np.zeros_like(wanted) if closed else wanted
    scheduled = np.maximum(gated, limits.minimums)
    raised = np.maximum(scheduled, np.where(idle, lower_bound(pool, idle=True), lower_bound(pool, idle=False)))
    multiples = whole_multiples(raised, shape.multiple_of)
    bounded = np.minimum(multiples, bounds.highest)
    held = hold(bounded, published=before, dwell_steps=steps_of(shape.dwell, grid.step))
    kept = np.where(degraded, np.maximum(held, before[1:]), held)
    stayed = stay(kept, published=before[1:], hysteresis=shape.hysteresis)
    floors = descend(
        stayed,
        before=int(before[0]),
        first_index=grid.first_index,
        step_down=shape.step_down,
        every_steps=steps_of(shape.every, grid.step),
        multiple_of=shape.multiple_of,
    )
    rules = (
        Move("gate", gated),
        Move("scheduled_minimum", scheduled, limits.minimum_rules),
        Move("min_replicas", raised),
        Move("multiple_of", multiples),
        Move("max_replicas", bounded),
        Move("dwell", held),
        Move("already_published", kept),
        Move("hysteresis", stayed),
        Move("step_down", floors),
        Move("ceiling", np.minimum(floors, limits.ceilings), limits.ceiling_rules),
    )
    return rules, np.maximum(multiples - np.minimum(bounded, limits.ceilings), 0)


def steps_of(duration: timedelta, step: timedelta) -> int:
    """Whole steps that last at least `duration`, never none."""
    return max(1, -(-duration // step))
