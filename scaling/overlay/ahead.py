"""What the floors will want within the time that makes letting a replica go worth it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from floorcast.pool import Pool
from scaling.capacity import Ints


def floors_ahead(floors: npt.ArrayLike, *, window_s: float, pool: Pool) -> Ints:
    """[windows, ...]: the highest of the pool's floors from any time in a window to startup p90 + `min_uptime` later.

    `floors` [windows, ...] follow one another, each `window_s` long; the last holds on. A replica let go although it is
    wanted again within that time would have to start anew, for less than its least time of serving.
    """
    replicas = np.asarray(floors, dtype=np.int64)
    width = math.ceil((pool.startup.p90 + pool.overlay.min_uptime).total_seconds() / window_s) + 1
    held = np.concatenate([replicas, np.repeat(replicas[-1:], width - 1, axis=0)])
    highest: Ints = np.lib.stride_tricks.sliding_window_view(held, width, axis=0).max(axis=-1)
    return highest
