"""What changed between two publications: by hand, and the effects always add up to the change."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, POOL_SHARES, empty
from floorcast.types import Deadline, FloorSchedule, FloorWindow, PoolSchedule, Reason
from scaling.diff import attribute, diff
from scaling.floors import plan

STEP = timedelta(minutes=5)
CLASSES = {"agent": "main", "chat": "main"}
NO_HISTORY = empty(DEMAND)


def _schedule(floors: pl.DataFrame, now, *, rungs: dict[str, str] | None = None) -> FloorSchedule:
    """Every step its own window."""
    pools = {}
    for (pool,), rows in floors.partition_by("pool", as_dict=True).items():
        windows = tuple(
            FloorWindow(
                start=row["window_start"],
                end=row["window_end"],
                min_replicas=row["min_replicas"],
                reason=Reason.model_validate_json(row["reason"]),
            )
            for row in rows.iter_rows(named=True)
        )
        pools[str(pool)] = PoolSchedule(gate="untested", rung=(rungs or {}).get(str(pool), "fresh"), windows=windows)
    return FloorSchedule(
        version=1,
        mode="advisory",
        issued_at=now,
        valid_until=now + timedelta(hours=2),
        content_hash="sha256:" + "0" * 64,
        pools=pools,
    )


@pytest.fixture(scope="session")
def made(make_config, make_forecasts, now):
    """`made({"chat": rate, ...}, **pool)`: the configuration and the first window's reason and floor."""

    def one(rates, *, share=1.0, spread=0.0, **pool):
        config = make_config(classes=dict.fromkeys(rates, "main"), **pool)
        rows = [
            {"pool": "main", "metric": metric, "cutoff": now, "share": share, "peak": 1.0}
            for metric in ("tokens_in", "tokens_out")
        ]
        floors = plan(
            config,
            now=now,
            forecasts=make_forecasts({name: [rate] * 30 for name, rate in rates.items()}, spread=spread),
            history=NO_HISTORY,
            published=None,
            shares=pl.DataFrame(rows, schema=dict(POOL_SHARES)),
        ).floors
        return config.pools["main"], Reason.model_validate_json(floors["reason"][0]), floors["min_replicas"][0]

    return one


def test_causes_are_put_in_one_after_another(made):
    """Replicas of 10 tokens/s. 50 and 30 need 8; chat at 90 makes 12 (+4), agent at 10 makes 10 (-2, counted first);
    replicas of 8 tokens/s 12.5, whole 13 (+3); 20 % more 15, whole 15 (+2); at most 14 (-1)."""
    half = {"prefill_tokens_per_s": 8, "decode_tokens_per_s": 8, "target_utilization": 1}
    old, before, first = made({"chat": 50.0, "agent": 30.0})
    new, after, second = made(
        {"chat": 90.0, "agent": 10.0}, capacity=half, margin={"minimum": 0.2}, bounds={"min": 1, "max": 14}
    )
    assert (first, second) == (8, 14)
    expected = {"demand agent": -2, "demand chat": 4, "capacity": 3, "margins": 2, "bounds": -1}
    assert dict(attribute(before, after, settings=(old, new))) == expected
    assert dict(attribute(before, after)) == expected, "without the settings, from the reasons alone"


def test_a_share_and_a_class_that_is_new(made):
    """Medians 50 and 30, 45 more each at the quantile: 170. With half the spread 125, so 13 in place of 17."""
    pool, before, _ = made({"chat": 50.0, "agent": 30.0}, spread=100)
    _, after, _ = made({"chat": 50.0, "agent": 30.0}, spread=100, share=0.5)
    assert dict(attribute(before, after, settings=(pool, pool))) == {"share and peak": -4}
    _, alone, _ = made({"chat": 50.0}, spread=100)
    assert dict(attribute(alone, before, settings=(pool, pool))) == {"demand agent": 7}, "from 95, 10 replicas, to 17"


def test_what_is_taken_over_from_another_pool_is_a_cause_of_its_own(make_config, make_forecasts, now):
    """chat at 50 needs 5; half of the 60 of the other pool's region makes 80, and 8."""
    spec = make_config().pools["main"].model_dump()
    reasons = []
    for takes_over in ({}, {"other": 0.5}):
        pools = {"main": spec | {"margin": spec["margin"] | {"takes_over": takes_over}}, "other": spec}
        config = make_config(classes={"chat": "main", "far": "other"}, pools=pools)
        forecasts = make_forecasts({"chat": [50.0] * 14, "far": [60.0] * 14})
        floors = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
        reasons.append(Reason.model_validate_json(floors.filter(pool="main")["reason"][0]))
    assert dict(attribute(*reasons)) == {"taken over": 3}


