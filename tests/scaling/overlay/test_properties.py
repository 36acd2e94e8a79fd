"""What holds whatever the signals: bounds, floors, order, independence of lanes, restarts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from floorcast.pool import Pool
from scaling.overlay.decide import decide
from scaling.overlay.lanes import concatenate, repeat, take
from scaling.overlay.settings import settings_of
from scaling.overlay.signals import Kind, Signals, snapshot
from scaling.overlay.state import begin

TICKS = 30
TOPS = {
    "tokens_in_per_s": 60_000,
    "tokens_out_per_s": 6_000,
    "waiting_requests": 600,
    "waiting_tokens_in": 1e6,
    "waiting_tokens_out": 1e5,
    "kv_cache_usage": 1,
    "ttft_p95_s": 3,
    "ttft_p95_s_per_1k_prompt": 1,
    "itl_p95_s": 0.2,
    "gpu_utilization": 1,
    "ahead": 60,
}
COUNTS = {"ready": 60, "starting": 10, "draining": 5, "requested": 60, "floor": 50, "floor_ahead": 50, "scheduled": 40}
OVERLAYS = [
    {},
    {
        "also": ["lookahead", "scheduled"],
        "panic": {},
        "targets": {"ttft": "500ms", "itl": "50ms", "gpu_utilization": 0.9},
    },
    {"policy": "composite", "utilization": "kv_cache"},
    {"policy": "target_tracking", "scale_in": {"cooldown": "0s", "stabilization": "0s"}, "safe_replicas": 33},
    {"policy": "step", "utilization": "gpu", "stale_after": "20s", "dead_man": "45s"},
    {"policy": "threshold", "scale_out": {"cooldown": "0s", "stabilization": "1m"}},
    {"policy": "scheduled"},
    {"policy": "lookahead", "panic": {"window": "10s", "hold": "2m"}, "stale_after": "20s", "dead_man": "45s"},
]
POOLS = [
    Pool.model_validate(
        {
            "gpu": {"type": "H100"},
            "role": role,
            "capacity": {"prefill_tokens_per_s": 1_000, "decode_tokens_per_s": 100, "combine": combine},
            "startup": {"p90": "4m"},
            "bounds": {"min": 2, "max": 45},
            "overlay": overlay,
        }
    )
    for overlay in OVERLAYS
    for role, combine in (("unified", "max"), ("unified", "sum"), ("decode", "max"))
]
SETTINGS = settings_of(POOLS)
LANES = len(POOLS)

seeds = st.integers(0, 2**32 - 1)


def random_signals(rng: np.random.Generator, lanes: int, *, missing: float, age_s: float = 200.0) -> Signals:
    """Of every kind, each value missing with that probability, ages up to `age_s`."""
    gone = lambda values: np.where(rng.random(lanes) < missing, np.nan, values)  # noqa: E731
    columns = {name: gone(rng.uniform(0, top, lanes)) for name, top in TOPS.items()}
    columns |= {name: gone(rng.integers(0, top, lanes).astype(float)) for name, top in COUNTS.items()}
    columns["ceiling"] = gone(rng.integers(20, 60, lanes).astype(float))
    ages = rng.uniform(0, age_s, (len(Kind), lanes))
    return snapshot(lanes, age_s=np.where(rng.random(ages.shape) < 0.7, 0, ages), **columns)


def sequence(seed: int, missing: float) -> list[tuple[float, Signals]]:
    """Ticks at odd times, some after a long pause."""
    rng = np.random.default_rng(seed)
    waits = np.where(rng.random(TICKS) < 0.05, 2_000, rng.uniform(1, 60, TICKS))
    return [(float(now_s), random_signals(rng, LANES, missing=missing)) for now_s in 1e9 + np.cumsum(waits)]


@profile(max_examples=20)
@given(seed=seeds, missing=st.sampled_from([0.0, 0.2, 0.8, 1.0]))
def test_desired_is_within_the_bounds_whatever_is_missing(seed, missing):
    """The floor is the one given, or the one given last, and never below bounds.min; the ceiling wins over it."""
    state, known = begin(LANES, 1e9), SETTINGS.min_replicas
    for now_s, signals in sequence(seed, missing):
        decision, state = decide(signals, state, SETTINGS, now_s)
        known = np.where(np.isnan(signals.floor), known, np.maximum(signals.floor, SETTINGS.min_replicas))
        ceiling = np.fmin(signals.ceiling, SETTINGS.max_replicas)
        assert (decision.desired >= np.minimum(known, ceiling)).all()
        assert (decision.desired <= ceiling).all()
        assert (decision.release == np.maximum(decision.current - decision.desired, 0)).all()


@profile(max_examples=20)
@given(seed=seeds)
def test_without_any_signal_replicas_never_fall(seed):
    rng = np.random.default_rng(seed)
    nothing = snapshot(LANES, ready=rng.integers(0, 40, LANES).astype(float))
    state, before = begin(LANES, 0.0), np.zeros(LANES)
    for now_s in np.cumsum(rng.uniform(1, 120, TICKS)):
        decision, state = decide(nothing, state, SETTINGS, float(now_s))
        assert (decision.desired >= before).all()
        before = decision.desired
    assert decision.alert.all()
    assert (before >= np.minimum(SETTINGS.safe_replicas, SETTINGS.max_replicas)).all()


@profile(max_examples=25)
@given(seed=seeds, kind=st.sampled_from([*Kind, None]), factor=st.floats(1, 20))
def test_more_demand_never_asks_for_fewer_replicas(seed, kind, factor):
    """From the same state, one signal greater, or all of them."""
    *past, (now_s, last) = sequence(seed, 0.1)
    state = begin(LANES, 1e9)
    for earlier_s, signals in past:
        _, state = decide(signals, state, SETTINGS, earlier_s)
    live = last.live.copy()
    rows = list(Kind) if kind is None else [kind]
    live[rows] *= factor
    # A queue that stood still and is greater now has moved, and one that is believed again asks for more, not fewer.
    less, _ = decide(last, state, SETTINGS, now_s)
    more, _ = decide(last._replace(live=live), state, SETTINGS, now_s)
    assert (more.desired >= less.desired).all()


@profile(max_examples=15)
@given(seed=seeds)
def test_a_higher_floor_never_gives_fewer_replicas(seed):
    *past, (now_s, last) = sequence(seed, 0.1)
    state = begin(LANES, 1e9)
    for earlier_s, signals in past:
        _, state = decide(signals, state, SETTINGS, earlier_s)
    less, _ = decide(last, state, SETTINGS, now_s)
    more, _ = decide(last._replace(floor=last.floor + 5, floor_ahead=last.floor_ahead + 5), state, SETTINGS, now_s)
    assert (more.desired >= less.desired).all()


def play(ticks, settings, lanes):
    state, desired = begin(lanes, 1e9), []
    for now_s, signals in ticks:
        decision, state = decide(signals, state, settings, now_s)
        desired.append(decision.desired)
    return np.array(desired), state


@profile(max_examples=8)
@given(seed=seeds)
def test_lanes_do_not_know_of_each_other(seed):
    """Permuted, alone, or beside others: the same decisions, and the same state."""
    ticks = sequence(seed, 0.2)
    whole, state = play(ticks, SETTINGS, LANES)
    order = np.random.default_rng(seed).permutation(LANES)
    shuffled, shuffled_state = play([(t, take(s, order)) for t, s in ticks], take(SETTINGS, order), LANES)
    assert (shuffled == whole[:, order]).all()
    for one, other in zip(take(state, order), shuffled_state, strict=True):
        np.testing.assert_array_equal(one, other)
    half = np.arange(LANES // 2)
    alone, _ = play([(t, take(s, half)) for t, s in ticks], take(SETTINGS, half), len(half))
    assert (alone == whole[:, half]).all()
    twice, _ = play(
        [(t, concatenate([s, take(s, order)])) for t, s in ticks],
        concatenate([SETTINGS, take(SETTINGS, order)]),
        2 * LANES,
    )
    assert (twice == np.concatenate([whole, whole[:, order]], axis=1)).all()


def test_nothing_passed_is_changed_and_the_same_gives_the_same():
    (now_s, signals), *_ = sequence(3, 0.2)
    state = begin(LANES, 1e9)
    copies = [tuple(array.copy() for array in arrays) for arrays in (signals, state, SETTINGS)]
    first, _ = decide(signals, state, SETTINGS, now_s)
    second, _ = decide(signals, state, SETTINGS, now_s)
    assert (first.desired == second.desired).all()
    for arrays, copied in zip((signals, state, SETTINGS), copies, strict=True):
        for array, copy in zip(arrays, copied, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_a_lane_repeated_is_decided_alike():
    lane = take(SETTINGS, [1])
    many = repeat(lane, 4)._replace(target_utilization=np.array([0.5, 0.6, 0.7, 0.8]))
    decision, _ = decide(snapshot(4, tokens_in_per_s=12_000, tokens_out_per_s=0, ready=1), begin(4, 0.0), many, 0.0)
    # 12,000 / 1,000 = 12 replicas at full use: 24, 20, 17.1, 15. At most four are added in the first minute, or as many
    # as there are: 1 + 4.
    assert decision.after[0].tolist() == [24, 20, 18, 15]
    assert decision.desired.tolist() == [5] * 4


@pytest.mark.parametrize("lanes", [0, 1])
def test_no_lane_and_one_lane_are_lanes(lanes):
    settings = take(SETTINGS, np.arange(lanes))
    decision, state = decide(snapshot(lanes), begin(lanes, 0.0), settings, 0.0)
    assert decision.desired.shape == (lanes,)
    assert state.desired.shape == (lanes,)
