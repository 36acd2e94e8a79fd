"""What a gateway may still let through where a pool is short."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, POOL_SHARES, empty
from floorcast.replica import Capacity
from floorcast.types import Reason
from floorcast.workload import WorkloadClass
from scaling.admission import admitted, class_parts, class_rates
from scaling.floors import plan

CAPACITY = Capacity(prefill_tokens_per_s=1000, decode_tokens_per_s=100, target_utilization=0.5)


def spec(priority: int = 100, weight: float = 1, kind: str = "chat") -> WorkloadClass:
    return WorkloadClass.model_validate({"pools": ["main"], "priority": priority, "weight": weight, "kind": kind})


def at_once(*rates: tuple[float, float]) -> np.ndarray:
    """(in, out) tokens/s of each class in one window."""
    return np.array(rates, dtype=float)[:, :, None]


def test_priority_first_then_weight_worked_by_hand() -> None:
    """Four replicas at half their capacity serve 2,000 tokens/s in and 200 out.

    Chat (priority 200) is served whole: 800 in, 80 out; 1,200 and 120 are left. Docs and batch are of one priority,
    but batch comes last. Docs asks for 900 in and 160 out, code for 300 and 40, code with weight 2: at level l they
    take 160 l + 40 x 2 l = 240 l out. Code is whole at l = 1/2, which takes 120 out, all that is left: docs has half,
    450 in and 80 out. Tokens in would have held l = 0.8. Nothing is left for batch.
    """
    shares, budgets = admitted(
        at_once((800, 80), (900, 160), (300, 40), (500, 50)),
        [4],
        [spec(200), spec(), spec(weight=2), spec(kind="batch")],
        capacity=CAPACITY,
        role="unified",
    )
    assert shares[:, 0].tolist() == pytest.approx([1, 0.5, 1, 0])
    assert budgets[:, :, 0].tolist() == [pytest.approx(row) for row in ([800, 80], [450, 80], [300, 40], [0, 0])]


def test_what_only_the_margin_lacks_is_no_limit_below_the_demand() -> None:
    """Three replicas serve 1,500 in and 150 out, and the demand is 1,000 and 50: everyone gets all, and no more."""
    shares, budgets = admitted(at_once((600, 30), (400, 20)), [3], [spec(), spec()], capacity=CAPACITY, role="unified")
    assert shares.tolist() == [[1], [1]]
    assert budgets[:, :, 0].tolist() == [[600, 30], [400, 20]]


def test_prefill_decode_and_shared_gpus_have_one_limit() -> None:
    """Two replicas: 1,000 tokens/s in, 100 out, or both as (in / 1,000 + out / 100) up to 1."""
    one = at_once((2000, 50))

    def share(role: str, combine: str = "max") -> float:
        capacity = CAPACITY.model_copy(update={"combine": combine})
        return float(admitted(one, [2], [spec()], capacity=capacity, role=role)[0][0, 0])

    assert share("prefill") == pytest.approx(0.5)
    assert share("decode") == pytest.approx(1)
    assert share("unified") == pytest.approx(0.5)
    assert share("unified", "sum") == pytest.approx(1 / 2.5)


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500)), min_size=1, max_size=5),
    st.integers(0, 12),
    st.data(),
)
def test_admission_fits_and_follows_rank_and_weight(
    rates: list[tuple[int, int]], replicas: int, data: st.DataObject
) -> None:
    specs = [
        spec(data.draw(st.integers(0, 2)), data.draw(st.sampled_from([0.5, 1.0, 4.0])), kind)
        for kind in data.draw(st.lists(st.sampled_from(["chat", "batch"]), min_size=len(rates), max_size=len(rates)))
    ]
    given_rates = at_once(*rates)
    shares, budgets = admitted(given_rates, [replicas], specs, capacity=CAPACITY, role="unified")
    room = np.array([500.0, 50.0]) * replicas
    assert (budgets[:, :, 0].sum(axis=0) <= room * (1 + 1e-9) + 1e-6).all()
    assert (budgets <= given_rates).all()
    assert shares[:, 0] == pytest.approx(bisected(given_rates[:, :, 0], room, specs), abs=1e-6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(st.integers(0, 300), st.integers(0, 300)),
    st.integers(1, 30),
    st.floats(0, 1),
    st.floats(1, 2),
    st.floats(0, 0.9),
)
def test_no_published_budget_is_above_what_the_class_asks_for(
    make_config, make_forecasts, now, rates, most, share, peak, cached
) -> None:
    """What it asks for is its quantile in the busiest minute, with the prompt tokens in the cache."""
    config = make_config(classes={"agent": "main", "chat": "main"}, bounds={"min": 1, "max": most})
    shares = [
        {"pool": "main", "metric": metric, "cutoff": now, "share": share, "peak": peak}
        for metric in ("tokens_in", "tokens_out")
    ]
    floors = plan(
        config,
        now=now,
        forecasts=make_forecasts({"agent": [float(rates[0])] * 30, "chat": [float(rates[1])] * 30}, spread=200),
        history=empty(DEMAND),
        published=None,
        shares=pl.DataFrame(shares, schema=dict(POOL_SHARES)),
        cached={"chat": cached},
    ).floors
    reason = Reason.model_validate_json(floors["reason"][0])
    assert bool(reason.admission) == (reason.shortfall_replicas > 0)
    for name, budget in reason.admission.items():
        asked = reason.classes[name]
        prompts = asked.tokens_in_per_s if asked.prompt_in_per_s is None else asked.prompt_in_per_s
        assert budget.tokens_in_per_s <= prompts * peak + 1e-3
        assert budget.tokens_out_per_s <= asked.tokens_out_per_s * peak + 1e-3


def bisected(rates: np.ndarray, room: np.ndarray, specs: list[WorkloadClass]) -> np.ndarray:
    """The shares by rank, each rank's greatest common level found by halving."""
    shares = np.zeros(len(specs))
    for rank in sorted({one.rank for one in specs}, reverse=True):
        own = [place for place, one in enumerate(specs) if one.rank == rank]
        weights = np.array([specs[place].weight for place in own])
        low, high = 0.0, 1 / weights.min()
        left = np.maximum(room - shares @ rates, 0)
        for _ in range(60):
            level = (low + high) / 2
            fits = (np.minimum(1, weights * level) @ rates[own] <= left + 1e-9).all()
            low, high = (level, high) if fits else (low, level)
        shares[own] = np.minimum(1, weights * low)
    return shares


def test_a_pool_is_needed_by_its_classes_in_proportion_to_the_binding_rate() -> None:
    """Of 300 tokens/s in 100 are a's, of 100 out 75. Where both count, a has 0.1 + 0.75 of 0.3 + 1."""
    rates = np.repeat(at_once((100, 75), (200, 25)), 3, axis=2)
    parts = class_parts(rates, np.array(["tokens_in", "tokens_out", "sum"]), CAPACITY)
    assert parts[0].tolist() == pytest.approx([1 / 3, 0.75, 0.85 / 1.3])
    assert parts.sum(axis=0).tolist() == pytest.approx([1, 1, 1])
    assert class_parts(rates, np.array(["fallback_replicas"] * 3), CAPACITY).tolist() == [[0.5] * 3] * 2


def test_class_rates_add_up_to_the_pools_and_the_unknown_is_nothing() -> None:
    classes = np.array([[[30.0], [0.0]], [[np.nan], [0.0]], [[10.0], [0.0]]])
    assert class_rates(classes, np.array([[60.0], [0.0]]))[:, 0, 0].tolist() == pytest.approx([45, 0, 15])
