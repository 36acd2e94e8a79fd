"""What the overlay is set to, lane by lane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from floorcast.overlay import MOST_BANDS, Overlay, Policy
from floorcast.pool import Pool
from scaling.capacity import Floats
from scaling.overlay.signals import Kind

Flags = npt.NDArray[np.bool_]


class Trigger(IntEnum):
    """What may ask for replicas, in the order of the rows of `Settings.enabled` and of a decision's votes."""

    TOKEN_RATE = 0
    BACKLOG = 1
    WAITING = 2
    KV_CACHE = 3
    GPU_UTILIZATION = 4
    UTILIZATION = 5
    LOOKAHEAD = 6
    TTFT = 7
    TTFT_PER_1K_PROMPT = 8
    ITL = 9
    SCORE = 10
    STEP = 11
    THRESHOLD = 12
    SCHEDULED = 13
    PANIC = 14


TRIGGERS_OF: dict[Policy, tuple[Trigger, ...]] = {
    "hybrid": (
        Trigger.TOKEN_RATE,
        Trigger.BACKLOG,
        Trigger.WAITING,
        Trigger.KV_CACHE,
        Trigger.GPU_UTILIZATION,
        Trigger.TTFT,
        Trigger.TTFT_PER_1K_PROMPT,
        Trigger.ITL,
    ),
    "composite": (Trigger.SCORE,),
    "target_tracking": (Trigger.UTILIZATION, Trigger.BACKLOG),
    "step": (Trigger.STEP,),
    "threshold": (Trigger.THRESHOLD,),
    "scheduled": (Trigger.SCHEDULED,),
    "lookahead": (Trigger.LOOKAHEAD,),
}
"""The triggers of each policy. The one that asks for most decides, whichever policies are combined."""

RATES = (Kind.TOKENS_IN_PER_S, Kind.TOKENS_OUT_PER_S)
UTILIZATIONS = {"tokens": 0, "gpu": 1, "kv_cache": 2}


class Settings(NamedTuple):
    """Arrays whose last axis is the lane, float64 but for the flags. Candidates for tuning are lanes of one pool:
    `repeat` the pool's lane, then `_replace` what varies.
    """

    enabled: Flags
    """[triggers, lanes]"""
    capacity_in: Floats
    """Tokens in per second of one replica, infinite where tokens in do not count (a decode pool)."""
    capacity_out: Floats
    combine_sum: Flags
    """Whether the two loads add up, rather than the greater deciding."""
    target_utilization: Floats
    drain_backlog_s: Floats
    utilization: Floats
    """Which signal is called utilization: a value of UTILIZATIONS."""
    window_s: Floats
    """[kinds, lanes]: window of each signal's mean."""
    waiting_target: Floats
    kv_cache_target: Floats
    ttft_target_s: Floats
    ttft_per_1k_target_s: Floats
    itl_target_s: Floats
    gpu_target: Floats
    score_weights: Floats
    """[3, lanes]: of utilization, queue and TTFT."""
    score_queue: Floats
    score_ttft_s: Floats
    score_out: Floats
    score_in: Floats
    threshold_out: Floats
    threshold_in: Floats
    step_at_least: Floats
    """[MOST_BANDS, lanes]: where each band begins, infinite for none."""
    step_add: Floats
    """[MOST_BANDS, lanes]"""
    step_in: Floats
    panic_window_s: Floats
    panic_threshold: Floats
    """Infinite for no panic."""
    panic_hold_s: Floats
    out_cooldown_s: Floats
    out_window_s: Floats
    out_tolerance: Floats
    out_per_minute: Floats
    out_share_per_minute: Floats
    in_cooldown_s: Floats
    in_window_s: Floats
    in_hysteresis: Floats
    in_per_minute: Floats
    in_share_per_minute: Floats
    min_replicas: Floats
    max_replicas: Floats
    stale_after_s: Floats
    dead_man_s: Floats
    safe_replicas: Floats
    stuck_after_s: Floats


def settings_of(pools: Sequence[Pool]) -> Settings:
    """The settings of these pools, a lane each, in this order."""
    rows = [_row(pool) for pool in pools]
    flags = {"enabled", "combine_sum"}
    columns: dict[str, Any] = {
        name: np.array([row[name] for row in rows], dtype=np.bool_ if name in flags else np.float64).T
        for name in Settings._fields
    }
    return Settings(**columns)


