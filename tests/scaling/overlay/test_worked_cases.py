"""Each policy by hand, at its first tick: no history, nothing to wait for.

A replica sustains 1,000 tokens in and 100 tokens out per second and is to be used to 70 %, so it counts 700 and 70.
"""

from __future__ import annotations

import numpy as np
import pytest

from scaling.overlay.decide import Rule
from scaling.overlay.settings import Trigger


@pytest.fixture
def first(settings, play):
    """The decision of a first tick, replicas as they are by `requested`."""
    return lambda overlay, **signals: play(settings(**overlay), [(0.0, signals)])[0]


@pytest.mark.parametrize(
    ("replicas", "utilization", "desired"),
    [
        # 4 x 0.78 / 0.70 = 4.457;  5 x 0.84 / 0.70 = 6 exactly;  5 x 0.95 / 0.70 = 6.786
        pytest.param(4, 0.78, 5, id="4 replicas at 78 % for 70 %"),
        pytest.param(5, 0.84, 6, id="5 at 84 %, a whole number in spite of float noise"),
        pytest.param(5, 0.95, 7, id="5 at 95 %"),
        # 5 x 0.72 / 0.70 = 5.14, but 3 % is within the tolerance
        pytest.param(5, 0.72, 5, id="within the tolerance"),
    ],
)
def test_target_tracking(first, replicas, utilization, desired):
    decision = first({"policy": "target_tracking", "utilization": "gpu"}, gpu_utilization=utilization, ready=replicas)
    assert decision.desired.tolist() == [desired]
    assert decision.desired.dtype == np.int64


def test_target_tracking_on_the_token_rate_with_a_backlog(first):
    """2,100 tokens in per second are 3.0 replicas; 210 out are 3.0. 63,000 tokens in that wait, over 300 s, are 210 per
    second more: 2,310 / 700 = 3.3, so 4."""
    overlay = {"policy": "target_tracking"}
    rates = {"tokens_in_per_s": 2_100, "tokens_out_per_s": 210, "ready": 3}
    assert first(overlay, **rates).desired.tolist() == [3]
    assert first(overlay, **rates, waiting_tokens_in=63_000).desired.tolist() == [4]


def test_composite_score(first):
    """0.4 x 0.78/0.70 + 0.3 x 3/5 + 0.3 x 850/500 = 0.4457 + 0.18 + 0.51 = 1.136, above 1: 4 x 1.136 = 4.54, so 5."""
    overlay = {"policy": "composite", "utilization": "gpu"}
    decision = first(overlay, gpu_utilization=0.78, waiting_requests=4 * 3, ttft_p95_s=0.85, ready=4)
    assert decision.wishes.value[Trigger.SCORE, 0] == pytest.approx(1.136, abs=5e-4)
    assert decision.desired.tolist() == [5]


def test_composite_lets_go_below_its_gap_only(first):
    """Score 0.4 x 0.35/0.70 + 0.3 x 1/5 + 0.3 x 100/500 = 0.2 + 0.06 + 0.06 = 0.32, below 0.5: to the middle of the
    gap, 0.75, 8 x 0.32 / 0.75 = 3.41, so 4. At 0.4 x 0.70/0.70 + 0.12 = 0.52 it stays."""
    overlay = {"policy": "composite", "utilization": "gpu"}
    calm = {"waiting_requests": 8, "ttft_p95_s": 0.1, "ready": 8}
    assert first(overlay, gpu_utilization=0.35, **calm).after[Rule.TRIGGERS].tolist() == [4]
    assert first(overlay, gpu_utilization=0.70, **calm).after[Rule.TRIGGERS].tolist() == [8]


