"""Who is short where floors exceed the GPUs that there are."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import DEMAND, empty
from floorcast.config import Config
from floorcast.errors import FloorcastError
from floorcast.types import FloorWindow, Reason
from scaling.explain import explain
from scaling.floors import plan
from scaling.quotas import Claim, ration
from scaling.recompute import recompute

NO_HISTORY = empty(DEMAND)
CAPACITY = {"prefill_tokens_per_s": 10, "decode_tokens_per_s": 10, "target_utilization": 1}


def fleet(pools: dict[str, dict[str, Any]], classes: dict[str, dict[str, Any]], quotas: list[dict[str, Any]]) -> Config:
    """Pools of one H100 a replica, 10 tokens/s each, no margins; horizon one hour."""
    base = {
        "capacity": CAPACITY,
        "startup": {"p90": "4m30s", "apply_delay": "30s"},
        "margin": {"minimum": 0},
        "shape": {"step_down": 1000, "every": "5m", "dwell": "0s"},
    }
    made = {
        name: {
            **base,
            "gpu": {"type": spec.get("gpu", "H100"), "per_replica": spec.get("size", 1)},
            "region": spec.get("region"),
            "bounds": {"min": spec.get("min", 0), "max": spec.get("max", 1000)},
            "scale_to_zero": None if spec.get("min") else {"wake_up": "1m", "below_tokens_per_s": 0.1},
        }
        for name, spec in pools.items()
    }
    return Config.model_validate({"horizon": "1h", "pools": made, "classes": classes, "quotas": quotas})


def claim(floors: list[int], *, least: int = 0, parts: dict[str, float], beyond_need: int = 0) -> Claim:
    windows = len(floors)
    return Claim(
        floors=np.array(floors),
        least=np.full(windows, least),
        classes=tuple(parts),
        parts=np.tile(np.array(list(parts.values()))[:, None], windows),
        beyond_need=np.full(windows, beyond_need),
    )


def test_batch_is_short_first_and_windows_that_fit_stay() -> None:
    """Chat wants 8 of 10 GPUs, batch 5: chat gets its 8, batch the 2 that are left. In the second window 3 + 5 fit."""
    config = fleet(
        {"chat-pool": {}, "batch-pool": {}},
        {"chat": {"pools": ["chat-pool"]}, "nightly": {"pools": ["batch-pool"], "kind": "batch"}},
        [{"gpu": "H100", "gpus": 10}],
    )
    floors, [use] = ration(
        config,
        {"chat-pool": claim([8, 3], parts={"chat": 1}), "batch-pool": claim([5, 5], parts={"nightly": 1})},
    )
    assert (floors["chat-pool"].tolist(), floors["batch-pool"].tolist()) == ([8, 3], [2, 5])
    assert use.gpus.tolist() == [10, 8]


def test_priority_goes_before_kind_and_minimums_before_priority() -> None:
    """Batch with priority 200 keeps its 7 of 10 GPUs; chat keeps its minimum of 2 and gets the one that is left."""
    config = fleet(
        {"chat-pool": {"min": 2}, "batch-pool": {}},
        {"chat": {"pools": ["chat-pool"]}, "nightly": {"pools": ["batch-pool"], "kind": "batch", "priority": 200}},
        [{"gpu": "H100", "gpus": 10}],
    )
    claims = {
        "chat-pool": claim([8], least=2, parts={"chat": 1}),
        "batch-pool": claim([7], parts={"nightly": 1}),
    }
    floors, _ = ration(config, claims)
    assert (floors["chat-pool"].tolist(), floors["batch-pool"].tolist()) == ([3], [7])


def test_weights_divide_what_is_left_among_equals() -> None:
    """Both want 12 of 18 GPUs. With equal weights 9 each; with weights 2 to 1 they get 12 and 6."""
    pools = {"a-pool": {}, "b-pool": {}}
    claims = {"a-pool": claim([12], parts={"a": 1}), "b-pool": claim([12], parts={"b": 1})}
    quotas = [{"gpu": "H100", "gpus": 18}]
    equal = fleet(pools, {"a": {"pools": ["a-pool"]}, "b": {"pools": ["b-pool"]}}, quotas)
    floors, _ = ration(equal, claims)
    assert {name: counts.tolist() for name, counts in floors.items()} == {"a-pool": [9], "b-pool": [9]}
    heavy = fleet(pools, {"a": {"pools": ["a-pool"], "weight": 2}, "b": {"pools": ["b-pool"]}}, quotas)
    floors, _ = ration(heavy, claims)
    assert {name: counts.tolist() for name, counts in floors.items()} == {"a-pool": [12], "b-pool": [6]}


def test_a_shared_pool_is_short_by_the_part_of_its_lower_class() -> None:
    """A pool of 10 is wanted for chat (60 %) and batch (40 %), another of 6 for chat. With 13 GPUs: 6 for the chat of
    the first, 6 for the second, and 1 of the 4 that batch is the cause of."""
    config = fleet(
        {"shared": {}, "own": {}},
        {"chat": {"pools": ["own"]}, "code": {"pools": ["shared"]}, "bulk": {"pools": ["shared"], "kind": "batch"}},
        [{"gpu": "H100", "gpus": 13}],
    )
    claims = {"shared": claim([10], parts={"bulk": 0.4, "code": 0.6}), "own": claim([6], parts={"chat": 1})}
    floors, _ = ration(config, claims)
    assert (floors["shared"].tolist(), floors["own"].tolist()) == ([7], [6])


def test_what_is_beyond_the_need_takes_nothing_from_a_need() -> None:
    """Pool a wants 30 of 32 GPUs, but 25 of them are held or guessed; b's 20 come before those."""
    config = fleet(
        {"a-pool": {}, "b-pool": {}},
        {"a": {"pools": ["a-pool"], "priority": 900}, "b": {"pools": ["b-pool"]}},
        [{"gpu": "H100", "gpus": 32}],
    )
    claims = {"a-pool": claim([30], parts={"a": 1}, beyond_need=25), "b-pool": claim([20], parts={"b": 1})}
    floors, _ = ration(config, claims)
    assert (floors["a-pool"].tolist(), floors["b-pool"].tolist()) == ([12], [20])


