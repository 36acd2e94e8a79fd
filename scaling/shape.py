"""How gently floors move: they hold after they are needed, then step down. Nothing here lowers a floor below need.

Both rules depend on past floors only through numbers that were published, and on the time of a fall only
through the step grid, so that publications that follow one another continue each other's descent. Both are
maxima over their inputs: a larger input never gives a smaller floor.
"""

from __future__ import annotations

import numpy as np

from scaling.capacity import Ints


def hold(wanted: Ints, *, published: Ints, dwell_steps: int) -> Ints:
    """Hold what is wanted in one window through the `dwell_steps - 1` windows after it.

    `wanted` is [windows]. `published` is [1 + windows]: what was published before for the window just before the
    first and for each window, 0 for nothing. What was published for the first `dwell_steps - 1` windows stays, so
    a floor already in force keeps its dwell through the publications after it.
    """
    held = wanted.copy()
    for lag in range(1, min(dwell_steps, len(wanted))):
        held[lag:] = np.maximum(held[lag:], wanted[:-lag])
    promised = published[1 : max(dwell_steps, 1)]
    held[: len(promised)] = np.maximum(held[: len(promised)], promised)
    return held


def descend(held: Ints, *, before: int, first_index: int, step_down: int, every_steps: int) -> Ints:
    """Fall by at most `step_down` replicas in any `every_steps` windows, starting from `before`.

    Falls happen at windows whose index from the Unix epoch, `first_index` for the first, divides by
    `every_steps`. In full: floor[i] = max(held[i], floor[i - 1] - allowed[i]).
    """
    index = first_index + np.arange(len(held))
    fallen: Ints = np.cumsum(np.where(index % every_steps == 0, step_down, 0))
    floors: Ints = np.maximum(np.maximum.accumulate(held + fallen), before) - fallen
    return floors