@pytest.fixture
def changed(make_config, make_forecasts, now):
    """`changed(old, new)`: the effects of the first window; each is rates of chat, then keys of the pool."""

    def compare(old, new, **both):
        schedules = []
        for rates, pool in (old, new):
            config = make_config(**both, **pool)
            forecasts = make_forecasts({"chat": rates}, spread=100)
            floors = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None).floors
            schedules.append(_schedule(floors, now))
        first = diff(*schedules)[0].changes[0]
        assert first.start == now
        assert sum(number for _, number in first.effects) == first.after - first.before
        return dict(first.effects)

    return compare


def test_a_lead_is_a_cause_beside_demand(changed):
    """10 tokens/s a replica, 45 above the median, which rises by 10 a step. A lead of 9m30s sees 2 steps on: 50 + 20 +
    45 is 11.5, and 12; one of 15m sees 3, and 13. With 30 more, 3 more."""
    rising, higher = ([base + 10.0 * i for i in range(20)] for base in (50, 80))
    short, long = {"startup": {"p90": "4m"}}, {"startup": {"p90": "9m30s"}}
    assert changed((rising, short), (rising, long)) == {"lead": 1}
    assert changed((rising, long), (rising, short)) == {"lead": -1}
    assert changed((rising, short), (higher, long)) == {"lead": 1, "demand chat": 3}
    assert changed((higher, long), (rising, short)) == {"demand chat": -3, "lead": -1}


def test_a_quantile_is_a_cause_beside_demand(changed):
    """A median of 100 and 45 above it at 0.95, 49 at 0.99: 14.5 and 14.9, so 15 both; at 0.5 none, 10. Twice the median
    with the spread in proportion is 290, 29 replicas; at 0.5 it is 200, and 20."""
    one, two = [100.0] * 20, [200.0] * 20
    usual, middle = ({"margin": {"quantile": level, "minimum": 0}} for level in (0.95, 0.5))
    assert changed((one, usual), (one, middle)) == {"quantile 0.95 -> 0.5": -5}
    assert changed((one, usual), (two, middle)) == {"demand chat": 14, "quantile 0.95 -> 0.5": -9}


def test_placement_cached_share_and_deadline_are_causes_of_their_own(made):
    """80 tokens/s need 8. A class of which half is placed here in place of all: 4. Three quarters of the prompts cached
    in place of none, where only tokens in count (out needs 1): 2. Both with half as much again: 15, 40 then 10."""
    pool, before, _ = made({"chat": 80.0})
    before = before.model_copy(update={"tokens_out_per_s": 1.0})

    def of(reason, **figures):
        one = reason.classes["chat"].model_copy(update={"tokens_out_per_s": 1.0, "median_out_per_s": 1.0, **figures})
        found = reason.model_copy(update={"classes": {"chat": one}})
        rate = one.tokens_in_per_s
        needed = {"tokens_in_per_s": rate, "required_replicas": rate / 10, "demand_tokens_per_s": rate}
        buffers = tuple(buffer.model_copy(update={"replicas": rate / 10}) for buffer in reason.buffers)
        return found.model_copy(update={**needed, "binding": "tokens_in", "buffers": buffers})

    def effects(**figures):
        return dict(attribute(of(before), of(before, **figures), settings=(pool, pool)))

    halved = {"share": 0.5, "tokens_in_per_s": 40.0, "median_in_per_s": 40.0}
    assert effects(**halved) == {"placement chat": -4}
    cached = {"cached_share": 0.75, "prompt_in_per_s": 80.0}
    assert effects(tokens_in_per_s=20.0, median_in_per_s=20.0, **cached) == {"cached share chat": -6}
    both = {"share": 0.5, "tokens_in_per_s": 20.0, "median_in_per_s": 20.0} | cached
    assert effects(**both) == {"placement chat": -4, "cached share chat": -3, "demand chat": 1}
    deadline = Deadline(wait_s=900, arriving_in_per_s=80, arriving_out_per_s=1, done_by=before.needed_by)
    assert effects(tokens_in_per_s=50.0, median_in_per_s=50.0, deadline=deadline) == {"deadline chat": -3}
    assert dict(attribute(of(before, **halved), of(before), settings=(pool, pool))) == {"placement chat": 4}
    gone = {"share": 0.0, "tokens_in_per_s": 0.0, "median_in_per_s": 0.0}
    assert dict(attribute(of(before, **gone), of(before), settings=(pool, pool))) == {"placement chat": 8}


