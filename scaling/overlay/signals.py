"""What the overlay is told at one tick."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scaling.capacity import Floats


class Kind(IntEnum):
    """The live signals, in the order of the rows of `Signals.live`."""

    TOKENS_IN_PER_S = 0
    """Prompt tokens per second, all replicas together, without those that a prefix cache holds."""
    TOKENS_OUT_PER_S = 1
    """Generated tokens per second, all replicas together."""
    WAITING_REQUESTS = 2
    """Requests queued, all replicas and gateways together."""
    WAITING_TOKENS_IN = 3
    """Their prompt tokens; where engines do not tell, requests times the mean prompt length."""
    WAITING_TOKENS_OUT = 4
    """The tokens that they are expected to generate: requests times the mean length of answers."""
    KV_CACHE_USAGE = 5
    """Share of the KV cache in use, 0 to 1, mean over the ready replicas."""
    TTFT_P95_S = 6
    """p95 time to first token in seconds."""
    TTFT_P95_S_PER_1K_PROMPT = 7
    """The same per 1,000 prompt tokens."""
    ITL_P95_S = 8
    """p95 inter-token latency in seconds."""
    GPU_UTILIZATION = 9
    """Share of the time that GPUs were busy, 0 to 1, mean over the ready replicas."""


class Signals(NamedTuple):
    """A snapshot, float64 arrays whose last axis is the lane. NaN is missing, never zero."""

    live: Floats
    """[kinds, lanes]: the value of each `Kind`."""
    age_s: Floats
    """[kinds, lanes]: how old each value is. A value of unknown age is missing."""
    ready: Floats
    """[lanes]: replicas that serve."""
    starting: Floats
    """[lanes]: replicas asked for that do not serve yet."""
    draining: Floats
    """[lanes]: replicas that finish their requests and then go; neither ready nor starting."""
    requested: Floats
    """[lanes]: replicas the workload is asked to have (`spec.replicas`); missing where decisions are not applied."""
    floor: Floats
    """[lanes]: the published floor now."""
    ceiling: Floats
    """[lanes]: the most replicas allowed now, by schedule or quota."""
    floor_ahead: Floats
    """[lanes]: the highest floor from now to a startup time and minimum uptime later."""
    ahead: Floats
    """[lanes]: the load that a replica asked for now is to serve, in replicas at full use, for `lookahead`."""
    scheduled: Floats
    """[lanes]: replicas that the calendar asks for now, for `scheduled`."""


def snapshot(lanes: int, *, age_s: npt.ArrayLike = 0.0, **values: npt.ArrayLike) -> Signals:
    """Signals of so many lanes by name: kinds in lower case (`tokens_in_per_s=...`) and fields of `Signals`.

    Values are scalars or [lanes]; `age_s` may be [kinds, lanes] too. What is not named is missing.

    >>> snapshot(2, tokens_in_per_s=[900, 1200], ready=4).live[:2].tolist()
    [[900.0, 1200.0], [nan, nan]]
    """
    live = np.full((len(Kind), lanes), np.nan)
    rest = {name: np.full(lanes, np.nan) for name in Signals._fields[2:]}
    for name, value in values.items():
        if name in rest:
            rest[name][:] = value
        else:
            live[Kind[name.upper()]] = value
    return Signals(live, np.broadcast_to(np.asarray(age_s, dtype=np.float64), live.shape).copy(), **rest)