@pytest.mark.parametrize(
    ("utilization", "wanted"),
    [(0.79, 10), (0.80, 11), (0.89, 11), (0.90, 12), (0.94, 12), (0.95, 14), (1.0, 14), (0.30, 10), (0.29, 9)],
)
def test_step_adds_1_2_or_4_by_the_band(first, utilization, wanted):
    """80 to 90 % +1, 90 to 95 % +2, above +4; below 30 % -1. Ten replicas."""
    decision = first({"policy": "step", "utilization": "gpu"}, gpu_utilization=utilization, ready=10)
    assert decision.after[Rule.TRIGGERS].tolist() == [wanted]


@pytest.mark.parametrize(("utilization", "wanted"), [(0.81, 11), (0.80, 10), (0.30, 10), (0.29, 9)])
def test_threshold_adds_one_above_80_and_lets_one_go_below_30_percent(first, utilization, wanted):
    decision = first({"policy": "threshold", "utilization": "kv_cache"}, kv_cache_usage=utilization, ready=10)
    assert decision.after[Rule.TRIGGERS].tolist() == [wanted]


@pytest.mark.parametrize(("scheduled", "wanted"), [(12, 12), (7, 7), (float("nan"), 10)])
def test_scheduled_is_what_the_calendar_says_and_holds_where_it_says_nothing(first, scheduled, wanted):
    decision = first({"policy": "scheduled"}, scheduled=scheduled, ready=10)
    assert decision.after[Rule.TRIGGERS].tolist() == [wanted]


def test_lookahead_is_ready_for_the_load_to_come(first):
    """2,100 tokens a second are 2.1 replicas at full use, and 3.0 are expected: (3 + 21,000 / 300 / 1,000) / 0.7 = 4.4,
    so 5. With nothing expected (2.1 + 0.07) / 0.7 = 3.1, so 4."""
    rates = {"tokens_in_per_s": 2_100, "tokens_out_per_s": 0, "waiting_tokens_in": 21_000, "ready": 2}
    assert first({"policy": "lookahead"}, ahead=3.0, **rates).desired.tolist() == [5]
    assert first({"policy": "lookahead"}, **rates).desired.tolist() == [4]


def test_lookahead_sees_a_job_start_out_of_nothing(first):
    """Nothing is live, and 3 replicas at full use are expected: 3 / 0.7 = 4.3, so 5."""
    rates = {"tokens_in_per_s": 0, "tokens_out_per_s": 0, "waiting_tokens_in": 0, "ready": 2}
    assert first({"policy": "lookahead"}, ahead=3.0, **rates).desired.tolist() == [5]


def test_lookahead_keeps_what_serves_the_load_now_though_it_is_about_to_end(first):
    """2.1 / 0.7 = 3 are needed until it ends."""
    rates = {"tokens_in_per_s": 2_100, "tokens_out_per_s": 0, "waiting_tokens_in": 0, "ready": 3}
    assert first({"policy": "lookahead"}, ahead=0.2, **rates).desired.tolist() == [3]


CALM = {"tokens_in_per_s": 5_600, "tokens_out_per_s": 100, "waiting_requests": 20, "waiting_tokens_in": 3_000}
"""(5,600 + 3,000 / 300) / 700 = 8.01 replicas: ten are within bounds both ways."""


