"""Classes that several pools can serve, placed at least cost: against every whole number of replicas that there is."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import linprog

from floorcast.columns import DEMAND, empty
from floorcast.config import Config
from floorcast.types import FloorSchedule, Reason
from pipelines.publishers.schedule import build_schedule
from scaling.floors import Plan, plan
from scaling.placement.programme import Blocks, Group, cost, replicas_of, solve
from scaling.recompute import recompute

NO_HISTORY = empty(DEMAND)


def group(rng: np.random.Generator, **changes: Any) -> Group:
    """Three pools and two classes: cheap and small, dear and large for long context, and spot."""
    sustained = np.array([[12.0, 6.0], [50.0, 26.0], [15.0, 7.0]]) * rng.uniform(0.8, 1.2, (3, 1))
    made = {
        "pools": ("base", "long", "spot"),
        "classes": ("chat", "docs"),
        "usd": np.array([1.0, 4.0, 0.6]) * rng.uniform(0.8, 1.2, 3),
        "gpus": np.ones(3),
        "warm": np.zeros(3),
        "per_token": tuple(np.diag(1 / one) for one in sustained),
        "place": np.array([[0, 1, 2], [1, 0, -1]]),
        "spot": {0: (np.array([False, False, True]), 0.3)},
        "long": {1: (np.array([False, True, False]), 0.4)},
        "quotas": np.zeros((0, 3)),
    }
    return Group(**(made | changes))


LEAST = np.array([0.0, 1.0, 0.0])


def blocks_of(demand: np.ndarray, most: np.ndarray, least: np.ndarray = LEAST) -> Blocks:
    """Without quotas."""
    return Blocks(demand, np.tile(least, (len(demand), 1)), most, np.zeros((len(demand), 0)))


def brute_force(group: Group, demand: np.ndarray, most: np.ndarray) -> float:
    """The least cost over all whole replicas up to `most`, each tried for shares that fit into it."""
    classes, pools = group.pairs
    best = np.inf
    for counts in product(*(range(int(low), int(high) + 1) for low, high in zip(LEAST, most, strict=True))):
        usd = float(np.array(counts) @ group.usd)
        if usd >= best:
            continue
        upper, limits = [], []
        for pool, uses in enumerate(group.per_token):
            for use in uses:
                upper.append(np.where(pools == pool, demand[classes] @ use, 0))
                limits.append(counts[pool])
        for one, (those, share) in group.spot.items():
            upper.append(((classes == one) & those[pools]).astype(float))
            limits.append(share)
        for one, (those, share) in group.long.items():
            upper.append(-((classes == one) & those[pools]).astype(float))
            limits.append(-share)
        whole = np.array([(classes == one).astype(float) for one in range(len(group.classes))])
        found = linprog(
            np.zeros(len(classes)),
            A_ub=np.array(upper),
            b_ub=limits,
            A_eq=whole,
            b_eq=np.ones(len(whole)),
            bounds=(0, 1),
        )
        best = usd if found.success else best
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_placement_costs_what_the_best_of_all_costs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made, most = group(rng), np.array([[6.0, 4.0, 6.0]])
    demand = rng.uniform(2, 30, (1, 2, 2)) * [1, 0.4]
    shares = solve(made, blocks_of(demand, most), exact=True)
    assert shares.sum(axis=2) == pytest.approx(1)
    assert shares[0, 0, 2] <= 0.3 + 1e-6, "spot"
    assert shares[0, 1, 1] >= 0.4 - 1e-6, "long context"
    assert shares[0, 1, 2] == 0, "a pool that does not serve the class"
    assert cost(made, shares, blocks_of(demand, most))[0] == pytest.approx(brute_force(made, demand[0], most[0]))


def test_the_relaxation_rounded_up_stays_near_the_exact_placement_of_large_pools() -> None:
    """Tens of replicas: rounding up three pools costs a few percent at most, and nothing is below the exact cost."""
    rng = np.random.default_rng(3)
    made, most = group(rng), np.full((20, 3), 1000.0)
    demand = rng.uniform(200, 2000, (20, 2, 2)) * [1, 0.4]
    exact, relaxed = (
        cost(made, solve(made, blocks_of(demand, most), exact=kind), blocks_of(demand, most)) for kind in (True, False)
    )
    assert (relaxed >= exact * (1 - 1e-4)).all()
    assert (relaxed / exact).mean() < 1.04


def test_among_equals_the_first_named_is_chosen() -> None:
    rng = np.random.default_rng(0)
    same = tuple(np.diag([0.1, 0.1]) for _ in range(3))
    made = group(rng, usd=np.ones(3), per_token=same, spot={}, long={})
    shares = solve(made, blocks_of(np.full((1, 2, 2), 39.0), np.full((1, 3), 100.0), np.zeros(3)), exact=True)
    assert shares[0].tolist() == [[1, 0, 0], [0, 1, 0]]


def test_what_cannot_be_had_is_lacked_where_it_costs_least() -> None:
    """Demand for more than all pools may have is placed all the same, and shows as replicas above what can be there."""
    made, most = group(np.random.default_rng(1)), np.array([[2.0, 1.0, 2.0]])
    demand = np.array([[[300.0, 90.0], [100.0, 40.0]]])
    shares = solve(made, blocks_of(demand, most), exact=True)
    assert shares.sum(axis=2) == pytest.approx(1)
    assert (replicas_of(made, shares, blocks_of(demand, most))[0] > most[0]).any()


POOL = {
    "capacity": {"prefill_tokens_per_s": 10, "decode_tokens_per_s": 10, "target_utilization": 1},
    "startup": {"p90": "4m30s", "apply_delay": "30s"},
    "bounds": {"min": 0, "max": 100},
    "scale_to_zero": {"wake_up": "1m", "below_tokens_per_s": 0.1},
    "margin": {"minimum": 0},
    "shape": {"step_down": 100, "every": "5m", "dwell": "0s"},
}


def fleet(
    base: dict[str, Any] | None = None, long: dict[str, Any] | None = None, quotas: Any = (), **chat: Any
) -> Config:
    """A10G at 1 $ for 10 tokens/s, H100 at 5 $ for 40 (1.25 $ for 10): the first is cheaper where it is filled."""
    pools = {
        "base": POOL | {"gpu": {"type": "A10G", "usd_per_gpu_hour": 1}, "max_context_tokens": 8192} | (base or {}),
        "long": POOL
        | {"gpu": {"type": "H100", "usd_per_gpu_hour": 5}}
        | {"capacity": {"prefill_tokens_per_s": 40, "decode_tokens_per_s": 40, "target_utilization": 1}}
        | (long or {}),
    }
    classes = {"chat": {"pools": ["base", "long"], **chat}}
    return Config.model_validate({"horizon": "1h", "pools": pools, "classes": classes, "quotas": list(quotas)})


def planned(config: Config, forecasts: pl.DataFrame, now: Any, **known: Any) -> dict[str, list[int]]:
    """Floors by pool; every reason recomputes."""
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, **({"published": None} | known))
    for row in made.floors.iter_rows(named=True):
        reason = Reason.model_validate_json(row["reason"])
        assert recompute(reason, config.pools[row["pool"]]) == row["min_replicas"]
    return {pool: made.floors.filter(pool=pool)["min_replicas"].to_list() for pool in sorted(config.pools)}


def test_long_context_goes_where_it_fits_and_the_rest_where_it_is_cheap(make_forecasts: Any, now: Any) -> None:
    """Of 99 tokens/s 30 % need a long pool: one H100 for 5 $, which has room for 40, and 6 A10G for the other 59."""
    config = fleet(long_context={"tokens": 32768, "share": 0.3})
    forecasts = make_forecasts({"chat": [99.0] * 14})
    assert planned(config, forecasts, now) == {"base": [6] * 12, "long": [1] * 12}
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    reasons = [Reason.model_validate_json(made.floors.filter(pool=pool)["reason"][0]) for pool in ("base", "long")]
    base, long = (reason.classes["chat"].share for reason in reasons)
    assert base + long == pytest.approx(1)
    assert 0.3 <= long <= 40 / 99
    assert sum(reason.tokens_in_per_s for reason in reasons) == pytest.approx(99)


def test_a_quota_moves_the_class_to_the_other_gpu(make_forecasts: Any, now: Any) -> None:
    """99 tokens/s are cheapest on 10 A10G. With four of them, 59 are left for the H100s, of which two do."""
    forecasts = make_forecasts({"chat": [99.0] * 14})
    assert planned(fleet(), forecasts, now) == {"base": [10] * 12, "long": [0] * 12}
    limited = fleet(quotas=[{"gpu": "A10G", "gpus": 4}])
    floors = planned(limited, forecasts, now)
    assert floors["long"] == [2] * 12
    assert max(floors["base"]) <= 4


def test_what_does_not_fit_is_said_with_the_limit_that_would_have_to_give(make_forecasts: Any, now: Any) -> None:
    """Both pools together hold 4 x 10 + 1 x 40 of 99 tokens/s: 19 more take two A10G or one H100."""
    config = fleet(base={"bounds": {"min": 0, "max": 4}}, long={"bounds": {"min": 0, "max": 1}})
    made = plan(config, now=now, forecasts=make_forecasts({"chat": [99.0] * 14}), history=NO_HISTORY, published=None)
    assert {one.limit for one in made.relax} <= {"bounds.max of base", "bounds.max of long"}
    assert made.relax[0].by in (1, 2)
    assert (made.relax[0].start, made.relax[-1].end) == (now, now + 14 * config.step)
    short = [Reason.model_validate_json(reason).shortfall_replicas for reason in made.floors["reason"]]
    assert sum(short) > 0


def test_the_share_of_spot_or_long_context_that_stands_in_the_way_is_said(make_forecasts: Any, now: Any) -> None:
    """Of 99 tokens/s four A10G hold 40: 59, 59.6 % of them, are left for spot. Half of 99 is 49.5, of which one H100
    holds 40: 40.4 %. Where no pool has room, no share helps."""
    few, one = {"bounds": {"min": 0, "max": 4}}, {"bounds": {"min": 0, "max": 1}}
    cheap = {"gpu": {"type": "L4", "spot": True, "spot_usd_per_gpu_hour": 0.4}}
    own = POOL["capacity"]

    def told(config: Config) -> set[str]:
        forecasts = make_forecasts({"chat": [99.0] * 14})
        return {
            one.text for one in plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).relax
        }

    spot = fleet(base=few, long=cheap | {"capacity": own}, max_spot_share=0.2)
    assert "max_spot_share of chat would help at 60%" in told(spot)
    long = told(fleet(long=one, long_context={"tokens": 32768, "share": 0.5}))
    assert "long_context.share of chat would help at 40%" in long
    assert "bounds.max of long lacks 1" in long
    full = told(fleet(base=few, long=cheap | one | {"capacity": own}, max_spot_share=0.2))
    assert not [text for text in full if "max_spot_share" in text]


def test_a_limit_that_gives_way_gives_no_more_than_helps() -> None:
    """Spot would be cheaper for all of chat, and 30 % stays the limit while nothing is lacked."""
    made = group(np.random.default_rng(3))
    demand = np.array([[[300.0, 90.0], [100.0, 40.0]]])
    shares = solve(made, blocks_of(demand, np.full((1, 3), 100.0)), exact=False, soft=True)
    assert shares[0, 0, 2] <= 0.3 + 1e-6
    assert shares[0, 1, 1] >= 0.4 - 1e-6


def test_a_pool_that_starts_slowly_takes_on_nothing_before_it_can(
    make_forecasts: Any, make_schedule: Any, now: Any
) -> None:
    """Traffic trebles at once. The A10G are cheaper but take 20 minutes to start and have 4 published: until they can
    have started the H100s, which take 5, carry the rest."""
    config = fleet(base={"startup": {"p90": "19m30s", "apply_delay": "30s"}})
    published = make_schedule([4] * 12, start=now - config.step, pool="base")
    floors = planned(config, make_forecasts({"chat": [119.0] * 18}), now, published=published)
    assert floors["long"][0] == 2
    assert floors["base"][-1] == 12
    assert floors["long"][-1] == 0


def test_traffic_stays_where_it_is_while_nothing_is_gained(make_forecasts: Any, now: Any) -> None:
    """Two pools of one price and size: whatever the rates do, the class stays on one of them."""
    twin = {"gpu": {"type": "A10G", "usd_per_gpu_hour": 1}, "capacity": POOL["capacity"]}
    rates = [99.0 + 30 * (step % 3) for step in range(14)]
    floors = planned(fleet(long=twin), make_forecasts({"chat": rates}), now)
    assert floors["long"] == [0] * 12
    assert min(floors["base"]) == 16


def published_of(made: Plan, config: Config, at: datetime) -> FloorSchedule:
    """What readers, and the plan after it, get of a plan."""
    return build_schedule(
        mode="advisory",
        version=1,
        issued_at=at,
        valid_until=at + timedelta(hours=2),
        floors=made.floors,
        rungs=made.rungs,
        settings={name: pool.settings for name, pool in config.pools.items()},
    )


def test_traffic_stays_where_it_was_published_to_be(make_forecasts: Any, now: Any) -> None:
    """12 replicas of one kind and 30 of the other are there anyway, so nothing is gained by moving. Of 150 tokens/s the
    12 hold 80 %, of 190 half an hour later 63 %. Published as the one window that the equal floors would make, the two
    pools would speak of different times; and a list that prefers the other pool would move all of it there."""
    twin = {
        "gpu": {"type": "A10G", "usd_per_gpu_hour": 1},
        "capacity": POOL["capacity"],
        "bounds": {"min": 30, "max": 99},
    }
    config = fleet(base={"bounds": {"min": 12, "max": 12}, "scale_to_zero": None}, long=twin | {"scale_to_zero": None})
    forecasts = make_forecasts({"chat": [150.0] * 6 + [190.0] * 8})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    schedule = published_of(made, config, now)
    turned = Config.model_validate(
        config.model_dump(exclude_unset=True) | {"classes": {"chat": {"pools": ["long", "base"]}}}
    )

    def on_base(published: FloorSchedule | None) -> list[float]:
        later = plan(turned, now=now, forecasts=forecasts, history=NO_HISTORY, published=published)
        return [Reason.model_validate_json(text).placed["chat"] for text in later.floors.filter(pool="base")["reason"]]

    assert set(on_base(None)) == {0.0}
    assert on_base(schedule)[0] == pytest.approx(0.8, abs=1e-3)
    for pool in schedule.pools.values():
        assert len(pool.windows) > 1
    for window in schedule.pools["base"].windows:
        other = next(one for one in schedule.pools["long"].windows if one.start <= window.start < one.end)
        assert window.reason.placed["chat"] + other.reason.placed["chat"] == pytest.approx(1)


def test_a_pool_published_at_zero_has_no_replicas_before_it_can_start(
    make_forecasts: Any, make_schedule: Any, now: Any
) -> None:
    """99 tokens/s on 10 A10G would cost 10 $, on the three H100s that run 15 $. The A10G were published at 0 and take
    20 minutes: until then the H100s stay. Of a pool not published at all nothing is known, and it may have them."""
    config = fleet(base={"startup": {"p90": "19m30s", "apply_delay": "30s"}})
    published = make_schedule([3] * 12, start=now - config.step, pool="long")
    forecasts = make_forecasts({"chat": [99.0] * 18})
    assert planned(config, forecasts, now, published=published)["long"][0] == 0
    zero = make_schedule([0] * 12, start=now - config.step, pool="base").pools
    floors = planned(config, forecasts, now, published=published.model_copy(update={"pools": published.pools | zero}))
    assert floors["long"][:5] == [3] * 5
    assert (floors["base"][-1], floors["long"][-1]) == (10, 0)


def calendar(**entry: Any) -> dict[str, Any]:
    return {
        "calendar": [{"name": "works", "kind": "maintenance", "start": "00:00", "end": "24:00", "ceiling": 0} | entry]
    }


def test_nothing_is_placed_where_the_calendar_leaves_no_room(make_forecasts: Any, now: Any) -> None:
    """The A10G are down from 09:10 to 09:20, and can be there again a lead of 10 minutes later: from 09:10 to 09:30 the
    H100s carry all, from 10 minutes before on as they are asked for; the first wakes up a minute earlier."""
    config = fleet(base=calendar(start="09:10", end="09:20"))
    floors = planned(config, make_forecasts({"chat": [99.0] * 14}), now)
    assert floors == {"base": [10] * 4 + [0] * 2 + [10] * 6, "long": [0, 1] + [3] * 6 + [0] * 4}


def test_a_ceiling_that_lacks_replicas_is_named(make_forecasts: Any, now: Any) -> None:
    """Two A10G and one H100 hold 60 of 99 tokens/s."""
    config = fleet(base=calendar(ceiling=2), long={"bounds": {"min": 0, "max": 1}})
    made = plan(config, now=now, forecasts=make_forecasts({"chat": [99.0] * 14}), history=NO_HISTORY, published=None)
    assert {one.text for one in made.relax} <= {"ceiling works of base lacks 4", "bounds.max of long lacks 1"}
    assert made.relax


def test_replicas_that_the_calendar_keeps_are_there_anyway(make_forecasts: Any, now: Any) -> None:
    """Ten A10G would be cheaper than three H100s, but five of these run all day."""
    kept = {"calendar": [{"name": "day", "start": "00:00", "end": "24:00", "minimum": 5}]}
    floors = planned(fleet(long=kept), make_forecasts({"chat": [99.0] * 14}), now)
    assert floors == {"base": [0] * 12, "long": [5] * 12}


def test_a_quota_has_room_for_what_a_prefill_pool_leaves(make_forecasts: Any, now: Any) -> None:
    """Of 9 A10G the prefill pool takes 3 for 30 tokens/s. The 6 that are left hold 60 of the 99 of chat, one H100 the
    other 39: all is served."""
    whole = fleet(quotas=[{"gpu": "A10G", "gpus": 9}]).model_dump(exclude_unset=True)
    fill = whole["pools"]["base"] | {"role": "prefill", "bounds": {"min": 1, "max": 9}, "scale_to_zero": None}
    write = fill | {"role": "decode", "gpu": whole["pools"]["long"]["gpu"]}
    whole["pools"] |= {"fill": fill, "write": write}
    whole["classes"] |= {"docs": {"pools": ["fill", "write"]}}
    config = Config.model_validate(whole)
    forecasts = make_forecasts({"chat": [99.0] * 14, "docs": [30.0] * 14})
    floors = planned(config, forecasts, now)
    assert floors == {"base": [6] * 12, "long": [1] * 12, "fill": [3] * 12, "write": [3] * 12}
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert not made.relax
