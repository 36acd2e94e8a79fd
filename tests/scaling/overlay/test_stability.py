"""What keeps replicas from coming and going: cooldowns, windows, gaps, paces. 700 tokens per second are one replica.

Means are switched off, so that what a tick sees is what it is given.
"""

from __future__ import annotations

import pytest

from scaling.overlay.decide import Rule

AT_ONCE = {
    "policy": "target_tracking",
    "rate_window": "0s",
    "smoothing": "0s",
    "scale_out": {"cooldown": "0s", "tolerance": 0, "per_minute": 1000},
    "scale_in": {"cooldown": "0s", "stabilization": "0s", "hysteresis": 0, "per_minute": 1000},
}
"""Target tracking without any stability: what is asked for is what is decided."""


def overlay(*, out=None, in_=None, **keys):
    """AT_ONCE but for what is given."""
    return (
        AT_ONCE
        | {"scale_out": AT_ONCE["scale_out"] | (out or {}), "scale_in": AT_ONCE["scale_in"] | (in_ or {})}
        | keys
    )


def load(replicas, **more):
    return {"tokens_in_per_s": 700.0 * replicas, "tokens_out_per_s": 0.0, "ready": replicas} | more


def desired(decisions):
    return [int(decision.desired[0]) for decision in decisions]


def test_without_any_of_it_replicas_follow_demand(settings, play):
    ticks = [(15.0 * i, load(n)) for i, n in enumerate((10, 12, 9, 20, 3))]
    # The first tick's window holds what there was.
    assert desired(play(settings(**AT_ONCE), ticks)) == [10, 12, 9, 20, 3]


def test_a_raise_waits_for_the_cooldown_of_the_raise_before(settings, play):
    ticks = [(0, load(10)), (15, load(12)), (30, load(14)), (90, load(14)), (105, load(14)), (120, load(15))]
    assert desired(play(settings(**overlay(out={"cooldown": "90s"})), ticks)) == [10, 12, 12, 12, 14, 14]


def test_letting_go_waits_for_the_cooldown_of_any_change_before(settings, play):
    ticks = [
        (0, load(10)),
        (15, load(12)),
        (30, load(8)),
        (300, load(8)),
        (315, load(8)),
        (330, load(6)),
        (615, load(6)),
    ]
    assert desired(play(settings(**overlay(in_={"cooldown": "300s"})), ticks)) == [10, 12, 12, 12, 8, 8, 6]


def test_a_raise_is_not_held_back_by_the_cooldown_of_letting_go(settings, play):
    ticks = [(0, load(10)), (15, load(8)), (30, load(12))]
    assert desired(play(settings(**overlay(in_={"cooldown": "300s"})), ticks)) == [10, 8, 12]


def test_the_most_asked_for_within_ten_minutes_stays(settings, play):
    """12 asked for at 60 s counts until 660 s, and up to a slot of 40 s longer."""
    lane = settings(**overlay(in_={"stabilization": "10m"}))
    ticks = [
        (0, load(10)),
        (60, load(12)),
        (75, load(6)),
        (300, load(9)),
        (659, load(6)),
        (700, load(6)),
        (959, load(6)),
    ]
    assert desired(play(lane, ticks)) == [10, 12, 12, 12, 12, 9, 6]


@pytest.mark.parametrize("tick_s", [1, 10, 15, 60, 119])
def test_the_window_is_as_long_whatever_the_time_between_ticks(settings, play, tick_s):
    lane = settings(**overlay(in_={"stabilization": "10m"}))
    ticks = [(float(t), load(12 if t == 0 else 6)) for t in range(0, 1_200, tick_s)]
    fallen = next(t for (t, _), n in zip(ticks, desired(play(lane, ticks)), strict=True) if n == 6)
    assert 600 <= fallen <= 640 + tick_s


def test_the_least_asked_for_within_the_window_of_scale_out_is_added(settings, play):
    lane = settings(**overlay(out={"stabilization": "60s"}))
    ticks = [(0, load(10)), (15, load(14)), (30, load(12)), (61, load(13)), (75, load(15)), (99, load(15))]
    # At 61 s the 10 of 0 s have just left (slots of 4 s); 12 is the least since.
    assert desired(play(lane, ticks)) == [10, 10, 10, 10, 12, 13]


