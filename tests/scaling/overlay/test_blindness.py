"""Signals that are stale, missing or never were. 700 tokens per second are one replica."""

from __future__ import annotations

import numpy as np
import pytest

AT_ONCE = {
    "rate_window": "0s",
    "smoothing": "0s",
    "scale_out": {"cooldown": "0s", "tolerance": 0, "per_minute": 1000},
    "scale_in": {"cooldown": "0s", "stabilization": "0s", "hysteresis": 0, "per_minute": 1000},
}
GONE = {}


def load(replicas, **more):
    rates = {"tokens_in_per_s": 700.0 * replicas, "tokens_out_per_s": 0.0}
    return rates | {"waiting_requests": 0.0, "kv_cache_usage": 0.1, "ready": replicas} | more


def desired(decisions):
    return [int(decision.desired[0]) for decision in decisions]


@pytest.mark.parametrize("lost", ["tokens_in_per_s", "tokens_out_per_s", "waiting_requests", "kv_cache_usage"])
def test_a_signal_lost_holds_and_the_others_may_still_raise(settings, play, lost):
    lane = settings(**AT_ONCE)
    without = {name: value for name, value in load(4).items() if name != lost}
    raising = load(4) | {"waiting_requests": 150, "kv_cache_usage": 0.99, "ready": 10}
    raising.pop(lost)
    decisions = play(lane, [(0, load(10)), (15, without), (30, without), (45, raising)])
    assert desired(decisions)[:3] == [10, 10, 10]
    assert desired(decisions)[3] > 10


@pytest.mark.parametrize("policy", ["hybrid", "lookahead"])
@pytest.mark.parametrize("lost", ["waiting_tokens_in", "waiting_tokens_out"])
def test_a_backlog_lost_holds(settings, play, policy, lost):
    lane = settings(**AT_ONCE, policy=policy)
    backlog = {"waiting_tokens_in": 0.0, "waiting_tokens_out": 0.0}
    without = {name: value for name, value in (load(4) | backlog).items() if name != lost}
    assert desired(play(lane, [(0, load(10, **backlog)), (15, without)])) == [10, 10]
    assert desired(play(lane, [(0, load(10, **backlog)), (15, load(4, **backlog))])) == [10, 4]


def test_a_stale_signal_is_a_lost_one(settings, play):
    """Stale after two minutes."""
    lane = settings(**AT_ONCE)
    assert desired(play(lane, [(0, load(10)), (15, load(4, age_s=121))])) == [10, 10]
    assert desired(play(lane, [(0, load(10)), (15, load(4, age_s=120))])) == [10, 4]
    assert desired(play(lane, [(0, load(10)), (15, load(4, age_s=np.nan))])) == [10, 10]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -1.0])
def test_what_no_rate_can_be_is_missing(settings, play, odd):
    decisions = play(settings(**AT_ONCE), [(0, load(10)), (15, load(4, tokens_in_per_s=odd))])
    assert desired(decisions) == [10, 10]


def test_a_signal_the_pool_never_had_does_not_hold(settings, play):
    """TGI shows no KV cache: the token rate alone lets go."""
    ticks = [(t, {k: v for k, v in load(n).items() if k != "kv_cache_usage"}) for t, n in ((0, 10), (15, 4))]
    assert desired(play(settings(**AT_ONCE), ticks)) == [10, 4]


def test_without_any_measure_of_load_nothing_is_let_go(settings, play):
    """An empty queue says that there is enough, not how much too much."""
    ticks = [(15.0 * i, {"waiting_requests": 0, "ready": 10}) for i in range(5)]
    assert desired(play(settings(**AT_ONCE), ticks)) == [10] * 5