def test_pools_are_compared_where_both_cover_and_neighbours_that_say_the_same_are_one_span(
    make_config, make_forecasts, now
):
    """Published at 08:50 and 08:55, the second with chat at 60 where 40 was: from 08:55 on 4 become 6 over eleven
    steps, 2 x 55 minutes. The pool `other` is gone."""
    config = make_config()
    first = plan(config, now=now, forecasts=make_forecasts({"chat": [40.0] * 30}), history=NO_HISTORY, published=None)
    later = now + STEP
    again = plan(config, now=later, forecasts=make_forecasts({"chat": [60.0] * 30}), history=NO_HISTORY, published=None)
    before = _schedule(pl.concat([first.floors, first.floors.with_columns(pool=pl.lit("other"))]), now)
    main, other = diff(before, _schedule(again.floors, later))
    assert (other.pool, other.status, other.changes) == ("other", "removed", ())
    (change,) = main.changes
    assert (change.start, change.end, change.before, change.after) == (later, now + timedelta(hours=1), 4, 6)
    assert change.effects == (("demand chat", 2),)
    assert main.replica_hours == pytest.approx(2 * 55 / 60)
    assert main.causes == {"demand chat": pytest.approx(2 * 55 / 60)}
    (fallen,) = diff(before, _schedule(again.floors, later, rungs={"main": "past_weeks"}))[0].changes
    assert fallen.effects == (("rung past_weeks", 2),)


def test_windows_of_different_lengths_are_compared_where_they_overlap(make_schedule, now):
    """Steps of 5 minutes as 1, 2, 3, 4 against steps of 10 minutes as 1, 3."""
    (pool,) = diff(make_schedule([1, 2, 3, 4], start=now), make_schedule([1, 3], start=now, step=2 * STEP))
    assert [(one.start, one.before, one.after) for one in pool.changes] == [
        (now + STEP, 2, 1),
        (now + 3 * STEP, 4, 3),
    ]


rates = st.lists(st.integers(0, 400).map(float) | st.none(), min_size=20, max_size=20)
plans = st.fixed_dictionaries(
    {
        "chat": rates,
        "agent": st.lists(st.integers(0, 400).map(float), min_size=20, max_size=20),
        "published": st.none() | st.lists(st.integers(0, 50), min_size=13, max_size=13),
        "pool": st.fixed_dictionaries(
            {
                "bounds": st.sampled_from([{"min": 1, "max": 100}, {"min": 3, "max": 30}]),
                "startup": st.sampled_from([{"p90": "4m30s"}, {"p90": "12m"}]),
                "margin": st.fixed_dictionaries(
                    {"minimum": st.sampled_from([0, 0.1]), "warm": st.integers(0, 2), "quantile": st.just(0.95)}
                ),
                "shape": st.fixed_dictionaries(
                    {"step_down": st.integers(1, 9), "dwell": st.sampled_from(["0s", "15m"])}
                ),
                "capacity": st.fixed_dictionaries(
                    {
                        "prefill_tokens_per_s": st.sampled_from([10, 33.3]),
                        "decode_tokens_per_s": st.just(20),
                        "combine": st.sampled_from(["max", "sum"]),
                    }
                ),
                "fallback_replicas": st.integers(3, 30),
            }
        ),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans, plans)
def test_effects_add_up_to_the_change(make_config, make_forecasts, make_schedule, now, old, new):
    found = []
    for case in (old, new):
        config = make_config(classes=CLASSES, **case["pool"])
        floors = plan(
            config,
            now=now,
            forecasts=make_forecasts({name: case[name] for name in CLASSES}),
            history=NO_HISTORY,
            published=case["published"] and make_schedule(case["published"], start=now - STEP),
        ).floors
        found.append((config.pools["main"], floors["min_replicas"].to_list(), floors["reason"].to_list()))
    (old_pool, before, reasons), (pool, after, others) = found
    for first, second, old_reason, new_reason in zip(before, after, reasons, others, strict=True):
        pair = Reason.model_validate_json(old_reason), Reason.model_validate_json(new_reason)
        for known in ((old_pool, pool), (None, pool), (None, None)):
            assert sum(number for _, number in attribute(*pair, settings=known)) == second - first
        assert attribute(pair[0], pair[0], settings=(old_pool, old_pool)) == ()
