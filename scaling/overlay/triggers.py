"""What each trigger asks for: at least so many replicas, and so many that would content it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scaling.capacity import Floats
from scaling.overlay.settings import UTILIZATIONS, Flags, Settings, Trigger
from scaling.overlay.signals import Kind, Signals
from scaling.overlay.smoothing import Observed

_MOST_AT_ONCE = 2.0
"""Latency and queues do not measure how many replicas are missing: 13 % more load can make a latency ten times as long.
Past its target, latency or a score asks for at most this multiple of the ready replicas."""

_PROPORTIONAL = slice(Trigger.TOKEN_RATE, Trigger.LOOKAHEAD + 1)
_LATENCIES = slice(Trigger.TTFT, Trigger.ITL + 1)


class Wishes(NamedTuple):
    """[triggers, lanes] unless said otherwise. A trigger that lacks a signal asks for what the rest justifies."""

    value: Floats
    """What was measured."""
    target: Floats
    up: Floats
    """Replicas asked for, not rounded; -inf for none."""
    down: Floats
    """Replicas that would content it, not rounded; -inf for any number."""
    panic: Floats
    """[lanes]: replicas that the panic window asks for, panic or not."""


class _Loads(NamedTuple):
    """[lanes], in replicas at full use."""

    rate: Floats
    with_backlog: Floats
    ahead: Floats
    panic: Floats


def wishes(signals: Signals, observed: Observed, settings: Settings, current: Floats) -> Wishes:
    """What each trigger makes of the means.

    `current` [lanes] is what is asked for now. What is not fresh counts as 0 here, which can only make `up` smaller;
    `down` is believed by no one while it is so. A trigger that is on in no lane asks for nothing.
    """
    ready = np.where(signals.ready >= 0.0, signals.ready, current)
    loads = _loads(observed, settings, signals)
    each = _per(np.array(loads[:3]), ready)
    used = _utilization(each[0], observed, settings)
    shape = (len(Trigger), len(current))
    made = Wishes(
        value=np.full(shape, np.nan),
        target=np.full(shape, np.nan),
        up=np.full(shape, -np.inf),
        down=np.full(shape, -np.inf),
        panic=loads.panic / settings.target_utilization,
    )
    on: Flags = np.logical_or.reduce(settings.enabled, axis=1)
    _proportional(made, loads, each, used, observed, settings, ready, current)
    if np.count_nonzero(on[_LATENCIES]):
        _latencies(made, observed, settings, ready, current)
    if on[Trigger.SCORE]:
        _score(made, used, observed, settings, ready, current)
    if on[Trigger.STEP] or on[Trigger.THRESHOLD]:
        _stepwise(made, used, settings, ready, current)
    if on[Trigger.SCHEDULED]:
        planned = signals.scheduled >= 0
        made.value[Trigger.SCHEDULED] = made.target[Trigger.SCHEDULED] = signals.scheduled
        made.up[Trigger.SCHEDULED] = np.where(planned, signals.scheduled, -np.inf)
        made.down[Trigger.SCHEDULED] = np.where(planned, signals.scheduled, current)
    if on[Trigger.PANIC]:
        made.value[Trigger.PANIC] = _per(made.panic, ready)
        made.target[Trigger.PANIC] = settings.panic_threshold
    return made


def _loads(observed: Observed, settings: Settings, signals: Signals) -> _Loads:
    """The token rates against the capacity of one replica: alone, with what waits served within the time for it, the
    latter of the load ahead where that is more, and over the panic window. Formulas of `scaling.capacity`."""
    mean, drain_s = observed.mean, settings.drain_backlog_s
    rate_in, rate_out = mean[Kind.TOKENS_IN_PER_S], mean[Kind.TOKENS_OUT_PER_S]
    waiting_in, waiting_out = mean[Kind.WAITING_TOKENS_IN], mean[Kind.WAITING_TOKENS_OUT]
    drain_in, drain_out = waiting_in / drain_s, waiting_out / drain_s
    in_ = np.array([rate_in, rate_in + drain_in, drain_in, mean[-2] + drain_in]) / settings.capacity_in
    out = np.array([rate_out, rate_out + drain_out, drain_out, mean[-1] + drain_out]) / settings.capacity_out
    rate, with_backlog, backlog, panic = np.where(settings.combine_sum, in_ + out, np.maximum(in_, out))
    # What is there now is served until then, whatever it comes to.
    return _Loads(rate, with_backlog, np.fmax(with_backlog, signals.ahead + backlog), panic)


def _utilization(rate: Floats, observed: Observed, settings: Settings) -> Floats:
    """What the lane calls utilization: [lanes], 0 to 1 and above. `rate` is the load for each ready replica."""
    gpu, kv_cache = observed.mean[Kind.GPU_UTILIZATION], observed.mean[Kind.KV_CACHE_USAGE]
    tokens = settings.utilization == UTILIZATIONS["tokens"]
    return np.where(tokens, rate, np.where(settings.utilization == UTILIZATIONS["gpu"], gpu, kv_cache))


def _proportional(
    made: Wishes,
    loads: _Loads,
    each: Floats,
    used: Floats,
    observed: Observed,
    settings: Settings,
    ready: Floats,
    current: Floats,
) -> None:
    """Target tracking, ceil(ready x value / target), on each: as HPA's, with a tolerance on the way out only. `each`
    are the loads by ready replica."""
    mean, aim = observed.mean, settings.target_utilization
    waiting, kv_cache, gpu = mean[Kind.WAITING_REQUESTS], mean[Kind.KV_CACHE_USAGE], mean[Kind.GPU_UTILIZATION]
    tokens = settings.utilization == UTILIZATIONS["tokens"]
    made.value[_PROPORTIONAL] = np.array(
        [
            each[0],
            each[1],
            _per(waiting, current),
            kv_cache,
            gpu,
            used,
            each[2],
        ]
    )
    made.target[_PROPORTIONAL] = np.array(
        [aim, aim, settings.waiting_target, settings.kv_cache_target, settings.gpu_target, aim, aim]
    )
    total = np.array(
        [
            loads.rate,
            loads.with_backlog,
            waiting,
            ready * kv_cache,
            ready * gpu,
            np.where(tokens, loads.rate, ready * np.where(tokens, 0.0, used)),
            loads.ahead,
        ]
    )
    replicas = total / made.target[_PROPORTIONAL]
    enough = replicas <= current * (1 + settings.out_tolerance)
    made.up[_PROPORTIONAL] = np.where(enough, np.minimum(replicas, current), replicas)
    made.down[_PROPORTIONAL] = replicas / (1 - settings.in_hysteresis)


def _latencies(made: Wishes, observed: Observed, settings: Settings, ready: Floats, current: Floats) -> None:
    made.value[_LATENCIES] = observed.mean[Kind.TTFT_P95_S : Kind.ITL_P95_S + 1]
    made.target[_LATENCIES] = np.array([settings.ttft_target_s, settings.ttft_per_1k_target_s, settings.itl_target_s])
    ratio = made.value[_LATENCIES] / made.target[_LATENCIES]
    made.up[_LATENCIES] = np.where(
        ratio > 1 + settings.out_tolerance, ready * np.minimum(ratio, _MOST_AT_ONCE), -np.inf
    )
    made.down[_LATENCIES] = np.where(ratio < 1 - settings.in_hysteresis, -np.inf, current)


def _score(made: Wishes, used: Floats, observed: Observed, settings: Settings, ready: Floats, current: Floats) -> None:
    """w_1 utilization/target + w_2 queue/target + w_3 TTFT/target. Above the gap, as many replicas more as bring it
    back to its upper end, or the first one; below it, as many fewer as bring it to its middle."""
    ratios = np.array(
        [
            used / settings.target_utilization,
            _per(observed.mean[Kind.WAITING_REQUESTS], ready) / settings.score_queue,
            observed.mean[Kind.TTFT_P95_S] / settings.score_ttft_s,
        ]
    )
    score = np.where(settings.score_weights > 0, settings.score_weights * ratios, 0).sum(axis=0)
    middle = (settings.score_out + settings.score_in) / 2
    made.value[Trigger.SCORE], made.target[Trigger.SCORE] = score, settings.score_out
    more = np.where(ready > 0, ready * np.minimum(score / settings.score_out, _MOST_AT_ONCE), 1)
    made.up[Trigger.SCORE] = np.where(score > settings.score_out, more, -np.inf)
    low = score < settings.score_in
    made.down[Trigger.SCORE] = np.where(low, ready * np.where(low, score, 0) / middle, current)


def _stepwise(made: Wishes, used: Floats, settings: Settings, ready: Floats, current: Floats) -> None:
    """Added to the ready ones, so that replicas still starting count as what was added before."""
    add = np.where(used >= settings.step_at_least, settings.step_add, 0).max(axis=0)
    fewer = np.maximum(current - 1, 0)
    for trigger, more, out, low in (
        (Trigger.STEP, add, settings.step_at_least[0], settings.step_in),
        (
            Trigger.THRESHOLD,
            (used > settings.threshold_out).astype(np.float64),
            settings.threshold_out,
            settings.threshold_in,
        ),
    ):
        made.value[trigger], made.target[trigger] = used, out
        made.up[trigger] = np.where(more > 0, ready + more, -np.inf)
        made.down[trigger] = np.where(used < low, fewer, current)


def _per(total: Floats, replicas: Floats) -> Floats:
    """Per replica; infinite where there is something for none."""
    return np.divide(total, replicas, out=np.where(total > 0.0, np.inf, 0.0), where=replicas > 0.0)