@pytest.mark.parametrize(
    ("trigger", "signals", "wanted"),
    [
        pytest.param(None, {}, 9, id="calm: 8.01 / 0.9 = 8.9 would content all"),
        pytest.param("token_rate", {"tokens_in_per_s": 8_400}, 13, id="(8,400 + 10) / 700 = 12.01, with the backlog"),
        pytest.param("token_rate", {"tokens_out_per_s": 840}, 12, id="840 / 70 = 12"),
        pytest.param("backlog", {"waiting_tokens_in": 840_000}, 12, id="(5,600 + 840,000 / 300) / 700 = 12"),
        pytest.param("backlog", {"waiting_tokens_out": 220_000}, 12, id="(100 + 220,000 / 300) / 70 = 11.9"),
        pytest.param("waiting", {"waiting_requests": 119}, 12, id="119 / 10 = 11.9"),
        pytest.param("kv_cache", {"kv_cache_usage": 0.92}, 12, id="10 x 0.92 / 0.8 = 11.5"),
        pytest.param("ttft", {"ttft_p95_s": 0.85}, 17, id="10 x 850 / 500 = 17"),
        pytest.param("ttft", {"ttft_p95_s": 30.0}, 20, id="latency asks for twice the ready ones at most"),
        pytest.param("ttft_per_1k_prompt", {"ttft_p95_s_per_1k_prompt": 0.24}, 12, id="10 x 240 / 200 = 12"),
        pytest.param("itl", {"itl_p95_s": 0.06}, 12, id="10 x 60 / 50 = 12"),
        pytest.param("gpu_utilization", {"gpu_utilization": 0.99}, 11, id="10 x 0.99 / 0.9 = 11"),
    ],
)
def test_any_trigger_of_hybrid_raises_alone(first, trigger, signals, wanted):
    targets = {"ttft": "500ms", "ttft_per_1k_prompt": "200ms", "itl": "50ms", "gpu_utilization": 0.9}
    quiet = {"kv_cache_usage": 0.3, "ttft_p95_s": 0.1, "ttft_p95_s_per_1k_prompt": 0.1, "itl_p95_s": 0.01}
    decision = first({"targets": targets}, **(CALM | quiet | {"gpu_utilization": 0.5} | signals), ready=10)
    assert decision.after[Rule.TRIGGERS].tolist() == [wanted]
    raised = (np.ceil(decision.wishes.up[:, 0] - 1e-9) > 10) & np.isfinite(decision.wishes.up[:, 0])
    assert trigger is None or raised[Trigger[trigger.upper()]]


def test_policies_combine_by_the_one_that_asks_for_most(first):
    """Token rate 3.0 replicas, calendar 6: with `also` the calendar may raise; alone it is not looked at."""
    signals = {"tokens_in_per_s": 2_100, "tokens_out_per_s": 210, "scheduled": 6, "ready": 3}
    assert first({}, **signals).desired.tolist() == [3]
    assert first({"also": ["scheduled"]}, **signals).desired.tolist() == [6]


@pytest.mark.parametrize(("role", "wanted"), [("unified", 6), ("prefill", 3), ("decode", 6)])
def test_a_pool_of_one_role_looks_at_its_own_tokens(settings, play, role, wanted):
    """2,100 / 700 = 3 for tokens in, 420 / 70 = 6 for tokens out."""
    lane = settings(role=role, policy="target_tracking")
    (decision,) = play(lane, [(0.0, {"tokens_in_per_s": 2_100, "tokens_out_per_s": 420, "ready": 2})])
    assert decision.desired.tolist() == [wanted]


def test_panic_sees_within_seconds_what_the_mean_does_not_yet(settings, play):
    """From 2,100 tokens per second to 8,400 at once. After 15 s the 3-minute mean is at 8,400 - 6,300 x exp(-15 / 90) =
    3,067: 4.4 replicas. The 20-second mean is at 8,400 - 6,300 x exp(-15 / 10) = 6,994: 9.99, over twice the three
    ready, so 10. It holds for a minute after, and cooldowns do not count."""
    before, surge = ({"tokens_in_per_s": rate, "tokens_out_per_s": 0, "ready": 3} for rate in (2_100, 8_400))
    fast = {"scale_out": {"per_minute": 50}}
    ticks = [(0.0, before), (15.0, surge), (30.0, surge)]
    plain = play(settings(policy="target_tracking", **fast), ticks)
    panic = play(settings(policy="target_tracking", panic={}, **fast), ticks)
    assert [decision.desired[0] for decision in plain] == [3, 5, 5]
    assert [decision.desired[0] for decision in panic] == [3, 10, 12]
    assert [bool(decision.panicking[0]) for decision in panic] == [False, True, True]
