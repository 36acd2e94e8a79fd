"""What triggers ask for, against the same rules written for one pool at a time, without arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.pool import Pool
from scaling.overlay.decide import Rule, decide
from scaling.overlay.lanes import repeat
from scaling.overlay.settings import settings_of
from scaling.overlay.signals import snapshot
from scaling.overlay.state import begin

POLICIES = ("hybrid", "composite", "target_tracking", "step", "threshold", "scheduled", "lookahead")
ROUND = 1e-9

amounts = st.floats(0, 1e6)
shares = st.floats(0, 1)
maybe = lambda values: st.none() | values  # noqa: E731
SIGNALS = st.fixed_dictionaries(
    {
        "tokens_in_per_s": maybe(st.floats(0, 50_000)),
        "tokens_out_per_s": maybe(st.floats(0, 5_000)),
        "waiting_requests": maybe(st.floats(0, 500)),
        "waiting_tokens_in": maybe(amounts),
        "waiting_tokens_out": maybe(amounts),
        "kv_cache_usage": maybe(shares),
        "ttft_p95_s": maybe(st.floats(0, 5)),
        "ttft_p95_s_per_1k_prompt": maybe(st.floats(0, 2)),
        "itl_p95_s": maybe(st.floats(0, 0.5)),
        "gpu_utilization": maybe(shares),
        "ahead": maybe(st.floats(0, 60)),
        "scheduled": maybe(st.integers(0, 60)),
        "ready": maybe(st.integers(0, 60)),
        "requested": st.integers(0, 60),
    }
)
OVERLAYS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(POLICIES),
        "also": st.lists(st.sampled_from(POLICIES), max_size=1),
        "utilization": st.sampled_from(["tokens", "gpu", "kv_cache"]),
        "rate_window": st.just("0s"),
        "smoothing": st.just("0s"),
        "targets": st.fixed_dictionaries(
            {
                "waiting_per_replica": maybe(st.floats(1, 20)),
                "kv_cache": maybe(st.floats(0.1, 1)),
                "ttft": maybe(st.just("500ms")),
                "ttft_per_1k_prompt": maybe(st.just("200ms")),
                "itl": maybe(st.just("50ms")),
                "gpu_utilization": maybe(st.floats(0.1, 1)),
            }
        ),
        "composite": st.fixed_dictionaries({"ttft_weight": st.sampled_from([0, 0.3])}),
        "scale_out": st.fixed_dictionaries({"tolerance": st.sampled_from([0, 0.05, 0.3])}),
        "scale_in": st.fixed_dictionaries({"hysteresis": st.sampled_from([0, 0.1, 0.3])}),
    }
)


def spec(role: str, combine: str, overlay: dict[str, Any]) -> Pool:
    return Pool.model_validate(
        {
            "gpu": {"type": "H100"},
            "role": role,
            "capacity": {"prefill_tokens_per_s": 1_000, "decode_tokens_per_s": 100, "combine": combine},
            "startup": {"p90": "4m"},
            "bounds": {"min": 0, "max": 1_000},
            "scale_to_zero": {"wake_up": "1m", "below_tokens_per_s": 1},
            "overlay": overlay,
        }
    )


def asked(pool: Pool, signals: dict[str, Any]) -> int:
    """What all triggers together ask for at a first tick: what is missing then never was."""
    o, current = pool.overlay, signals["requested"]
    ready = current if signals["ready"] is None else signals["ready"]
    slack, tolerance = 1 - o.scale_in.hysteresis, o.scale_out.tolerance
    ups: list[float] = []
    downs: list[tuple[float, bool]] = []  # replicas that content, and whether that measures load

    def tracks(replicas: float, known: bool, load: bool = True) -> None:
        ups.append(replicas if replicas > current * (1 + tolerance) else min(replicas, current))
        if known:
            downs.append((replicas / slack, load))

    use, use_known = utilization(pool, signals, ready)
    aim = o.target_utilization or pool.capacity.target_utilization
    for policy in (o.policy, *o.also):
        if policy == "hybrid":
            hybrid(pool, signals, ready, current, tracks, ups, downs)
        elif policy == "target_tracking":
            replicas = load_of(pool, signals) / aim if o.utilization == "tokens" else ready * use / aim
            tracks(replicas, use_known)
            backlog(pool, signals, aim, tracks)
        elif policy == "lookahead":
            loads = [load_of(pool, signals, backlog=True)]
            if signals["ahead"] is not None:
                loads.append(signals["ahead"] + load_of(pool, signals, rates=False, backlog=True))
            tracks(max(loads) / aim, rates_known(pool, signals))
        elif policy == "scheduled":
            if signals["scheduled"] is None:
                downs.append((math.inf, False))
            else:
                ups.append(signals["scheduled"])
                downs.append((signals["scheduled"], True))
        elif policy == "composite":
            composite(pool, signals, ready, current, (use, use_known), ups, downs)
        else:
            stepwise(pool, policy, ready, current, (use, use_known), ups, downs)
    up = whole(max(ups, default=0))
    if up > current:
        return up
    if not any(load for _, load in downs):
        return current
    return min(current, max(up, whole(max(replicas for replicas, _ in downs))))


def hybrid(pool, signals, ready, current, tracks, ups, downs) -> None:
    o, targets = pool.overlay, pool.overlay.targets
    aim = o.target_utilization or pool.capacity.target_utilization
    tracks(load_of(pool, signals) / aim, rates_known(pool, signals))
    backlog(pool, signals, aim, tracks)
    if targets.waiting_per_replica is not None:
        waiting = signals["waiting_requests"]
        tracks((waiting or 0) / targets.waiting_per_replica, waiting is not None, load=False)
    for goal, value in (
        (targets.kv_cache, signals["kv_cache_usage"]),
        (targets.gpu_utilization, signals["gpu_utilization"]),
    ):
        if goal is not None:
            tracks(ready * (value or 0) / goal, value is not None)
    for goal, name in (
        (targets.ttft, "ttft_p95_s"),
        (targets.ttft_per_1k_prompt, "ttft_p95_s_per_1k_prompt"),
        (targets.itl, "itl_p95_s"),
    ):
        if goal is None or signals[name] is None:
            continue
        ratio = signals[name] / goal.total_seconds()
        if ratio > 1 + o.scale_out.tolerance:
            ups.append(ready * min(ratio, 2))
        downs.append((0 if ratio < 1 - o.scale_in.hysteresis else current, False))


def stepwise(pool, policy, ready, current, use, ups, downs) -> None:
    o = pool.overlay
    if policy == "step":
        add, low = max([band.add for band in o.step.bands if use[0] >= band.at_least], default=0), o.step.in_below
    else:
        add, low = int(use[0] > o.threshold.out_above), o.threshold.in_below
    if add:
        ups.append(ready + add)
    if use[1]:
        downs.append((max(current - 1, 0) if use[0] < low else current, True))


def composite(pool, signals, ready, current, use, ups, downs) -> None:
    score = pool.overlay.composite
    aim = pool.overlay.target_utilization or pool.capacity.target_utilization
    queue = per(signals["waiting_requests"] or 0, ready)
    parts = [
        (score.utilization_weight, use[0] / aim, use[1]),
        (score.queue_weight, queue / score.queue, signals["waiting_requests"] is not None),
        (
            score.ttft_weight,
            (signals["ttft_p95_s"] or 0) / score.ttft.total_seconds(),
            signals["ttft_p95_s"] is not None,
        ),
    ]
    total = sum(weight * value for weight, value, _ in parts if weight)
    if total > score.out_above:
        ups.append(ready * min(total / score.out_above, 2) if ready else 1)
    if all(known for weight, _, known in parts if weight):
        middle = (score.out_above + score.in_below) / 2
        downs.append((ready * total / middle if total < score.in_below else current, True))


def load_of(pool, signals, *, rates: bool = True, backlog: bool = False) -> float:
    """Replicas at full use."""
    drain_s = pool.overlay.drain_backlog.total_seconds()
    loads = []
    for rate, waiting, capacity, unused in (
        ("tokens_in_per_s", "waiting_tokens_in", pool.capacity.prefill_tokens_per_s, "decode"),
        ("tokens_out_per_s", "waiting_tokens_out", pool.capacity.decode_tokens_per_s, "prefill"),
    ):
        total = ((signals[rate] or 0) if rates else 0) + ((signals[waiting] or 0) / drain_s if backlog else 0)
        loads.append(0.0 if pool.role == unused else total / capacity)
    return sum(loads) if pool.capacity.combine == "sum" else max(loads)


def backlog(pool, signals, aim, tracks) -> None:
    known = pool.role == "decode" or signals["waiting_tokens_in"] is not None
    tracks(load_of(pool, signals, backlog=True) / aim, known and rates_known(pool, signals))


def rates_known(pool, signals) -> bool:
    needed = {"unified": ("tokens_in_per_s", "tokens_out_per_s"), "prefill": ("tokens_in_per_s",)}
    return all(signals[name] is not None for name in needed.get(pool.role, ("tokens_out_per_s",)))


def utilization(pool, signals, ready) -> tuple[float, bool]:
    if pool.overlay.utilization == "tokens":
        return per(load_of(pool, signals), ready), rates_known(pool, signals)
    value = signals["gpu_utilization" if pool.overlay.utilization == "gpu" else "kv_cache_usage"]
    return value or 0.0, value is not None


def per(total: float, replicas: float) -> float:
    return total / replicas if replicas else math.inf if total else 0.0


def whole(replicas: float) -> int:
    return 10**15 if replicas > 1e15 else math.ceil(replicas - ROUND * max(replicas, 1))


@given(
    overlay=OVERLAYS,
    signals=SIGNALS,
    role=st.sampled_from(["unified", "prefill", "decode"]),
    combine=st.sampled_from(["max", "sum"]),
)
def test_triggers_ask_for_what_the_scalar_rules_say(overlay, signals, role, combine):
    pool = spec(role, combine, overlay)
    given_ = {name: value for name, value in signals.items() if value is not None}
    decision, _ = decide(snapshot(1, **given_), begin(1, 0.0), settings_of([pool]), 0.0)
    assert int(decision.after[Rule.TRIGGERS, 0]) == asked(pool, signals)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_thousand_lanes_at_once_are_what_each_is_alone(policy):
    """Random signals, one in five missing."""
    rng = np.random.default_rng(5)
    pool = spec(
        "unified", "max", {"policy": policy, "rate_window": "0s", "smoothing": "0s", "targets": {"ttft": "500ms"}}
    )
    lanes, most = 1_000, {"kv_cache_usage": 1, "gpu_utilization": 1, "ahead": 60, "ttft_p95_s": 2, "scheduled": 40}
    most |= {"tokens_in_per_s": 30_000, "tokens_out_per_s": 3_000, "waiting_requests": 300, "waiting_tokens_in": 1e6}
    columns = {
        name: np.where(rng.random(lanes) < 0.2, np.nan, rng.uniform(0, top, lanes)) for name, top in most.items()
    }
    columns |= {
        "ready": rng.integers(1, 40, lanes).astype(float),
        "requested": rng.integers(1, 40, lanes).astype(float),
    }
    columns["scheduled"] = np.round(columns["scheduled"])
    decision, _ = decide(snapshot(lanes, **columns), begin(lanes, 0.0), repeat(settings_of([pool]), lanes), 0.0)
    absent = {"waiting_tokens_out": None, "ttft_p95_s_per_1k_prompt": None, "itl_p95_s": None}
    rows = (
        absent | {name: None if np.isnan(column[lane]) else float(column[lane]) for name, column in columns.items()}
        for lane in range(lanes)
    )
    assert decision.after[Rule.TRIGGERS].astype(int).tolist() == [asked(pool, row) for row in rows]
