"""Which triggers know enough to let replicas go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats
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
_LATENCIES = [Kind.TTFT_P95_S, Kind.TTFT_P95_S_PER_1K_PROMPT, Kind.ITL_P95_S]
_UTILIZATION_NEEDS = {"tokens": _RATES, "gpu": (Kind.GPU_UTILIZATION,), "kv_cache": (Kind.KV_CACHE_USAGE,)}
_ON_UTILIZATION = [Trigger.UTILIZATION, Trigger.STEP, Trigger.THRESHOLD]


def _matrix(rows: list[tuple[Kind, ...]]) -> Floats:
    """[rows, kinds]: 1 where the kind is in the row."""
    return np.array([[kind in row for kind in Kind] for row in rows], dtype=np.float64)


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
    spare[[Kind.TOKENS_IN_PER_S, Kind.WAITING_TOKENS_IN]] = np.isinf(settings.capacity_in)
    spare[[Kind.TOKENS_OUT_PER_S, Kind.WAITING_TOKENS_OUT]] = np.isinf(settings.capacity_out)
    # Where nothing is served there is no latency: a histogram's quantile is NaN then, and no reason to hold.
    silent = (observed.fresh & (signals.live == 0)) | spare
    spare[_LATENCIES] = silent[Kind.TOKENS_IN_PER_S] & silent[Kind.TOKENS_OUT_PER_S]
    fresh, not_fresh, never = observed.fresh & ~spare, ~(observed.fresh | spare), ~(observed.seen | spare)
    lost = not_fresh & ~never
    found = (_MATRIX @ np.array([not_fresh, never, fresh, lost], dtype=np.float64)) > 0
    lacks, absent, informed = _of_triggers(found[:3], np.array([not_fresh, never, fresh]), settings)
    missing = lacks | found[3, _USE]
    planned = signals.scheduled >= 0
    missing[Trigger.SCHEDULED], informed[Trigger.SCHEDULED] = ~planned, planned
    missing &= ~absent
    knows = settings.enabled & ~missing & ~absent
    return Unknown(
        missing=missing,
        absent=absent,
        load_known=(knows & _LOAD).any(axis=0),
        blind=np.logical_not((settings.enabled & informed).any(axis=0)),
        lost=lost,
    )


def _of_triggers(rows: Flags, flags: Flags, settings: Settings) -> Flags:
    """[states, triggers, lanes]: whether any signal that a trigger needs is in the state, from `rows` of _MATRIX and
    the `flags` [states, kinds, lanes] themselves."""
    found, use = rows[:, _NEED].copy(), rows[:, _NEED_OF_UTILIZATION]
    chosen = np.where(settings.utilization == UTILIZATIONS["tokens"], use[:, 0], use[:, 2])
    chosen = np.where(settings.utilization == UTILIZATIONS["gpu"], use[:, 1], chosen)
    found[:, _ON_UTILIZATION] = chosen[:, None]
    weighs = settings.score_weights > 0
    found[:, Trigger.SCORE] = (
        (chosen & weighs[0]) | (flags[:, Kind.WAITING_REQUESTS] & weighs[1]) | (flags[:, Kind.TTFT_P95_S] & weighs[2])
    )
    return found
