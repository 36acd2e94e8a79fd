"""What is known of each signal: fresh, stale or never seen, its mean, and whether a queue is to be believed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats
from scaling.overlay.settings import RATES, Flags, Settings
from scaling.overlay.signals import Kind, Signals
from scaling.overlay.state import QUEUES, State

_ROWS = np.array([*Kind, *RATES])
"""The kinds of the rows of `State.mean`."""
_LARGEST = 1e15
"""Anything above is not a measurement."""
_IDLE = 0.25
"""Share of the capacity below which replicas beside a queue are idle, whatever the engine's capacity really is."""
_DRAINED = 0.99
"""A queue has moved when it is under this share of what it was when it moved last."""


class Observed(NamedTuple):
    """[kinds, lanes] unless said otherwise."""

    fresh: Flags
    seen: Flags
    """Fresh now or at some time before."""
    mean: Floats
    """[kinds + 2, lanes]; 0 where not fresh, which asks for nothing. What may be let go looks at `fresh` first."""
    stuck: Flags
    """[3, lanes]: queues that are not believed."""


def observe(signals: Signals, state: State, settings: Settings, now_s: float) -> tuple[Observed, State]:
    """Update the means with what is fresh.

    The mean is exponential: a sample's weight falls by e in half a window, so that the samples' mean age is that of
    a plain mean over the window, whatever the time between ticks.
    """
    live = signals.live
    # A value below zero is a counter that was reset. Comparisons with NaN are false, so what is missing is not fresh.
    fresh = live >= 0.0
    fresh &= live <= _LARGEST
    fresh &= signals.age_s <= settings.stale_after_s
    since_s = np.maximum(now_s - state.seen_at_s, 0.0)
    panic_s = settings.panic_window_s[None]
    window_s = np.concatenate([settings.window_s, panic_s, panic_s])
    is_fresh = fresh.take(_ROWS, axis=0)
    values = np.where(is_fresh, live.take(_ROWS, axis=0), 0.0)
    kept = np.exp(-since_s.take(_ROWS, axis=0) / np.maximum(window_s / 2, 1e-9))
    mean = np.where(is_fresh, values + kept * (state.mean - values), state.mean)
    seen_at_s = np.where(fresh, now_s, state.seen_at_s)
    state = state._replace(mean=mean, seen_at_s=seen_at_s)
    observed = Observed(
        fresh=fresh,
        seen=seen_at_s > -np.inf,
        mean=np.where(is_fresh, mean, 0.0),
        stuck=np.zeros((3, live.shape[1]), dtype=np.bool_),
    )
    return _believe(observed, signals, state, settings, now_s)


def _believe(
    observed: Observed, signals: Signals, state: State, settings: Settings, now_s: float
) -> tuple[Observed, State]:
    """Find queues that are stuck, and take them as empty.

    A queue is stuck when, beside ready replicas, it has not changed at all for `stuck_after_s`, or has not become
    smaller while the token rate left three quarters of the replicas' capacity idle. A true backlog does
    neither: it drains, or the replicas are busy.
    """
    queue, fresh = signals.live[QUEUES], observed.fresh[QUEUES]
    in_ = observed.mean[Kind.TOKENS_IN_PER_S] / settings.capacity_in
    out = observed.mean[Kind.TOKENS_OUT_PER_S] / settings.capacity_out
    known = (observed.fresh[Kind.TOKENS_IN_PER_S] | np.isinf(settings.capacity_in)) & (
        observed.fresh[Kind.TOKENS_OUT_PER_S] | np.isinf(settings.capacity_out)
    )
    idle = known & (np.maximum(in_, out) < _IDLE * signals.ready)
    same = queue == state.queue
    waits = (queue > 0.0) & (signals.ready > 0.0) & (same | (idle & (queue >= _DRAINED * state.queue_level)))
    moved = np.greater(fresh, waits)  # fresh, and does not wait
    moved_at_s = np.where(moved, now_s, np.minimum(state.queue_moved_at_s, now_s))
    level = np.where(moved, queue, state.queue_level)
    stuck = fresh & waits & (now_s - moved_at_s >= settings.stuck_after_s)
    state = state._replace(queue=np.where(fresh, queue, state.queue), queue_level=level, queue_moved_at_s=moved_at_s)
    if not np.count_nonzero(stuck):
        return observed, state
    mean = observed.mean.copy()
    mean[QUEUES] = np.where(stuck, 0, mean[QUEUES])
    return observed._replace(mean=mean, stuck=stuck), state
