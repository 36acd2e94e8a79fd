"""From signals and state to a decision and the next state."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats, Ints
from scaling.overlay.knowledge import Unknown, unknown
from scaling.overlay.settings import Flags, Settings, Trigger
from scaling.overlay.signals import Signals
from scaling.overlay.smoothing import Observed, observe
from scaling.overlay.state import PACE_SLOTS, SLOTS, State
from scaling.overlay.triggers import Wishes, wishes
from scaling.overlay.windows import put, slot_of, within

_ROUNDING = 1e-9
_MOST_REPLICAS = 1e15
_MINUTE_S = 60.0


class Rule(IntEnum):
    """What may change the number, in the order in which it is applied."""

    TRIGGERS = 0
    STABILIZATION = 1
    FORECAST = 2
    COOLDOWN = 3
    PACE = 4
    DEAD_MAN = 5
    FLOOR = 6
    CEILING = 7


class Decision(NamedTuple):
    """What the overlay wants. Arrays are [lanes] unless said otherwise. `scaling.overlay.explain` puts it in words."""

    desired: Ints
    release: Ints
    """Replicas to drain now: those that are asked for and no longer desired."""
    current: Floats
    """Replicas asked for until now: the last decision, or what somebody raised it to."""
    after: Floats
    """[rules, lanes]: replicas after each rule."""
    wishes: Wishes
    unknown: Unknown
    observed: Observed
    panicking: Flags
    alert: Flags
    """Without any signal for the dead-man interval: somebody must look."""
    floor: Floats
    ceiling: Floats
    signals: Signals


def decide(signals: Signals, state: State, settings: Settings, now_s: float) -> tuple[Decision, State]:
    """One tick of all lanes at `now_s`, seconds of any one clock that goes on through restarts.

    Nothing that is passed is changed. The same arguments give the same result, and each lane's depends on that lane
    alone. The decision is between floor and ceiling; where they cross, the ceiling holds.
    """
    floor, ceiling = _bounds(signals, state, settings)
    current, outside = _current(signals, state, floor)
    observed, state = observe(signals, state, settings, now_s)
    known = unknown(signals, observed, settings)

    panicking, made, panic_until_s = _panic(signals, observed, state, settings, current, now_s)
    asked = _ask(made, known, settings, current)
    fresh_at_s = np.where(known.blind, np.minimum(state.fresh_at_s, now_s), now_s)
    dead = now_s - fresh_at_s >= settings.dead_man_s
    changed_at_s = np.where(outside, now_s, np.minimum(state.changed_at_s, now_s))
    out_at_s = np.minimum(state.out_at_s, now_s)

    stable, window = _stabilize(asked, current, panicking, state, settings, now_s)
    ahead = np.where(signals.floor_ahead >= 0, signals.floor_ahead, floor)
    kept = np.where(stable < current, np.maximum(stable, np.minimum(ahead, current)), stable)
    cool = np.where(
        kept > current,
        panicking | (now_s - out_at_s >= settings.out_cooldown_s),
        now_s - changed_at_s >= settings.in_cooldown_s,
    )
    cooled = np.where(cool, kept, current)
    pace_at = _pace_slot(len(current), now_s)
    paced = _pace(cooled, current, pace_at, state, settings)
    safe = np.where(dead, np.maximum(current, settings.safe_replicas), paced)
    floored = np.maximum(safe, floor)
    desired = np.minimum(floored, ceiling)

    reactive = np.minimum(paced, ceiling)
    moves = np.array([np.maximum(reactive - current, 0.0), np.maximum(current - desired, 0.0)])
    pace = state.pace_value, state.pace_slot
    if np.count_nonzero(moves):
        pace = put(*pace, pace_at, moves, combine=np.add)
    decision = Decision(
        desired=desired.astype(np.int64),
        release=np.maximum(current - desired, 0.0).astype(np.int64),
        current=current,
        after=np.array([asked, stable, kept, cooled, paced, safe, floored, desired]),
        wishes=made,
        unknown=known,
        observed=observed,
        panicking=panicking,
        alert=dead,
        floor=floor,
        ceiling=ceiling,
        signals=signals,
    )
    return decision, state._replace(
        desired=desired,
        requested=np.where(signals.requested >= 0, signals.requested, state.requested),
        floor=floor,
        fresh_at_s=fresh_at_s,
        panic_until_s=panic_until_s,
        out_at_s=np.where(reactive > current, now_s, out_at_s),
        changed_at_s=np.where(desired != current, now_s, changed_at_s),
        window_value=window[0],
        window_slot=window[1],
        pace_value=pace[0],
        pace_slot=pace[1],
    )


def _bounds(signals: Signals, state: State, settings: Settings) -> tuple[Floats, Floats]:
    """The floor, the one known last where it is missing now, and the ceiling."""
    floor, known = signals.floor, signals.floor >= 0
    if np.count_nonzero(known) < known.size:  # of so few lanes it takes a quarter of the time of `all`
        last = np.where(state.floor >= 0, state.floor, settings.min_replicas)
        floor = np.where(known, floor, last)
    floor = np.maximum(floor, settings.min_replicas)
    ceiling = np.where(signals.ceiling >= 0, signals.ceiling, settings.max_replicas)
    return _whole(floor), np.floor(np.minimum(ceiling, settings.max_replicas))


def _current(signals: Signals, state: State, floor: Floats) -> tuple[Floats, Flags]:
    """What is asked for until now, and whether somebody else just raised it.

    It is the last decision, not the pods counted: those of a rolling update's surge are there twice, and an applied
    decision takes a while to show. A workload that was scaled up from outside since is taken as it is.
    """
    raised, decided = signals.requested > np.fmax(state.desired, state.requested), state.desired >= 0
    until_now = np.where(raised, signals.requested, state.desired)
    if np.count_nonzero(decided) == decided.size:
        return until_now, raised
    pods = np.where(signals.ready >= 0, signals.ready, 0) + np.where(signals.starting >= 0, signals.starting, 0)
    unasked = np.where(signals.ready >= 0, pods, floor)
    at_first = np.where(signals.requested >= 0, signals.requested, unasked)
    return np.where(decided, until_now, at_first), raised & decided


def _panic(
    signals: Signals, observed: Observed, state: State, settings: Settings, current: Floats, now_s: float
) -> tuple[Flags, Wishes, Floats]:
    """Whether a panic begins or lasts, with the wishes, and until when."""
    made = wishes(signals, observed, settings, current)
    if not np.count_nonzero(settings.enabled[Trigger.PANIC]):
        return np.zeros(len(current), dtype=np.bool_), made, state.panic_until_s
    ready = np.maximum(np.where(signals.ready >= 0, signals.ready, current), 1)
    begins = settings.enabled[Trigger.PANIC] & (made.panic >= settings.panic_threshold * ready)
    panicking = begins | (settings.enabled[Trigger.PANIC] & (state.panic_until_s > now_s))
    made.up[Trigger.PANIC] = np.where(panicking, made.panic, -np.inf)
    made.down[Trigger.PANIC] = np.where(panicking, current, -np.inf)
    return panicking, made, np.where(begins, now_s + settings.panic_hold_s, state.panic_until_s)


def _ask(made: Wishes, known: Unknown, settings: Settings, current: Floats) -> Floats:
    """Up to the most that any trigger asks for; down to what contents them all, none of which may lack a signal."""
    contents = np.where(known.missing, np.inf, np.where(known.absent, -np.inf, made.down))
    up, down = _whole(np.where(settings.enabled, np.array([made.up, contents]), -np.inf).max(axis=1))
    lower = np.where(known.load_known, np.minimum(np.maximum(down, up), current), current)
    return np.where(up > current, up, lower)


def _stabilize(
    asked: Floats, current: Floats, panicking: Flags, state: State, settings: Settings, now_s: float
) -> tuple[Floats, tuple[Floats, Ints]]:
    """As HPA: raise to the least, let go to the most that was asked for within the window. A window of which nothing is
    known, at the start or after a pause, begins with what there is."""
    at = slot_of(now_s, np.array([settings.out_window_s, settings.in_window_s]), SLOTS)
    pause_s = np.maximum(settings.in_window_s, settings.dead_man_s)
    blank = np.isnan(state.desired) | (now_s - state.fresh_at_s > pause_s)
    # Least and most in one array: the least is the most of the negative.
    new = np.array([-asked, np.where(blank, np.maximum(asked, current), asked)])
    values, slots = put(state.window_value, state.window_slot, at, new, combine=np.maximum)
    least, most = np.where(within(slots, at), values, -np.inf).max(axis=-2)
    raised = np.where(panicking, asked, np.maximum(-least, current))
    return np.where(asked > current, raised, np.minimum(np.maximum(most, asked), current)), (values, slots)


def _pace(wanted: Floats, current: Floats, at: Ints, state: State, settings: Settings) -> Floats:
    """No more replicas added, and let go, within a minute than allowed: a count, or a share of what was there."""
    if not np.count_nonzero(wanted != current):
        return wanted
    added, let_go = np.where(within(state.pace_slot, at), state.pace_value, 0).sum(axis=-2)
    most_out = np.maximum(settings.out_per_minute, _whole(settings.out_share_per_minute * (current - added)))
    most_in = np.maximum(settings.in_per_minute, _whole(settings.in_share_per_minute * (current + let_go)))
    highest = current + np.maximum(most_out - added, 0)
    lowest = current - np.maximum(most_in - let_go, 0)
    paced: Floats = np.minimum(np.maximum(wanted, lowest), highest)
    return paced


def _pace_slot(lanes: int, now_s: float) -> Ints:
    """[2, lanes]"""
    return np.full((2, lanes), math.floor(now_s * (PACE_SLOTS - 1) / _MINUTE_S), dtype=np.int64)


def _whole(replicas: Floats) -> Floats:
    """Up to whole replicas, from 0 on; float noise does not buy one."""
    finite = np.minimum(np.maximum(replicas, 0.0), _MOST_REPLICAS)
    return np.maximum(np.ceil(finite - _ROUNDING * np.maximum(finite, 1.0)), 0.0)