def test_a_region_and_the_whole_are_kept_both() -> None:
    """West has 8 of the 20 GPUs there are: it gets 8 of 15, and the east the other 12 of its 15."""
    config = fleet(
        {"east": {"region": "us-east"}, "west": {"region": "us-west"}, "other": {"gpu": "A10G"}},
        {"e": {"pools": ["east"]}, "w": {"pools": ["west"]}, "o": {"pools": ["other"]}},
        [{"gpu": "H100", "gpus": 20}, {"gpu": "H100", "region": "us-west", "gpus": 8}],
    )
    claims = {name: claim([15], parts={part: 1}) for name, part in (("east", "e"), ("west", "w"), ("other", "o"))}
    floors, uses = ration(config, claims)
    assert {name: counts.tolist() for name, counts in floors.items()} == {"east": [12], "west": [8]}
    assert [use.gpus.tolist() for use in uses] == [[20], [8]]


@st.composite
def rationed(draw: st.DrawFn) -> tuple[Config, dict[str, Claim]]:
    count, windows = draw(st.integers(1, 5)), 3
    small = st.integers(0, 30)
    pools, classes, claims = {}, {}, {}
    for place in range(count):
        least, size = draw(st.integers(0, 3)), draw(st.sampled_from([1, 2, 8]))
        pools[f"p{place}"] = {"min": least, "size": size, "region": draw(st.sampled_from(["east", "west"]))}
        shares = draw(st.lists(st.integers(0, 4), min_size=2, max_size=2))
        total = sum(shares)
        parts = {f"c{place}-{k}": (share / total if total else 0.5) for k, share in enumerate(shares)}
        for name in parts:
            classes[name] = {
                "pools": [f"p{place}"],
                "priority": draw(st.integers(0, 2)),
                "weight": draw(st.sampled_from([0.5, 1.0, 3.0])),
                "kind": draw(st.sampled_from(["chat", "batch"])),
            }
        floors = [least + draw(small) for _ in range(windows)]
        claims[f"p{place}"] = claim(floors, least=least, parts=parts, beyond_need=min(draw(small), min(floors) - least))
    regions = {pool["region"] for pool in pools.values()}
    least_of = {
        region: sum(pool["min"] * pool["size"] for pool in pools.values() if region in (None, pool["region"]))
        for region in (None, *regions)
    }
    quotas = [
        {"gpu": "H100", "region": region, "gpus": max(1, least) + draw(st.integers(0, 60))}
        for region, least in least_of.items()
    ]
    return fleet(pools, classes, quotas), claims


