"""The whole plan: by hand, beside an oracle, and its invariants."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, FLOORS, FORECASTS, POOL_SHARES, empty
from floorcast.config import Config
from floorcast.types import Reason
from scaling.floors import plan
from scaling.recompute import recompute

STEP, WEEK = timedelta(minutes=5), timedelta(days=7)
WINDOWS = 12
NO_HISTORY = empty(DEMAND)

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


def _both(*, quantile: float, median: float) -> dict[str, object]:
    """A class whose metrics are alike, as a reason gives it."""
    figures = {"tokens_in_per_s": quantile, "tokens_out_per_s": quantile}
    return figures | {
        "median_in_per_s": median,
        "median_out_per_s": median,
        "model_in": "ets",
        "model_out": "ets",
        "deadline": None,
    }


def test_classes_that_peak_apart_need_less_while_their_forecasts_are_fresh(make_config, make_forecasts, now):
    """Medians 30 and 50, each 45 more at the quantile: added up 170; with a third of the spread of 90, 110, and 132 in
    the busiest minute. Of an old forecast the share is not known and the quantiles add up, their spread doubled in
    twelve hours: 260, and 312 in the busiest minute."""
    config = make_config(classes={"agent": "main", "chat": "main"})
    rates = {"agent": [30.0] * 14, "chat": [50.0] * 14}

    def shares(peak: float, cutoff: datetime = now) -> pl.DataFrame:
        of_main = {"pool": "main", "cutoff": cutoff, "share": 1 / 3, "peak": peak}
        return pl.DataFrame(
            [of_main | {"metric": metric} for metric in ("tokens_in", "tokens_out")], schema=dict(POOL_SHARES)
        )

    def first(forecasts: pl.DataFrame, given: pl.DataFrame | None) -> tuple[int, Reason]:
        made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None, shares=given)
        row = made.floors.row(0, named=True)
        reason = Reason.model_validate_json(row["reason"])
        assert recompute(reason, config.pools["main"]) == row["min_replicas"]
        return row["min_replicas"], reason

    fresh = make_forecasts(rates, spread=100)
    assert first(fresh, None)[0] == 17
    floor, reason = first(fresh, shares(1.0))
    assert (floor, reason.share_out, reason.tokens_out_per_s) == (11, pytest.approx(1 / 3), pytest.approx(110))
    floor, reason = first(fresh, shares(1.2))
    assert (floor, reason.peak_out, reason.tokens_out_per_s) == (14, 1.2, pytest.approx(132))
    old = make_forecasts(rates, spread=100, cutoff=now - timedelta(hours=12))
    floor, reason = first(old, shares(1.2, now - timedelta(hours=12)))
    assert (floor, reason.share_out, reason.peak_out) == (32, 1.0, 1.2)
    floor, reason = first(fresh, shares(1.0, now - STEP))
    assert (floor, reason.share_out) == (17, 1.0), "a share that speaks of other forecasts"


def test_a_floor_worked_by_hand(make_config, make_forecasts, now):
    """Two classes at quantile 0.95, a 9m30s lead, and every number of the reason.

    Window 08:50 covers the steps 08:50, 08:55 and 09:00 (its end plus the lead is 09:04:30). At 09:00 chat has
    10,000 and agent 5,000 tokens out per second in the median, each 450 more at the quantile: 15,900 / 1,950 =
    8.1538; 10 % more is 8.9692, whole 9, one warm 10.
    """
    config = make_config(
        classes={"agent": "main", "chat": "main"},
        capacity={"prefill_tokens_per_s": 48000, "decode_tokens_per_s": 2600, "target_utilization": 0.75},
        startup={"p90": "4m"},
        margin={"quantile": 0.95, "minimum": 0.1, "warm": 1},
        bounds={"min": 2, "max": 9},
    )
    forecasts = make_forecasts(
        {"agent": [4e3, 4e3, 5e3] + [1e3] * 12, "chat": [9e3, 9e3, 1e4] + [1e3] * 12}, spread=1e3
    )
    made = plan(config, now=now + timedelta(minutes=2), forecasts=forecasts, history=NO_HISTORY, published=None)
    first = made.floors.row(0, named=True)
    assert (first["pool"], first["window_start"], first["window_end"]) == ("main", now, now + STEP)
    assert (first["min_replicas"], first["rung"]) == (9, "fresh")
    assert first["required_replicas"] == pytest.approx(15_900 / 1_950)
    assert Reason.model_validate_json(first["reason"]).model_dump(mode="json") == {
        "binding": "tokens_out",
        "needed_by": "2026-11-30T09:00:00Z",
        "lead_s": 570.0,
        "quantile": 0.95,
        "tokens_in_per_s": 15_900.0,
        "tokens_out_per_s": 15_900.0,
        "median_tokens_per_s": 15_000.0,
        "demand_tokens_per_s": 15_900.0,
        "required_replicas": 8.1538,
        "buffers": [
            {"name": "minimum_margin", "value": 0.1, "replicas": 8.9692},
            {"name": "round_up", "value": 1.0, "replicas": 9.0},
            {"name": "warm", "value": 1.0, "replicas": 10.0},
        ],
        "adjustments": [{"rule": "max_replicas", "before": 10, "after": 9}],
        "classes": {
            "agent": _both(quantile=5450.0, median=5000.0),
            "chat": _both(quantile=10450.0, median=10000.0),
        },
        "share_in": 1.0,
        "share_out": 1.0,
        "peak_in": 1.0,
        "peak_out": 1.0,
        "clamped": "max_replicas",
        "shortfall_replicas": 1,
        # 9 replicas serve 17,550 tokens a second, all of the 15,900.
        "admission": {
            "agent": {"share": 1.0, "tokens_in_per_s": 5450.0, "tokens_out_per_s": 5450.0},
            "chat": {"share": 1.0, "tokens_in_per_s": 10450.0, "tokens_out_per_s": 10450.0},
        },
    }
    # From the fourth window on 2,900 / 1,950 = 1.49, 1.64, 2, and one warm.
    assert made.floors["min_replicas"].to_list() == [9, 9, 9] + [3] * 9


def test_the_frame_is_sorted_covers_the_horizon_and_has_the_schema(make_config, make_forecasts, now):
    config = make_config(
        classes={"a": "zeta", "b": "alpha"},
        pools={name: make_config().pools["main"].model_dump() for name in ("zeta", "alpha")},
    )
    forecasts = make_forecasts({"a": [10.0] * 14, "b": [30.0] * 14})
    floors = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
    assert dict(floors.schema) == dict(FLOORS)
    assert floors.select("pool", "window_start").rows() == [
        (pool, now + i * STEP) for pool in ("alpha", "zeta") for i in range(WINDOWS)
    ]
    assert floors["min_replicas"].to_list() == [3] * 12 + [1] * 12


def test_a_schedule_of_another_step_is_read_by_time(make_config, make_schedule, now):
    """Ten-minute windows from 08:45: the first covers the first window, and each of the next two more."""
    published = make_schedule([7, 9, 8], start=now - STEP, step=2 * STEP)
    config = make_config(fallback_replicas=1)
    made = plan(config, now=now, forecasts=empty(FORECASTS), history=NO_HISTORY, published=published)
    assert made.floors["min_replicas"].to_list() == [7, 9, 9, 8, 8] + [1] * 7


def test_a_schedule_off_the_grid_covers_every_window_it_overlaps(make_config, make_schedule, now):
    """Seven-minute windows from 08:45, 08:52 and 08:59 to 09:06."""
    published = make_schedule([7, 9, 8], start=now - STEP, step=timedelta(minutes=7))
    made = plan(
        make_config(fallback_replicas=1), now=now, forecasts=empty(FORECASTS), history=NO_HISTORY, published=published
    )
    assert made.floors["min_replicas"].to_list() == [9, 9, 8, 8] + [1] * 8


def test_windows_whose_lead_is_not_known_to_the_end_keep_what_was_published(
    make_config, make_forecasts, make_schedule, now
):
    """The forecast ends with the horizon, so the last two windows see less than their ten minutes of lead."""
    published = make_schedule([0] + [12] * 12, start=now - STEP)
    made = plan(
        make_config(), now=now, forecasts=make_forecasts({"chat": [50.0] * 12}), history=NO_HISTORY, published=published
    )
    assert made.floors["min_replicas"].to_list() == [5] * 10 + [12] * 2
    assert set(made.floors["rung"]) == {"fresh"}


def test_rungs_speak_of_the_windows_within_the_lead_time(make_config, make_forecasts, now):
    """The forecast ends after half an hour, ten minutes of lead from now are fresh."""
    made = plan(
        make_config(), now=now, forecasts=make_forecasts({"chat": [1.0] * 6}), history=NO_HISTORY, published=None
    )
    assert made.floors["rung"].to_list()[3:5] == ["fresh", "fallback_replicas"]
    assert made.rungs == {"main": "fresh"}


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
@given(case=waiting, leads=st.lists(st.integers(1, 25), min_size=2, max_size=2).map(sorted))
def test_a_longer_lead_never_lowers_a_floor(run, case, leads):
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


def _one(config, forecasts, now, published=None):
    """Floors by pool, and each first reason, which recomputes."""
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=published).floors
    reasons = {}
    for pool in config.pools:
        rows = made.filter(pool=pool)
        for text, floor in zip(rows["reason"], rows["min_replicas"], strict=True):
            assert recompute(Reason.model_validate_json(text), config.pools[pool].settings) == floor
        reasons[pool] = Reason.model_validate_json(rows["reason"][0])
    return {pool: made.filter(pool=pool)["min_replicas"].to_list() for pool in config.pools}, reasons


def test_a_pool_carries_its_share_of_a_region_that_may_be_lost(make_config, make_forecasts, now):
    """Own 50, half of the other's 80: 50 + 0.5 x 80 = 90, 9 replicas of 10. The other takes nothing over: 8. What the
    other does not know, this one does not either."""
    spec = make_config().pools["main"].model_dump()
    east = spec | {"region": "east", "margin": {"minimum": 0, "takes_over": {"west": 0.5}}}
    config = make_config(
        classes={"chat": "east", "code": "west"}, pools={"east": east, "west": spec | {"region": "west"}}
    )
    floors, reasons = _one(config, make_forecasts({"chat": [50.0] * 14, "code": [80.0] * 14}), now)
    assert floors == {"east": [9] * 12, "west": [8] * 12}
    assert reasons["east"].tokens_out_per_s == 90
    assert reasons["east"].takes_over["west"].model_dump() == {
        "share": 0.5,
        "tokens_in_per_s": 80,
        "tokens_out_per_s": 80,
    }
    floors, _ = _one(config, make_forecasts({"chat": [50.0] * 14}), now)
    assert floors["east"] == [100] * 12, "bounds.max, as fallback_replicas is not set"


def test_an_idle_pool_goes_to_zero_for_as_long_as_demand_stays_low_past_the_wake_up(make_config, make_forecasts, now):
    """In and out together under 10 tokens/s: 4 + 4 is, 6 + 6 is not. Step 9 brings 12. A window and its lead are three
    steps, the wake-up of 6 minutes two more: windows 5 to 9 see it coming. Those that need a replica by then, too."""
    zero = {"bounds": {"min": 0, "max": 10}, "scale_to_zero": {"wake_up": "6m", "below_tokens_per_s": 10}}
    config = make_config(**zero)
    floors, reasons = _one(config, make_forecasts({"chat": [4.0] * 9 + [6.0] + [4.0] * 4}), now)
    assert floors["main"] == [0] * 5 + [1] * 5 + [0] * 2
    assert [(one.name, one.value, one.replicas) for one in reasons["main"].buffers] == [("scale_to_zero", 10, 0)]
    floors, reasons = _one(config, make_forecasts({"chat": [0.0] * 3 + [6.0] + [0.0] * 10}), now)
    assert floors["main"] == [1] * 4 + [0] * 8
    floors, _ = _one(make_config(), make_forecasts({"chat": [0.0] * 14}), now)
    assert floors["main"] == [1] * 12, "without scale_to_zero one replica stays"


def test_a_prefill_and_a_decode_pool_go_to_zero_together(make_config, make_forecasts, now):
    """Tokens in are 40, under 50, throughout; tokens out are 200 until step 3, then none. A window and its lead are
    three steps; the prefill pool wakes up in one more, the decode pool in two more, which both wait for: windows 0 to 3
    hold replicas in both, those after none in either. A decode pool that is always on is judged by the prefill pool's
    threshold and wake-up."""
    base = make_config().pools["main"].model_dump() | {"bounds": {"min": 0, "max": 100}}
    low = {"below_tokens_per_s": 50}
    pools = {
        "p": base | {"role": "prefill", "scale_to_zero": low | {"wake_up": "5m"}},
        "d": base | {"role": "decode", "scale_to_zero": low | {"wake_up": "10m"}},
    }
    rates = {"tokens_in": [40.0] * 14, "tokens_out": [200.0] * 4 + [0.0] * 10}
    forecasts = pl.concat([make_forecasts({"chat": series}, metrics=(name,)) for name, series in rates.items()])

    def planned() -> dict[str, list[int]]:
        config = Config.model_validate({"horizon": "1h", "pools": pools, "classes": {"chat": {"pools": ["p", "d"]}}})
        return _one(config, forecasts, now)[0]

    assert planned() == {"p": [4] * 4 + [0] * 8, "d": [20] * 4 + [0] * 8}
    late = [0.0] * 9 + [200.0] + [0.0] * 4
    rates["tokens_out"] = late
    forecasts = pl.concat([make_forecasts({"chat": series}, metrics=(name,)) for name, series in rates.items()])
    assert planned() == {"p": [0] * 5 + [4] * 5 + [0] * 2, "d": [0] * 5 + [1] * 2 + [20] * 3 + [0] * 2}
    pools["d"] = base | {"role": "decode", "bounds": {"min": 1, "max": 100}}
    assert planned() == {"p": [0] * 6 + [4] * 4 + [0] * 2, "d": [1] * 7 + [20] * 3 + [1] * 2}


def test_what_is_not_known_never_scales_to_zero(make_config, make_forecasts, now):
    zero = {"bounds": {"min": 0, "max": 10}, "scale_to_zero": {"wake_up": "6m", "below_tokens_per_s": 10}}
    forecasts = make_forecasts({"chat": [0.0] * 6})
    floors, _ = _one(make_config(**zero, fallback_replicas=0), forecasts, now)
    assert floors["main"] == [0, 0] + [1] * 10


def test_floors_count_in_nodes(make_config, make_forecasts, make_schedule, now):
    """4 replicas a node: 50 tokens/s need 5, two nodes; of the 16 published before, a node goes in each window."""
    shape = {"multiple_of": 4, "step_down": 1, "every": "5m", "dwell": "0s"}
    config = make_config(shape=shape, bounds={"min": 4, "max": 40})
    published = make_schedule([16], start=now - STEP)
    floors, reasons = _one(config, make_forecasts({"chat": [50.0] * 14}), now, published)
    assert floors["main"] == [12] + [8] * 11
    assert [(move.rule, move.before, move.after) for move in reasons["main"].adjustments] == [
        ("multiple_of", 5, 8),
        ("step_down", 8, 12),
    ]


def test_a_floor_may_exceed_the_maximum_by_what_is_allowed(make_config, make_forecasts, now):
    """10 are needed: with 7 and 2 more allowed 9 are published and 1 is short; with 3 more all are."""
    forecasts = make_forecasts({"chat": [100.0] * 14})
    for exceed_by, floor, short in ((0, 7, 3), (2, 9, 1), (3, 10, 0)):
        floors, reasons = _one(make_config(bounds={"min": 1, "max": 7, "exceed_by": exceed_by}), forecasts, now)
        assert floors["main"] == [floor] * 12
        assert reasons["main"].shortfall_replicas == short


def test_a_published_floor_is_kept_where_the_forecast_fell_a_little(make_config, make_forecasts, make_schedule, now):
    """40 published; 5 % of it are 2: 38 leaves it, 37 does not."""
    shape = {"step_down": 100, "every": "5m", "dwell": "0s", "hysteresis": 0.05}
    published = make_schedule([40] * 13, start=now - STEP)
    forecasts = make_forecasts({"chat": [380.0] * 6 + [370.0] * 8})
    floors, reasons = _one(make_config(shape=shape), forecasts, now, published)
    assert floors["main"] == [40] * 6 + [37] * 6
    assert [(move.rule, move.before, move.after) for move in reasons["main"].adjustments] == [("hysteresis", 38, 40)]