def test_hysteresis_leaves_a_gap_in_which_nothing_changes(settings, play):
    """Ten replicas at 70 % of 1,000. With a gap of 10 %, nine would do once they are used to 63 % at most: 9 x 630 =
    5,670, that is 8.1 replicas of load. At 8.2 they stay."""
    lane = settings(**overlay(in_={"hysteresis": 0.1}))
    assert desired(play(lane, [(0, load(10)), (15, load(8.2, ready=10)), (30, load(8.1, ready=10))])) == [10, 10, 9]


def test_a_pace_limits_what_is_added_within_any_minute(settings, play):
    """Four at a time, or all that there is again if that is more: here 50 %, five of ten."""
    lane = settings(**overlay(out={"per_minute": 4, "share_per_minute": 0.5}))
    ticks = [(0, load(10)), *((5.0 + 15 * i, load(40)) for i in range(6))]
    # 5 added at 5 s count for 60 to 70 s; then half of 15, rounded up.
    assert desired(play(lane, ticks)) == [10, 15, 15, 15, 15, 15, 23]


def test_a_pace_limits_what_is_let_go_within_any_minute(settings, play):
    """Two let go at 15 s and at 90 s each count for 60 to 70 s."""
    lane = settings(**overlay(in_={"per_minute": 2, "share_per_minute": 0.1}))
    ticks = [(15.0 * i, load(10 if i == 0 else 2, ready=10)) for i in range(12)]
    assert desired(play(lane, ticks)) == [10, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 4]


def test_a_floor_raises_past_cooldown_window_and_pace(settings, play):
    lane = settings(**overlay(out={"cooldown": "90s", "per_minute": 1, "share_per_minute": 0, "stabilization": "5m"}))
    ticks = [(0, load(10, floor=5)), (15, load(11, floor=5)), (30, load(11, floor=30))]
    assert desired(play(lane, ticks)) == [10, 10, 30]


def test_replicas_that_the_floors_want_again_soon_are_kept(settings, play):
    """Demand wants 3, the floor is 4 now and will be 8 within startup and minimum uptime: 8 of ten stay, and none is
    added for it."""
    lane = settings(**AT_ONCE)
    kept = play(lane, [(0, load(10)), (15, load(3, floor=4, floor_ahead=8)), (30, load(3, floor=4, floor_ahead=20))])
    assert desired(kept) == [10, 8, 8]
    assert desired(play(lane, [(0, load(10)), (15, load(3, floor=4, floor_ahead=4))])) == [10, 4]


def test_starting_replicas_are_capacity_to_come(settings, play):
    """Ten ready at 95 %: step adds four, once. While they start the ten are as full, and 10 + 4 is what there is."""
    lane = settings(**overlay(policy="step", utilization="gpu"))
    full = {"gpu_utilization": 0.96, "ready": 10}
    decisions = play(lane, [(0, full), (15, full | {"starting": 4}), (30, full | {"starting": 4})])
    assert desired(decisions) == [14, 14, 14]


def test_pods_of_a_surge_are_not_counted_twice(settings, play):
    """Ten asked for and full to 70 %. A rolling update runs three more for a while, so that 13 are used to 54 %: still
    ten are needed, and 13 is never taken for what was asked for."""
    lane = settings(**overlay(utilization="gpu"))
    surge = {"gpu_utilization": 0.70 * 10 / 13, "ready": 13, "starting": 3, "requested": 10}
    decisions = play(lane, [(0, {"gpu_utilization": 0.70, "ready": 10, "requested": 10}), (15, surge), (30, surge)])
    assert desired(decisions) == [10, 10, 10]


def test_an_applied_decision_may_take_a_while_to_show(settings, play):
    """12 decided in a cooldown; the workload still asks for ten at the next tick. The decision stands."""
    lane = settings(**overlay(out={"cooldown": "90s"}))
    ticks = [(0, load(10, requested=10)), (15, load(12, requested=10)), (30, load(12, requested=10))]
    assert desired(play(lane, ticks)) == [10, 12, 12]