def _row(pool: Pool) -> dict[str, Any]:
    overlay, capacity = pool.overlay, pool.capacity
    targets, score, steps = overlay.targets, overlay.composite, overlay.step
    panic, out, in_ = overlay.panic, overlay.scale_out, overlay.scale_in
    safe = next(
        value for value in (overlay.safe_replicas, pool.fallback_replicas, pool.bounds.min) if value is not None
    )
    unused = MOST_BANDS - len(steps.bands)
    windows = [overlay.rate_window if kind in RATES else overlay.smoothing for kind in Kind]
    return {
        "enabled": _enabled(overlay),
        "capacity_in": math.inf if pool.role == "decode" else capacity.prefill_tokens_per_s,
        "capacity_out": math.inf if pool.role == "prefill" else capacity.decode_tokens_per_s,
        "combine_sum": capacity.combine == "sum",
        "target_utilization": overlay.target_utilization or capacity.target_utilization,
        "drain_backlog_s": overlay.drain_backlog.total_seconds(),
        "utilization": UTILIZATIONS[overlay.utilization],
        "window_s": [window.total_seconds() for window in windows],
        "waiting_target": _number(targets.waiting_per_replica),
        "kv_cache_target": _number(targets.kv_cache),
        "ttft_target_s": _number(targets.ttft),
        "ttft_per_1k_target_s": _number(targets.ttft_per_1k_prompt),
        "itl_target_s": _number(targets.itl),
        "gpu_target": _number(targets.gpu_utilization),
        "score_weights": [score.utilization_weight, score.queue_weight, score.ttft_weight],
        "score_queue": score.queue,
        "score_ttft_s": score.ttft.total_seconds(),
        "score_out": score.out_above,
        "score_in": score.in_below,
        "threshold_out": overlay.threshold.out_above,
        "threshold_in": overlay.threshold.in_below,
        "step_at_least": [band.at_least for band in steps.bands] + [math.inf] * unused,
        "step_add": [band.add for band in steps.bands] + [0] * unused,
        "step_in": steps.in_below,
        "panic_window_s": panic.window.total_seconds() if panic else 0.0,
        "panic_threshold": panic.threshold if panic else math.inf,
        "panic_hold_s": panic.hold.total_seconds() if panic else 0.0,
        "out_cooldown_s": out.cooldown.total_seconds(),
        "out_window_s": out.stabilization.total_seconds(),
        "out_tolerance": out.tolerance,
        "out_per_minute": out.per_minute,
        "out_share_per_minute": out.share_per_minute,
        "in_cooldown_s": in_.cooldown.total_seconds(),
        "in_window_s": in_.stabilization.total_seconds(),
        "in_hysteresis": in_.hysteresis,
        "in_per_minute": in_.per_minute,
        "in_share_per_minute": in_.share_per_minute,
        "min_replicas": pool.bounds.min,
        "max_replicas": pool.bounds.max,
        "stale_after_s": overlay.stale_after.total_seconds(),
        "dead_man_s": overlay.dead_man.total_seconds(),
        "safe_replicas": safe,
        "stuck_after_s": overlay.stuck_after.total_seconds(),
    }


def _enabled(overlay: Overlay) -> list[bool]:
    wanted = {trigger for policy in (overlay.policy, *overlay.also) for trigger in TRIGGERS_OF[policy]}
    targets = overlay.targets
    given = {
        Trigger.WAITING: targets.waiting_per_replica,
        Trigger.KV_CACHE: targets.kv_cache,
        Trigger.TTFT: targets.ttft,
        Trigger.TTFT_PER_1K_PROMPT: targets.ttft_per_1k_prompt,
        Trigger.ITL: targets.itl,
        Trigger.GPU_UTILIZATION: targets.gpu_utilization,
        Trigger.PANIC: overlay.panic,
    }
    if overlay.panic:
        wanted.add(Trigger.PANIC)
    return [trigger in wanted and given.get(trigger, True) is not None for trigger in Trigger]


def _number(target: float | timedelta | None) -> float:
    """Seconds of a time; NaN for none."""
    if target is None:
        return math.nan
    return target.total_seconds() if isinstance(target, timedelta) else float(target)
