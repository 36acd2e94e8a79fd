"""What happens to work and replicas, step by step and in sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.errors import ConfigError, DataError
from scaling.overlay.signals import Kind
from scaling.replay.conditions import Knee
from scaling.replay.lanes import lanes_of
from scaling.replay.replay import replay, replay_paths

FIGURES_OF_SERVICE = ("on_time", "late", "given_up", "waiting")


@pytest.fixture(scope="module")
def with_replicas(make_pool, make_conditions):
    """One lane with so many replicas in each step."""

    def run(traffic, ready, **conditions):
        path = np.broadcast_to(np.asarray(ready, dtype=np.int64), (traffic.steps,))[:, None].copy()
        none = np.zeros_like(path)
        return replay_paths(
            traffic,
            ("lane",),
            path,
            pool=make_pool(),
            conditions=make_conditions(**conditions),
            starting=none,
            draining=none,
        )

    return run


@pytest.fixture(scope="module")
def with_floors(make_pool, make_conditions):
    """Lanes that ask for their floors, one a step, or follow a policy where `overlay` names them."""

    def run(traffic, floors, *, policy=None, overlay=(), seed=0, initial=None, pool=None, **conditions):
        return replay(
            traffic,
            lanes_of(floors, window_s=traffic.step_s, overlay=overlay),
            pool=pool or make_pool(),
            conditions=make_conditions(**conditions),
            policy=policy,
            seed=seed,
            initial=initial,
        )

    return run


def column(result, name, lane=0):
    return getattr(result.run, name)[:, lane].tolist()


def test_a_burst_waits_until_it_is_served(make_stream, make_traffic, with_replicas):
    """400 tokens within the first 10 s at 10 tokens/s: the first waits 0 s, the last comes at 10 s and is served at
    40 s, after 30 s. Waits rise evenly, so those up to 10 s are a third."""
    result = with_replicas(make_traffic(make_stream([400, 0, 0, 0, 0, 0])), 10)
    row = result.figures.row(0, named=True)
    assert row["on_time"] == pytest.approx(800 / 3, rel=1e-4)
    assert row["late"] == pytest.approx(800 * 2 / 3, rel=1e-4)
    assert row["wait_p50_s"] == pytest.approx(15, abs=8)
    assert row["wait_p99_s"] == pytest.approx(22.5, abs=0.01)


def test_below_capacity_nothing_waits(make_stream, make_traffic, with_replicas):
    result = with_replicas(make_traffic(make_stream([90, 100, 0, 50])), 10)
    row = result.figures.row(0, named=True)
    assert (row["on_time"], row["late"], row["wait_p99_s"]) == (480, 0, 0)


def test_a_request_to_a_pool_of_no_replicas_waits_for_the_first(make_stream, make_traffic, with_replicas):
    """100 tokens come from 0 to 10 s; replicas serve from 20 s on: all of them wait 10 s at least."""
    result = with_replicas(make_traffic(make_stream([100, 0, 0, 0])), [0, 0, 10, 10])
    row = result.figures.row(0, named=True)
    assert row["late"] == pytest.approx(200)
    assert row["wait_p50_s"] == pytest.approx(20, abs=0.01)


def test_what_waits_past_the_timeout_is_given_up(make_stream, make_traffic, with_replicas):
    """300 tokens and 5 replicas: 50 are served a step. By 30 s 150 are, and with a timeout of 20 s what came by 10 s is
    given up at 30 s: the other 150."""
    result = with_replicas(make_traffic(make_stream([300, 0, 0, 0, 0], timeout_s=20.0)), 5)
    row = result.figures.row(0, named=True)
    assert row["given_up"] == pytest.approx(300)
    assert row["on_time"] + row["late"] == pytest.approx(300)
    assert row["wait_p99_s"] == pytest.approx(20)


def test_retries_come_again_and_are_served_when_there_is_room(make_stream, make_traffic, with_replicas):
    """The same with every request tried again 10 s later: the 150 given up at 30 s come from 40 s on, and 50 a step are
    served. First tries count once."""
    stream = make_stream([300, *[0] * 9], timeout_s=60.0)
    unlucky = with_replicas(make_traffic(stream), [0, *[0] * 6, 30, 30, 30], retry_share=1.0, retry_delay_s=10.0)
    row = unlucky.figures.row(0, named=True)
    assert row["given_up"] == pytest.approx(600)
    assert row["tokens"] == 600
    assert row["retries"] == pytest.approx(1.0)
    queue = unlucky.run.queues[0]
    assert queue.served[-1, 0] == pytest.approx(300)


def test_urgent_work_goes_first(make_stream, make_traffic, with_replicas):
    """10 replicas serve 100 tokens a step. The urgent stream brings 80, the batch 60: 20 of it are served each step."""
    traffic = make_traffic(make_stream([80] * 6), make_stream([60] * 6, name="batch", max_wait_s=900.0))
    result = with_replicas(traffic, 10)
    chat, batch = result.streams.rows(named=True)
    assert (chat["on_time"], chat["late"]) == (960, 0)
    assert batch["waiting"] == pytest.approx(2 * 6 * (60 - 20))


def test_past_the_knee_a_replica_gives_more_and_answers_late(make_stream, make_traffic, with_replicas):
    """110 tokens a step before 10 replicas, C = 100 a step, that give 1.2 C at most: none is left waiting, and the time
    to first token at 1.1 C is half of the way from 1 s to 9 s."""
    knee = Knee((0.0, 1.0, 1.2), (1.0, 1.0, 9.0))
    row = with_replicas(make_traffic(make_stream([110] * 30)), 10, knee=knee).figures.row(0, named=True)
    assert row["wait_p50_s"] == pytest.approx(5.0)
    assert row["waiting"] == pytest.approx(0)


def test_replicas_asked_for_serve_after_their_startup(make_stream, make_traffic, with_floors):
    """From 2 to 5 at 20 s; each start takes 30 s or 60 s, as drawn. They are paid for from when they are asked for."""
    floors = [2, 2, *[5] * 10]
    result = with_floors(make_traffic(make_stream([1.0] * 12)), {"lane": floors}, startup_s=np.array([30.0, 60.0]))
    ready, starting = column(result, "ready"), column(result, "starting")
    assert ready[:5] == [2, 2, 2, 2, 2]
    assert ready[5] + starting[5] == 5
    assert ready[8:] == [5] * 4
    paid = 2 * 2 + 10 * 5
    assert result.figures["gpu_hours"][0] == pytest.approx(paid * 10 / 3600 * 2)
    assert result.figures["usd"][0] == pytest.approx(paid * 10 / 3600 * 2 * 3)


def test_paths_are_told_by_the_minute(make_stream, make_traffic, with_floors):
    """Two minutes at 10 s: 60 tokens a step take 6 replicas, then 30 take 3; 4 more replicas are asked for at 60 s."""
    traffic = make_traffic(make_stream([60.0] * 6 + [30.0] * 6))
    paths = with_floors(traffic, {"up": [6] * 6 + [10] * 6, "flat": 6}).paths()
    assert paths["lane"].to_list() == ["up", "up", "flat", "flat"]
    assert paths["time"].dt.strftime("%H:%M:%S").to_list() == ["00:00:00", "00:01:00"] * 2
    assert paths["demand_replicas"].to_list() == pytest.approx([6, 3, 6, 3])
    assert paths["desired"].to_list() == [6, 10, 6, 6]
    assert paths["ready"].to_list() == [6, 6, 6, 6]
    assert paths["starting"].to_list() == [0, 4, 0, 0]


def test_the_same_seed_draws_the_same_startups_and_another_does_not(make_stream, make_traffic, with_floors):
    traffic, floors = make_traffic(make_stream([1.0] * 60)), {"lane": [0, *[30] * 59]}
    times = np.linspace(10, 500, 40)
    one, same, other = (column(with_floors(traffic, floors, startup_s=times, seed=seed), "ready") for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_fewer_replicas_first_cancels_the_last_starts_then_drains(make_stream, make_traffic, with_floors):
    """2 are ready; 4 more are asked for at 10 s (ready at 70 s), 2 more at 20 s (ready at 80 s). At 30 s only 3 are
    wanted: the two last due and three of the others are never started. At 100 s one drains: its requests of 20 tokens
    out at 1 s each take 20 s."""
    floors = [2, 6, 8, *[3] * 7, *[2] * 6]
    stream = make_stream([20.0] * 16, requests=[1.0] * 16)
    result = with_floors(make_traffic(stream), {"lane": floors}, seconds_per_token=1.0)
    assert column(result, "starting")[:5] == [0, 4, 6, 1, 1]
    assert column(result, "ready")[6:10] == [2, 3, 3, 3]
    assert column(result, "draining")[9:13] == [0, 1, 1, 0]


def test_work_still_in_flight_at_the_drain_timeout_fails(make_stream, make_traffic, with_floors):
    """4 replicas, 40 tokens a step each in flight for 40 s: one drains within 10 s, and of its share of the work begun
    within the last 30 s, a quarter of 3 x 40, all fails."""
    stream = make_stream([40.0] * 20, requests=[1.0] * 20)
    floors = [4] * 10 + [3] * 10
    fast = with_floors(make_traffic(stream), {"lane": floors}, seconds_per_token=1.0, drain_timeout_s=10.0)
    slow = with_floors(make_traffic(stream), {"lane": floors}, seconds_per_token=1.0, drain_timeout_s=100.0)
    assert fast.run.queues[0].failed[0] == pytest.approx(30)
    assert slow.run.queues[0].failed[0] == 0
    assert max(column(slow, "draining")) == 1
    assert sum(column(slow, "draining")) == 4


def test_a_crashed_replica_starts_anew_and_its_work_fails(make_stream, make_traffic, with_floors):
    """10 replicas over 10,000 s at 0.72 crashes an hour each: 20 expected, 4.5 their standard deviation."""
    stream = make_stream([50.0] * 1000, requests=[1.0] * 1000)
    result = with_floors(
        make_traffic(stream), {"lane": 10}, crashes_per_hour=0.72, seconds_per_token=1.0, drain_timeout_s=60.0
    )
    row = result.figures.row(0, named=True)
    assert 7 <= row["crashes"] <= 33
    assert row["failed"] > 0
    assert row["on_time_share"] < row["on_time"] / row["tokens"]
    starting, ready = column(result, "starting"), column(result, "ready")
    assert {a + b for a, b in zip(starting, ready, strict=True)} == {10}
    assert sum(starting) == pytest.approx(6 * row["crashes"], abs=6)


def test_a_full_kv_cache_holds_requests_back(make_stream, make_traffic, with_replicas):
    """A request of 10 in and 10 out takes 10 s and holds 15 tokens; each of 2 replicas has 150: 10 at a time, so 20 are
    begun a step, not the 40 that come, though the throughput of the two would do for one request a second each."""
    stream = make_stream([20.0] * 6, requests=[2.0] * 6)
    held = with_replicas(make_traffic(stream), 100, kv_tokens=0.15, seconds_per_token=1.0)
    free = with_replicas(make_traffic(stream), 100, kv_tokens=1.5, seconds_per_token=1.0)
    assert held.run.queues[0].served[-1, 0] == pytest.approx(6 * 10)
    assert free.run.queues[0].served[-1, 0] == pytest.approx(6 * 20)


def test_the_policy_sees_what_was_some_time_ago(make_stream, make_traffic, with_floors):
    """Signals 30 s old: at 50 s it is told the rate from 10 to 20 s, and before 30 s nothing."""
    seen = {}

    def policy(signals, now_s):
        seen[now_s] = (signals.live[Kind.TOKENS_IN_PER_S, 0], signals.age_s[0, 0], signals.ready[0])
        return signals.ready

    traffic = make_traffic(make_stream([10.0, 20.0, 30.0, 40.0, 50.0, 60.0]))
    with_floors(traffic, {"lane": 9}, policy=policy, overlay=["lane"], metric_age_s=(30.0, 30.0), counted="arrived")
    assert np.isnan(seen[30.0][0])
    assert seen[40.0] == (1.0, 30.0, 9.0)
    assert seen[50.0] == (2.0, 30.0, 9.0)


def test_signals_tell_the_queue_and_the_load(make_stream, make_traffic, with_floors):
    """100 tokens in and out as 10 requests come in a step before 5 replicas, which serve 50: 50 of each wait, so 5
    requests, and the next has its first token after 10 s."""
    seen = []

    def policy(signals, _now_s):
        seen.append(signals.live[:, 0])
        return signals.ready

    traffic = make_traffic(make_stream([100.0] * 3, requests=[10.0] * 3))
    with_floors(traffic, {"lane": 5}, policy=policy, overlay=["lane"], initial=np.array([5]))
    live = seen[1]
    assert live[Kind.WAITING_TOKENS_IN] == pytest.approx(50)
    assert live[Kind.WAITING_TOKENS_OUT] == pytest.approx(50)
    assert live[Kind.WAITING_REQUESTS] == pytest.approx(5)
    assert live[Kind.TOKENS_OUT_PER_S] == pytest.approx(5)
    assert live[Kind.TTFT_P95_S] == pytest.approx(10)
    assert live[Kind.GPU_UTILIZATION] == pytest.approx(1)
    assert np.isnan(live[Kind.ITL_P95_S])


def test_the_policy_neither_leaves_the_bounds_nor_goes_under_the_floor(
    make_stream, make_traffic, with_floors, make_pool
):
    pool = make_pool(bounds={"min": 2, "max": 6})
    traffic = make_traffic(make_stream([1.0] * 4))

    def run(wanted, floor):
        lane = {"lane": floor}
        result = with_floors(traffic, lane, policy=lambda *_: np.full(1, wanted), overlay=["lane"], pool=pool)
        return column(result, "desired")

    assert run(99, 0) == [6] * 4
    assert run(0, 0) == [2] * 4
    assert run(0, 4) == [4] * 4


def test_a_lane_with_an_overlay_needs_a_policy(make_stream, make_traffic, with_floors):
    with pytest.raises(DataError, match="no policy"):
        with_floors(make_traffic(make_stream([1.0])), {"lane": 1}, overlay=["lane"])


def test_a_tick_is_whole_steps(make_stream, make_traffic, with_floors):
    with pytest.raises(ConfigError, match="tick of 15 s"):
        with_floors(make_traffic(make_stream([1.0])), {"lane": 1}, tick_s=15.0)


def reactive(signals, _now_s):
    rate = np.nan_to_num(signals.live[Kind.TOKENS_IN_PER_S])
    return np.ceil(rate + np.nan_to_num(signals.live[Kind.WAITING_TOKENS_IN]) / 60)


HARSH = {
    "retry_share": 0.6,
    "crashes_per_hour": 3.0,
    "seconds_per_token": 0.7,
    "kv_tokens": 60.0,
    "drain_timeout_s": 20.0,
    "metric_age_s": (15.0, 60.0),
    "knee": Knee(),
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chat=st.lists(st.floats(0, 300), min_size=30, max_size=30),
    batch=st.lists(st.floats(0, 300), min_size=30, max_size=30),
    floors=st.lists(st.integers(0, 20), min_size=30, max_size=30),
    timeout_s=st.sampled_from([20.0, 50.0, np.inf]),
    seed=st.integers(0, 5),
)
def test_work_and_tokens_are_conserved(make_stream, make_traffic, with_floors, chat, batch, floors, timeout_s, seed):
    """Arrived, first tries and retries = served + given up + waiting; every token of a first try is on time, late,
    given up or waiting; what is retried is a share of what was given up or failed; nothing is negative."""
    traffic = make_traffic(
        make_stream(chat, requests=np.array(chat) / 9, timeout_s=timeout_s),
        make_stream(batch, requests=np.array(batch) / 40, name="batch", max_wait_s=60.0, timeout_s=timeout_s),
    )
    floors = {"floor": floors, "overlay": floors}
    result = with_floors(traffic, floors, policy=reactive, overlay=["overlay"], seed=seed, **HARSH)
    for queue in result.run.queues:
        waiting = queue.arrived[-1] - queue.done[-1]
        np.testing.assert_allclose(queue.arrived[-1], queue.served[-1] + queue.dropped + waiting, atol=1e-6)
        np.testing.assert_allclose(queue.arrived[-1], queue.work.sum() + queue.retried, atol=1e-6)
        assert (queue.retried <= 0.6 * (queue.dropped + queue.failed) + 1e-6).all()
        assert (np.diff(queue.done, axis=0) >= -1e-9).all()
        assert (queue.done <= queue.arrived + 1e-9).all()
    for row in result.figures.iter_rows(named=True):
        assert sum(row[name] for name in FIGURES_OF_SERVICE) == pytest.approx(row["tokens"], abs=1e-5)
        assert all(row[name] >= -1e-9 for name in FIGURES_OF_SERVICE)
        assert 0 <= row["on_time_share"] <= 1 + 1e-9
    for name in ("ready", "starting", "draining"):
        assert (getattr(result.run, name) >= 0).all()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chat=st.lists(st.floats(0, 300), min_size=40, max_size=40), seed=st.integers(0, 5))
def test_lanes_do_not_see_each_other(make_stream, make_traffic, with_floors, chat, seed):
    traffic = make_traffic(make_stream(chat, requests=np.array(chat) / 9, timeout_s=50.0))
    floors = {"a": 3, "b": [*[8] * 20, *[2] * 20], "c": 0}

    def run(names):
        lanes = {name: floors[name] for name in names}
        overlay = sorted({"a", "c"} & set(names))
        return with_floors(traffic, lanes, policy=reactive, overlay=overlay, seed=seed, **HARSH).figures

    together = run("abc")
    assert run("b").equals(together[1:2])
    assert run("ca").equals(together[[2, 0]])