def test_a_workload_raised_by_somebody_else_is_taken_as_it_is_and_then_let_go_by_the_rules(settings, play):
    lane = settings(**overlay(in_={"cooldown": "300s"}))
    ticks = [(0, load(10, requested=10)), (15, load(10, requested=20)), (30, load(10, requested=20))]
    decisions = play(lane, [*ticks, (315, load(10, requested=20)), (330, load(10, requested=20))])
    assert desired(decisions) == [10, 20, 20, 10, 10]
    # What is not applied yet is no raise: 20 was there before.
    assert decisions[-1].current.tolist() == [10]


QUIET = {"tokens_in_per_s": 0.0, "tokens_out_per_s": 0.0, "ready": 5}


@pytest.mark.parametrize("noise", [0, 3], ids=["one gauge that hangs", "one that hangs, others that move"])
def test_a_stuck_queue_does_not_hold_a_fleet_up_for_ever(settings, play, noise):
    """500 requests wait at an engine that is gone; nothing arrives. 50 replicas are asked for, until it is not believed
    after 15 minutes."""
    lane = settings(**overlay(policy="hybrid", targets={"kv_cache": None}))
    ticks = [(15.0 * i, QUIET | {"waiting_requests": 500 + noise * (i % 2)}) for i in range(80)]
    decided = dict(zip((t for t, _ in ticks), desired(play(lane, ticks)), strict=True))
    assert decided[0.0] >= 50
    assert decided[870.0] >= 50
    assert decided[945.0] == 1


def test_a_stuck_queue_that_moves_again_is_believed_again(settings, play):
    lane = settings(**overlay(policy="hybrid", targets={"kv_cache": None}))
    hangs = [(15.0 * i, QUIET | {"waiting_requests": 500}) for i in range(80)]
    back = (1_200.0, QUIET | {"waiting_requests": 40})
    assert desired(play(lane, [*hangs, back]))[-2:] == [1, 4]


@pytest.mark.parametrize(
    "queue",
    [
        pytest.param(lambda i: 5_000 - 20 * i, id="a backlog that drains slowly while little arrives"),
        pytest.param(lambda i: 5_000 + i, id="one that grows beside busy replicas"),
    ],
)
def test_a_true_backlog_is_believed_as_long_as_it_lasts(settings, play, queue):
    lane = settings(**overlay(policy="hybrid", targets={"kv_cache": None}), bounds=(1, 50))
    busy = {"tokens_in_per_s": 0.0 if queue(1) < queue(0) else 50_000.0, "tokens_out_per_s": 0.0, "ready": 50}
    ticks = [(15.0 * i, busy | {"waiting_requests": queue(i)}) for i in range(160)]
    assert set(desired(play(lane, ticks))) == {50}


def test_requests_that_wait_for_the_first_replica_are_no_stuck_queue(settings, play):
    lane = settings(**overlay(policy="hybrid"), bounds=(0, 50))
    waits = {"waiting_requests": 5, "tokens_in_per_s": 0, "tokens_out_per_s": 0, "ready": 0, "starting": 1}
    ticks = [(15.0 * i, waits) for i in range(160)]
    decisions = play(lane, ticks)
    assert set(desired(decisions)) == {1}


def test_a_mean_forgets_by_half_its_window(settings, play):
    """3-minute window: 90 s after a jump from 700 to 1,400 tokens per second the mean is at 1,400 - 700 / e = 1,142."""
    lane = settings(**overlay(rate_window="3m"))
    decisions = play(lane, [(float(t), load(1 if t == 0 else 2)) for t in range(0, 91, 10)])
    assert decisions[-1].observed.mean[0, 0] == pytest.approx(1_400 - 700 / 2.718281828)
    assert decisions[-1].after[Rule.TRIGGERS].tolist() == [2]


def test_where_floor_and_ceiling_cross_the_ceiling_holds(settings, play):
    assert desired(play(settings(**AT_ONCE), [(0, load(10, floor=12, ceiling=8))])) == [8]


def test_a_clock_set_back_neither_fails_nor_lets_go(settings, play):
    lane = settings(**overlay(in_={"stabilization": "10m", "cooldown": "300s"}))
    decisions = play(lane, [(10_000, load(10)), (10_015, load(12)), (5_000, load(6)), (5_015, load(6))])
    assert desired(decisions) == [10, 12, 12, 12]
