"""Which triggers know enough to let replicas go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scaling.overlay.settings import UTILIZATIONS, Flags, Settings, Trigger
from scaling.overlay.signals import Kind, Signals
from scaling.overlay.smoothing import Observed

_RATES = (Kind.TOKENS_IN_PER_S, Kind.TOKENS_OUT_PER_S)
_NEEDS: dict[Trigger, tuple[Kind, ...]] = {
    Trigger.TOKEN_RATE: _RATES,
    Trigger.BACKLOG: (*_RATES, Kind.WAITING_TOKENS_IN),
    Trigger.WAITING: (Kind.WAITING_REQUESTS,),
    Trigger.KV_CACHE: (Kind.KV_CACHE_USAGE,),
    Trigger.GPU_UTILIZATION: (Kind.GPU_UTILIZATION,),
    Trigger.LOOKAHEAD: _RATES,
    Trigger.TTFT: (Kind.TTFT_P95_S,),
    Trigger.TTFT_PER_1K_PROMPT: (Kind.TTFT_P95_S_PER_1K_PROMPT,),
    Trigger.ITL: (Kind.ITL_P95_S,),
    Trigger.PANIC: _RATES,
}
_USES: dict[Trigger, tuple[Kind, ...]] = {
    Trigger.BACKLOG: (Kind.WAITING_TOKENS_OUT,),
    Trigger.LOOKAHEAD: (Kind.WAITING_TOKENS_IN, Kind.WAITING_TOKENS_OUT),
}
"""Signals that a trigger uses where the pool has them."""
_RATE_ROWS = slice(Kind.TOKENS_IN_PER_S, Kind.TOKENS_OUT_PER_S + 1)
_LATENCIES = slice(Kind.TTFT_P95_S, Kind.ITL_P95_S + 1)
_UTILIZATION_NEEDS = {"tokens": _RATES, "gpu": (Kind.GPU_UTILIZATION,), "kv_cache": (Kind.KV_CACHE_USAGE,)}
_ON_UTILIZATION = (Trigger.UTILIZATION, Trigger.STEP, Trigger.THRESHOLD)


def _matrix(rows: list[tuple[Kind, ...]]) -> npt.NDArray[np.float32]:
    """[rows, kinds]: 1 where the kind is in the row. Single precision counts kinds as well, in half the time."""
    return np.array([[kind in row for kind in Kind] for row in rows], dtype=np.float32)


_MATRIX = np.concatenate(
    [
        _matrix([_NEEDS.get(trigger, ()) for trigger in Trigger]),
        _matrix([_USES.get(trigger, ()) for trigger in Trigger]),
        _matrix([_UTILIZATION_NEEDS[name] for name in UTILIZATIONS]),
    ]
)
"""One matrix, since a product takes as long as many sums of lanes."""
_NEED, _USE = slice(0, len(Trigger)), slice(len(Trigger), 2 * len(Trigger))
_NEED_OF_UTILIZATION = slice(2 * len(Trigger), None)

_NO_LOAD = (Trigger.WAITING, Trigger.TTFT, Trigger.TTFT_PER_1K_PROMPT, Trigger.ITL, Trigger.PANIC)
_LOAD = np.array([[trigger not in _NO_LOAD] for trigger in Trigger])
"""[triggers, 1]. Without a trigger that measures load nothing is let go: an empty queue says that there is enough, not
how much too much there is."""


class Unknown(NamedTuple):
    """[triggers, lanes] unless said otherwise."""

    missing: Flags
    """It lacks a signal that it has had: it holds."""
    absent: Flags
    """It lacks a signal that the pool never had: it has no say in letting go."""
    load_known: Flags
    """[lanes]: an enabled trigger measures load."""
    blind: Flags
    """[lanes]: no enabled trigger has any signal."""
    lost: Flags
    """[kinds, lanes]: signals that were there, are not fresh, and are missed."""


def unknown(signals: Signals, observed: Observed, settings: Settings) -> Unknown:
    """What each trigger lacks."""
    spare = np.zeros_like(observed.fresh)
    spare[Kind.TOKENS_IN_PER_S] = spare[Kind.WAITING_TOKENS_IN] = np.isinf(settings.capacity_in)
    spare[Kind.TOKENS_OUT_PER_S] = spare[Kind.WAITING_TOKENS_OUT] = np.isinf(settings.capacity_out)
    # Where nothing is served there is no latency: a histogram's quantile is NaN then, and no reason to hold.
    silent = (observed.fresh[_RATE_ROWS] & (signals.live[_RATE_ROWS] == 0)) | spare[_RATE_ROWS]
    spare[_LATENCIES] = silent[0] & silent[1]
    states = np.empty((4, *spare.shape), dtype=np.bool_)
    not_fresh, never, fresh, lost = states
    np.logical_not(observed.fresh | spare, out=not_fresh)
    np.logical_not(observed.seen | spare, out=never)
    np.greater(observed.fresh, spare, out=fresh)  # the one and not the other
    np.greater(not_fresh, never, out=lost)
    found = (_MATRIX @ states.astype(np.float32)) > 0
    lacks, absent, informed = _of_triggers(found[:3], states, settings)
    missing = lacks | found[3, _USE]
    planned = signals.scheduled >= 0
    missing[Trigger.SCHEDULED], informed[Trigger.SCHEDULED] = ~planned, planned
    knows = settings.enabled & ~(missing | absent) & _LOAD
    missing &= ~absent
    return Unknown(
        missing=missing,
        absent=absent,
        load_known=np.logical_or.reduce(knows, axis=0),
        blind=~np.logical_or.reduce(settings.enabled & informed, axis=0),
        lost=lost,
    )


def _of_triggers(rows: Flags, flags: Flags, settings: Settings) -> Flags:
    """[states, triggers, lanes]: whether any signal that a trigger needs is in the state, from `rows` of _MATRIX and
    the `flags` [states, kinds, lanes] themselves, which may be of more states."""
    found, use = rows[:, _NEED].copy(), rows[:, _NEED_OF_UTILIZATION]
    chosen = np.where(settings.utilization == UTILIZATIONS["tokens"], use[:, 0], use[:, 2])
    chosen = np.where(settings.utilization == UTILIZATIONS["gpu"], use[:, 1], chosen)
    for trigger in _ON_UTILIZATION:
        found[:, trigger] = chosen
    weighs, flags = settings.score_weights > 0, flags[: len(rows)]
    found[:, Trigger.SCORE] = (
        (chosen & weighs[0]) | (flags[:, Kind.WAITING_REQUESTS] & weighs[1]) | (flags[:, Kind.TTFT_P95_S] & weighs[2])
    )
    return found
