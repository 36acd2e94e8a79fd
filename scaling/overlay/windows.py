"""Extremes and sums over a sliding window, kept in a few slots of time whatever the time between ticks.

A window is covered by whole slots and the one that is running: it is never shorter than asked for, and longer by less
than a slot. Slots from after `now`, left by a clock that was set back, count until they are passed.
"""

from __future__ import annotations

import numpy as np

from scaling.capacity import Floats, Ints
from scaling.overlay.settings import Flags


def slot_of(now_s: float, window_s: Floats, slots: int) -> Ints:
    """The running slot of windows of `window_s`, each kept in `slots` slots."""
    return np.floor(now_s / np.maximum(window_s / (slots - 1), 1e-3)).astype(np.int64)


def put(values: Floats, slots: Ints, at: Ints, value: Floats, *, combine: np.ufunc) -> tuple[Floats, Ints]:
    """Combine `value` with what its slot holds. Shapes: [windows, slots, lanes], and [windows, lanes]."""
    windows, width, lanes = values.shape
    here = np.arange(windows)[:, None], at % width, np.arange(lanes)
    kept = np.where(slots[here] == at, combine(values[here], value), value)
    values, slots = values.copy(), slots.copy()
    values[here], slots[here] = kept, at
    return values, slots


def within(slots: Ints, at: Ints) -> Flags:
    """[..., slots, lanes]: the slots inside the window that ends in slot `at`."""
    inside: Flags = at[..., None, :] - slots < slots.shape[-2]
    return inside