def test_latencies_of_an_idle_pool_are_not_missed(settings, play):
    """A histogram's quantile is NaN where nothing was served."""
    lane = settings(**AT_ONCE, targets={"ttft": "500ms"})
    idle = {"tokens_in_per_s": 0.0, "tokens_out_per_s": 0.0, "waiting_requests": 0, "kv_cache_usage": 0, "ready": 10}
    assert desired(play(lane, [(0, load(10, ttft_p95_s=0.2)), (15, idle)])) == [10, 1]
    assert desired(play(lane, [(0, load(10, ttft_p95_s=0.2)), (15, load(4))])) == [10, 10]


def test_a_floor_that_is_missing_is_the_one_known_last(settings, play):
    lane = settings(**AT_ONCE)
    assert desired(play(lane, [(0, load(10, floor=8)), (15, load(3)), (30, load(3, floor=5))])) == [10, 8, 5]


def test_dead_man_takes_the_safe_replicas_and_tells(settings, play):
    """No signal from 15 s on; the last came at 0 s, so that ten minutes are over at 600 s."""
    lane = settings(**AT_ONCE, safe_replicas=20)
    decisions = play(lane, [(0, load(10)), *((15.0 * i, GONE) for i in range(1, 42))])
    assert desired(decisions) == [10] * 40 + [20] * 2
    assert [bool(decision.alert[0]) for decision in decisions] == [False] * 40 + [True] * 2


@pytest.mark.parametrize(("safe", "floor", "wanted"), [(20, 5, 20), (5, 15, 15), (5, 5, 10)])
def test_dead_man_is_the_most_of_current_floor_and_safe_replicas(settings, play, safe, floor, wanted):
    lane = settings(**AT_ONCE, safe_replicas=safe)
    decisions = play(lane, [(0, load(10)), (300, {"floor": floor}), (615, {"floor": floor})])
    assert desired(decisions)[-1] == wanted


def test_the_interval_counts_from_the_start_where_no_signal_ever_came(settings, play):
    lane = settings(**AT_ONCE, safe_replicas=20)
    decisions = play(
        lane, [(1_000.0, {"ready": 10}), (1_599.0, {"ready": 10}), (1_600.0, {"ready": 10})], begun_s=1_000
    )
    assert desired(decisions) == [10, 10, 20]


def test_recovery_goes_down_by_the_rules_and_not_at_once(settings, play):
    """From 20 safe replicas to the four that are needed, once the ten-minute window has seen nothing else: the last
    blind tick, at 900 s, counts until 1,500 s and up to a slot longer. Then by one a minute, the pace."""
    slow = {
        "scale_in": {"cooldown": "0s", "stabilization": "10m", "hysteresis": 0, "per_minute": 1, "share_per_minute": 0}
    }
    lane = settings(**(AT_ONCE | slow), safe_replicas=20)
    blind = [(15.0 * i, GONE) for i in range(1, 61)]
    back = [(15.0 * i, load(4, ready=20)) for i in range(61, 130)]
    decisions = play(lane, [(0, load(4)), *blind, *back])
    by_time = {15 * i: n for i, n in enumerate(desired(decisions))}
    assert by_time[900] == 20
    assert by_time[1_500] == 20
    steps = np.diff(desired(decisions)[61:])
    assert by_time[1_935] in (12, 13, 14)
    assert steps.min() == -1


def test_recovery_goes_up_at_the_pace_of_scaling_out(settings, play):
    lane = settings(**(AT_ONCE | {"scale_out": {"cooldown": "0s", "per_minute": 4, "share_per_minute": 0}}))
    decisions = play(lane, [(0, load(10)), *((15.0 * i, GONE) for i in range(1, 60)), (900.0, load(40, ready=10))])
    assert desired(decisions)[-2:] == [10, 14]


def test_after_a_pause_of_the_service_the_window_begins_with_what_there_is(settings, play):
    """An hour without a tick: what was asked for meanwhile is not known."""
    lane = settings(**(AT_ONCE | {"scale_in": {"cooldown": "0s", "stabilization": "10m", "per_minute": 1000}}))
    assert desired(play(lane, [(0, load(10)), (3_600, load(4)), (3_615, load(4))])) == [10, 10, 10]
