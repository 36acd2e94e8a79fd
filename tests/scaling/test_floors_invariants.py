"""The whole plan beside an oracle, and its invariants, over drawn scenarios."""

from __future__ import annotations

import math
from datetime import timedelta
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.types import Reason
from scaling.floors import plan
from scaling.recompute import recompute

STEP, WEEK = timedelta(minutes=5), timedelta(days=7)
WINDOWS = 12

rates = st.lists(st.one_of(st.integers(0, 400).map(float), st.none()), min_size=18, max_size=18)
scenarios = st.fixed_dictionaries(
    {
        "agent": rates,
        "chat": st.lists(st.integers(0, 400).map(float), min_size=18, max_size=18),
        "past": rates,
        "age_min": st.sampled_from([0, 10, 60, 300]),
        "published": st.none() | st.lists(st.integers(0, 50), min_size=13, max_size=13),
        "spread": st.sampled_from([0.0, 37.0]),
        "lead_min": st.sampled_from([5, 7, 10, 25]),
        "pool": st.builds(
            lambda limits, rest: rest | limits | {"margin": rest["margin"] | limits.get("margin", {})},
            limits=st.sampled_from(
                [
                    {"bounds": {"min": 1, "max": 100}},
                    {"bounds": {"min": 2, "max": 30, "exceed_by": 3}},
                    {
                        "bounds": {"min": 0, "max": 100},
                        "scale_to_zero": {"wake_up": "7m", "below_tokens_per_s": 400},
                        "margin": {"warm": 0},
                    },
                ]
            ),
            rest=st.fixed_dictionaries(
                {
                    "margin": st.fixed_dictionaries(
                        {
                            "quantile": st.sampled_from([0.5, 0.93, 0.99]),
                            "minimum": st.sampled_from([0, 0.1]),
                            "zones": st.sampled_from([1, 3]),
                            "rollout_unavailable": st.sampled_from([0, 2, 0.25]),
                            "warm": st.integers(0, 2),
                        }
                    ),
                    "shape": st.fixed_dictionaries(
                        {
                            "step_down": st.integers(1, 20) | st.sampled_from([0.1, 0.5]),
                            "every": st.sampled_from(["5m", "10m", "17m"]),
                            "dwell": st.sampled_from(["0s", "15m", "22m"]),
                            "hysteresis": st.sampled_from([0, 0.05, 0.5]),
                        }
                    ),
                    "role": st.sampled_from(["unified", "prefill", "decode"]),
                    "capacity": st.fixed_dictionaries(
                        {
                            "prefill_tokens_per_s": st.sampled_from([10, 33.3]),
                            "decode_tokens_per_s": st.just(20),
                            "target_utilization": st.sampled_from([0.75, 1]),
                            "combine": st.sampled_from(["max", "sum"]),
                        }
                    ),
                    "fallback_replicas": st.none() | st.integers(2, 30),
                }
            ),
        ),
    }
)
waiting = st.builds(lambda case, wait: case | {"wait": wait}, scenarios, st.sampled_from([None, "15m", "30m"]))
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="session")
def run(make_config, make_forecasts, make_history, make_schedule, now):
    """Plan a scenario, `more` tokens per second added to chat; gives the plan and all that went in."""

    def planned(case, *, more=0.0, lead_min=None):
        startup = {"p90": f"{lead_min or case['lead_min']}m", "apply_delay": "0s"}
        waits = {"chat": case["wait"]} if case.get("wait") else {}
        config = make_config(classes={"agent": "main", "chat": "main"}, startup=startup, waits=waits, **case["pool"])
        forecasts = pl.concat(
            [
                make_forecasts({"chat": [rate + more for rate in case["chat"]]}, spread=case["spread"]),
                make_forecasts(
                    {"agent": case["agent"]}, cutoff=now - timedelta(minutes=case["age_min"]), spread=case["spread"]
                ),
            ]
        )
        past = {now - WEEK + i * STEP: rate for i, rate in enumerate(case["past"]) if rate is not None}
        published = case["published"] and make_schedule(case["published"], start=now - STEP)
        inputs = {
            "forecasts": forecasts,
            "history": make_history({"agent": past}),
            "published": published,
        }
        made = plan(config, now=now, **inputs)
        return SimpleNamespace(config=config, **inputs, floors=made.floors.filter(pool="main"))

    return planned