@given(rationed())
def test_quotas_are_never_exceeded_and_minimums_never_cut(case: tuple[Config, dict[str, Claim]]) -> None:
    config, claims = case
    floors, uses = ration(config, claims)
    size = {name: pool.gpu.per_replica for name, pool in config.pools.items()}
    for use in uses:
        covered = [name for name, pool in config.pools.items() if use.quota.covers(pool)]
        assert use.gpus.tolist() == sum(floors[name] * size[name] for name in covered).tolist()
        assert (use.gpus <= use.quota.gpus).all()
    for name, asked in claims.items():
        assert (floors[name] >= asked.least).all()
        assert (floors[name] <= asked.floors).all()
        # A pool is short only where a quota has no room for another of its replicas.
        for window in np.flatnonzero(floors[name] < asked.floors):
            rooms = [use.quota.gpus - use.gpus[window] for use in uses if use.quota.covers(config.pools[name])]
            assert min(rooms) < size[name]


@given(rationed())
def test_a_lower_class_has_nothing_while_a_higher_one_of_the_same_size_is_short(
    case: tuple[Config, dict[str, Claim]],
) -> None:
    """Between pools of one class each, of one size and under one quota: while the higher is short, the lower has no
    more than its minimum."""
    config, claims = case
    single = {
        name: Claim(one.floors, one.least, one.classes[:1], np.ones((1, 3)), np.zeros(3, dtype=np.int64))
        for name, one in claims.items()
    }
    config = config.model_copy(
        update={
            "quotas": config.quotas[:1],
            "pools": {
                name: pool.model_copy(update={"gpu": pool.gpu.model_copy(update={"per_replica": 1})})
                for name, pool in config.pools.items()
            },
        }
    )
    floors, _ = ration(config, single)
    rank = {name: config.classes[one.classes[0]].rank for name, one in single.items()}
    for (high, above), (low, below) in permutations(single.items(), 2):
        short = floors[high] < above.floors
        if rank[high] > rank[low]:
            assert (floors[low][short] == below.least[short]).all()