def _oracle(case, config, now):
    """The floors of a scenario, window by window and in plain Python."""
    pool, level = config.pools["main"], case["pool"]["margin"]["quantile"]
    fallback = pool.bounds.max if pool.fallback_replicas is None else pool.fallback_replicas

    def figures(step):
        """(rate, rung) of each class at a step, None where not known."""
        spread = case["spread"] * (level - 0.5)
        agent, past, age = case["agent"][step], case["past"][step], case["age_min"]
        if agent is not None:
            yield agent + spread * (1 + age / 720 if age > 15 else 1), int(age > 15)
        else:
            yield None if past is None else (past, 2)
        yield case["chat"][step] + spread, 0

    def required(rate):
        capacity = pool.capacity
        loads = {"prefill": rate / capacity.prefill_tokens_per_s, "decode": rate / capacity.decode_tokens_per_s}
        if pool.role != "unified":
            return loads[pool.role] / capacity.target_utilization
        return (sum if capacity.combine == "sum" else max)(loads.values()) / capacity.target_utilization

    def buffered(need):
        margin = pool.margin
        whole = math.ceil(need * (1 + margin.minimum) - 1e-6)
        zoned = whole
        while margin.zones > 1 and zoned - math.ceil(zoned / margin.zones) < whole:
            zoned += 1
        rolled, away = zoned, margin.rollout_unavailable
        while rolled - (away if away >= 1 else away * rolled) < zoned:
            rolled += 1
        return rolled + margin.warm

    def idle(window):
        """Known and under the threshold in every step of the grid within the window, its lead and the wake-up."""
        if pool.scale_to_zero is None:
            return False
        last = min(window + ahead + math.ceil(pool.scale_to_zero.wake_up / STEP), WINDOWS + ahead - 1)
        known = [[figure for figure in figures(step) if figure is not None] for step in range(window, last + 1)]
        metrics = 2 if pool.role == "unified" else 1
        totals = [metrics * sum(rate for rate, _ in each) for each in known]
        return min(map(len, known)) == 2 and max(totals) < pool.scale_to_zero.below_tokens_per_s

    ahead = math.ceil(config.lead("main") / STEP)
    most = pool.bounds.max + pool.bounds.exceed_by
    published = [min(floor, most) for floor in case["published"] or [0] * 13]
    wanted, degraded = [], []
    for window in range(WINDOWS):
        need, worst, unknown, gap = 0.0, 0, False, False
        for step in range(window, window + ahead + 1):
            known = [figure for figure in figures(step) if figure is not None]
            need = max(need, required(round(sum(round(rate, 3) for rate, _ in known), 3)))
            worst = max(worst, *(rung for _, rung in known))
            if len(known) < 2:
                unknown, gap = True, gap or step < WINDOWS
        floor = 0 if idle(window) else max(buffered(need), 1)
        floor = max(floor, fallback) if gap else floor
        wanted.append(min(max(floor, pool.bounds.min), most))
        degraded.append(bool(worst) or unknown)

    dwell, every = math.ceil(pool.shape.dwell / STEP), math.ceil(pool.shape.every / STEP)
    floors, floor, epoch = [], published[0], int(now.timestamp() // 300)
    for window in range(WINDOWS):
        held = max(wanted[max(0, window - max(dwell, 1) + 1) : window + 1])
        if window < dwell - 1:
            held = max(held, published[window + 1])
        before = published[window + 1]
        if degraded[window]:
            held = max(held, before)
        if held < before and before - held <= pool.shape.hysteresis * before + 1e-9:
            held = before
        down = pool.shape.step_down
        fall = down if down >= 1 else max(1, math.floor(floor * down + 1e-9))
        floor = max(held, floor - (fall if (epoch + window) % every == 0 else 0))
        floors.append(floor)
    return floors


@few
@given(case=scenarios)
def test_the_plan_equals_its_oracle_recomputes_and_keeps_its_invariants(run, now, case):
    made = run(case)
    pool, frame = made.config.pools["main"], made.floors
    floors = frame["min_replicas"].to_list()
    assert floors == _oracle(case, made.config, now)
    assert [recompute(Reason.model_validate_json(reason), pool) for reason in frame["reason"]] == floors
    assert all(pool.bounds.min <= floor <= pool.bounds.highest for floor in floors)
    again = plan(
        made.config, now=now, forecasts=made.forecasts[::-1], history=made.history, published=made.published
    ).floors
    assert again.filter(pool="main").equals(frame)


@few
@given(case=waiting, more=st.integers(0, 300))
def test_more_demand_never_lowers_a_floor(run, case, more):
    low, high = (run(case, more=extra).floors["min_replicas"] for extra in (0.0, float(more)))
    assert (high >= low).all()


@few
@given(case=scenarios, leads=st.lists(st.integers(1, 25), min_size=2, max_size=2).map(sorted))
def test_a_longer_lead_never_lowers_a_floor(run, case, leads):
    """Not so where a class may wait: a longer lead looks further ahead, to steps with room for its work."""
    short, long = (run(case, lead_min=lead).floors["min_replicas"] for lead in leads)
    assert (long >= short).all()


@few
@given(case=scenarios)
def test_a_class_not_known_never_gives_less_than_a_class_at_zero(run, case):
    """Missing is not zero: losing every figure of a class is no better than knowing that it idles. Not so step by step
    where a class may wait: beside one not known its work is done as it comes, and not moved to a later step."""
    nothing = [None] * 18
    case |= {"spread": 0.0, "past": nothing}
    lost = run(case | {"agent": nothing}).floors["min_replicas"]
    idle = run(case | {"agent": [0.0] * 18, "age_min": 0}).floors["min_replicas"]
    assert (lost >= idle).all()


@few
@given(case=waiting)
def test_losing_a_forecast_never_lowers_what_is_published_for_that_time(run, case):
    """The horizon is published; then the forecasts of one class are gone."""
    published = [0, *run(case).floors["min_replicas"]]
    after = run(case | {"agent": [None] * 18, "published": published}).floors["min_replicas"]
    assert all(floor >= before for floor, before in zip(after, published[1:], strict=True))


@few
@given(case=waiting)
def test_hysteresis_never_gives_less_than_none(run, case):
    shape = case["pool"]["shape"]
    kept, none = (
        run(case | {"pool": case["pool"] | {"shape": shape | {"hysteresis": share}}}).floors["min_replicas"]
        for share in (0.5, 0)
    )
    assert (kept >= none).all()