def test_a_plan_short_of_gpus_says_so_and_recomputes(make_forecasts: Any, now: Any) -> None:
    """Chat needs 8 replicas and batch 5, of 10 GPUs. Batch gets 2: of its 50 tokens/s 20 can be admitted, 40 %."""
    config = fleet(
        {"chat-pool": {"min": 1}, "batch-pool": {"min": 1}},
        {"chat": {"pools": ["chat-pool"]}, "nightly": {"pools": ["batch-pool"], "kind": "batch"}},
        [{"gpu": "H100", "gpus": 10}],
    )
    forecasts = make_forecasts({"chat": [80.0] * 14, "nightly": [50.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
    rows = {row["pool"]: row for row in made.filter(pl.col("window_start") == now).iter_rows(named=True)}
    reasons = {pool: Reason.model_validate_json(row["reason"]) for pool, row in rows.items()}
    assert {pool: row["min_replicas"] for pool, row in rows.items()} == {"chat-pool": 8, "batch-pool": 2}
    for pool, reason in reasons.items():
        assert recompute(reason, config.pools[pool]) == rows[pool]["min_replicas"]
        assert [one.model_dump() for one in reason.quotas] == [
            {"gpu": "H100", "region": None, "used": 10, "gpus": 10},
        ]
    short = reasons["batch-pool"]
    assert [move.model_dump() for move in short.adjustments] == [{"rule": "quota", "before": 5, "after": 2}]
    assert short.clamped == "quota"
    assert (short.shortfall_replicas, reasons["chat-pool"].shortfall_replicas) == (3, 0)
    assert short.admission["nightly"].model_dump() == {"share": 0.4, "tokens_in_per_s": 20, "tokens_out_per_s": 20}
    assert reasons["chat-pool"].admission == {}
    window = FloorWindow(start=now, end=now + config.step, min_replicas=2, reason=short)
    said = explain(window, pool_name="batch-pool", pool=config.pools["batch-pool"])
    assert "quota H100: 10 of 10 GPUs" in said
    assert "5 becomes 2" in said
    assert "nightly 40 % at peak (20/s in, 20/s out)" in said
    whole = {"nightly": short.admission["nightly"].model_copy(update={"share": 1.0, "tokens_in_per_s": 90.0})}
    window = window.model_copy(update={"reason": short.model_copy(update={"admission": whole})})
    assert "nightly no limit needed" in explain(window, pool_name="batch-pool", pool=config.pools["batch-pool"])


@pytest.mark.parametrize(
    ("after", "used", "says"),
    [(1, 10, "recomputed 2 to 5"), (5, 10, "not 5"), (2, 3, "room for another replica")],
)
def test_a_quota_cut_that_cannot_be_is_refused(make_forecasts: Any, now: Any, after: int, used: int, says: str) -> None:
    config = fleet({"main": {"min": 2}}, {"chat": {"pools": ["main"]}}, [{"gpu": "H100", "gpus": 10}])
    forecasts = make_forecasts({"chat": [50.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
    reason = Reason.model_validate_json(made["reason"][0])
    forged = Reason.model_validate(
        reason.model_dump()
        | {
            "adjustments": [{"rule": "quota", "before": 5, "after": after}],
            "quotas": [{"gpu": "H100", "used": used, "gpus": 10}],
            "shortfall_replicas": 5 - after,
            "clamped": "quota",
        }
    )
    with pytest.raises(FloorcastError, match=says):
        recompute(forged, config.pools["main"])


def _pair(**shape: Any) -> Config:
    """Pools `hi` of the higher priority and `lo`, 40 GPUs between them."""
    config = fleet(
        {"hi": {"min": 1}, "lo": {"min": 1}},
        {"top": {"pools": ["hi"], "priority": 200}, "other": {"pools": ["lo"], "priority": 100}},
        [{"gpu": "H100", "gpus": 40}],
    )
    if shape:
        given = config.model_dump(exclude_unset=True)
        given["pools"]["hi"]["shape"] = shape
        return Config.model_validate(given)
    return config


def _floors(made: pl.DataFrame) -> dict[str, list[int]]:
    return {pool: made.filter(pool=pool)["min_replicas"].to_list() for pool in ("hi", "lo")}


@pytest.mark.parametrize(
    "shape",
    [
        {"step_down": 1, "every": "1h", "dwell": "0s", "hysteresis": 0},
        {"step_down": 1000, "every": "5m", "dwell": "1h", "hysteresis": 0},
        {"step_down": 1000, "every": "5m", "dwell": "0s", "hysteresis": 0.9},
    ],
)
def test_what_the_shape_holds_takes_nothing_from_anothers_need(
    make_forecasts: Any, make_schedule: Any, now: Any, shape: dict[str, Any]
) -> None:
    """hi needs 10 of the 30 published for it and goes before lo, which needs 20 of the 40 GPUs: lo gets its 20, and of
    the 20 that the shape of hi still holds there is room for 10."""
    made = plan(
        _pair(**shape),
        now=now,
        forecasts=make_forecasts({"top": [100.0] * 14, "other": [200.0] * 14}),
        history=NO_HISTORY,
        published=make_schedule([30] * 13, start=now - timedelta(minutes=5), pool="hi"),
    ).floors
    assert {pool: floors[:2] for pool, floors in _floors(made).items()} == {"hi": [20, 20], "lo": [20, 20]}
    reasons = [Reason.model_validate_json(text) for text in made["reason"]]
    assert {reason.shortfall_replicas for reason in reasons} == {0}


def test_an_old_forecast_takes_nothing_from_the_need_of_another_pool(
    make_forecasts: Any, make_schedule: Any, now: Any
) -> None:
    """Median 100, at the quantile 145: both fresh, hi needs 15 and lo 25, all of the 40 GPUs. Where hi's forecast is
    twelve hours old its spread is doubled and it wants 19, but keeps the 15 that were published."""
    config = _pair()
    fresh = make_forecasts({"top": [100.0] * 14, "other": [205.0] * 14}, spread=100.0)
    first = plan(config, now=now, forecasts=fresh, history=NO_HISTORY, published=None).floors
    assert _floors(first) == {"hi": [15] * 12, "lo": [25] * 12}
    schedules = [
        make_schedule([0, *floors], start=now - timedelta(minutes=5), pool=pool)
        for pool, floors in _floors(first).items()
    ]
    published = schedules[0].model_copy(update={"pools": schedules[0].pools | schedules[1].pools})
    old = pl.concat(
        [
            make_forecasts({"top": [100.0] * 14}, spread=100.0, cutoff=now - timedelta(hours=12)),
            fresh.filter(workload_class="other"),
        ]
    )
    after = plan(config, now=now, forecasts=old, history=NO_HISTORY, published=published).floors
    assert _floors(after) == {"hi": [15] * 12, "lo": [25] * 12}
    nothing = plan(config, now=now, forecasts=old, history=NO_HISTORY, published=None).floors
    assert _floors(nothing) == {"hi": [19] * 12, "lo": [21] * 12}, "of what was never published the higher goes first"
