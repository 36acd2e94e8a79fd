"""What a class can be served by all its pools together, each case worked by hand from the reasons of its pools."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from floorcast.columns import FLOORS, conform
from floorcast.config import Config
from floorcast.types import Admission, ClassDemand, Reason
from scaling.fleet_admission import fleet_admission

T0 = datetime(2026, 11, 30, 8, tzinfo=UTC)
STEP = timedelta(minutes=5)


def config_of(roles, classes):
    pool = {
        "gpu": {"type": "H100", "usd_per_gpu_hour": 4},
        "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100},
        "startup": {"p90": "4m"},
        "bounds": {"min": 1, "max": 9},
    }
    pools = {name: pool | {"role": role} for name, role in roles.items()}
    return Config.model_validate({"pools": pools, "classes": {name: {"pools": own} for name, own in classes.items()}})


PAIR = config_of({"fill": "prefill", "write": "decode"}, {"chat": ["fill", "write"]})
UNIFIED = dict.fromkeys(("a", "b"), "unified")
SEVERAL = config_of(UNIFIED, {"chat": ["a", "b"], "docs": ["b"]})


def floor(pool, step, replicas, *, short=0, admits=None, placed=None, binding="tokens_in"):
    """A row of FLOORS. `placed` is share, tokens in and out of each class, `admits` the same of what it is served."""
    reason = Reason(
        binding=binding,
        needed_by=T0,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=0,
        tokens_out_per_s=0,
        median_tokens_per_s=0,
        demand_tokens_per_s=0,
        required_replicas=0,
        shortfall_replicas=short,
        classes={
            name: ClassDemand(share=share, tokens_in_per_s=rate_in, tokens_out_per_s=out, model_in="m", model_out="m")
            for name, (share, rate_in, out) in (placed or {"chat": (1, 0, 0)}).items()
        },
        admission={
            name: Admission(share=share, tokens_in_per_s=rate_in, tokens_out_per_s=out)
            for name, (share, rate_in, out) in (admits or {}).items()
        },
    )
    start = T0 + step * STEP
    return (pool, start, start + STEP, replicas, 0.0, "fresh", reason.model_dump_json())


def admission_of(config, *rows):
    found = fleet_admission(config, conform(pl.DataFrame(rows, schema=list(FLOORS), orient="row"), FLOORS))
    return {
        name: [
            ((one.start - T0) // STEP, (one.end - T0) // STEP, one.share, one.tokens_in_per_s, one.tokens_out_per_s)
            for one in windows
        ]
        for name, windows in found.items()
    }


def test_of_a_prefill_and_a_decode_pool_the_lesser_decides():
    # Prefill serves 80 %, 800 in and 80 out; decode 50 %, 500 in and 50 out: a request needs both.
    rows = [
        floor("fill", 0, 4, short=1, admits={"chat": (0.8, 800, 80)}),
        floor("write", 0, 5, short=3, admits={"chat": (0.5, 500, 50)}),
    ]
    assert admission_of(PAIR, *rows) == {"chat": [(0, 1, 0.5, 500, 50)]}


def test_a_partner_that_is_not_short_limits_nothing():
    rows = [floor("fill", 0, 4), floor("write", 0, 5, short=3, admits={"chat": (0.5, 500, 50)})]
    assert admission_of(PAIR, *rows) == {"chat": [(0, 1, 0.5, 500, 50)]}


def test_several_unified_pools_add_up():
    # 60 % of chat, 600 in and 60 out, is on a and served whole; of the other 40 %, 400 and 40, b serves half. In all it
    # is 0.6 + 0.4 / 2 = 80 %, 600 + 200 in and 60 + 20 out.
    rows = [
        floor("a", 0, 4, placed={"chat": (0.6, 600, 60)}),
        floor(
            "b",
            0,
            2,
            short=2,
            placed={"chat": (0.4, 400, 40), "docs": (1, 100, 10)},
            admits={"chat": (0.5, 200, 20), "docs": (0.2, 20, 2)},
        ),
    ]
    assert admission_of(SEVERAL, *rows) == {"chat": [(0, 1, 0.8, 800, 80)], "docs": [(0, 1, 0.2, 20, 2)]}


def test_what_is_served_whole_has_no_limit():
    rows = [
        floor("a", 0, 4, placed={"chat": (1, 600, 60)}),
        floor("b", 0, 2, short=2, placed={"chat": (0, 0, 0), "docs": (1, 100, 10)}, admits={"docs": (1, 150, 15)}),
    ]
    assert admission_of(SEVERAL, *rows) == {}


def test_steps_with_the_same_floors_are_one_window_that_has_the_least():
    shares = [(0, 5, 0.5), (1, 5, 0.4), (2, 6, 0.6), (4, 6, 0.7)]
    rows = [floor("fill", step, 9) for step in range(5)]
    rows += [
        floor("write", step, floors, short=1, admits={"chat": (share, 1000 * share, 100 * share)})
        for step, floors, share in shares
    ]
    rows.append(floor("write", 3, 6))
    assert admission_of(PAIR, *rows) == {"chat": [(0, 2, 0.4, 400, 40), (2, 3, 0.6, 600, 60), (4, 5, 0.7, 700, 70)]}


def test_demand_that_is_not_known_has_no_budget():
    rows = [
        floor("fill", 0, 9, short=1, binding="fallback_replicas"),
        floor("write", 0, 5, short=3, admits={"chat": (0.5, 500, 50)}),
    ]
    assert admission_of(PAIR, *rows) == {}


def test_nothing_short_is_nothing_said():
    assert admission_of(PAIR, floor("fill", 0, 4), floor("write", 0, 5)) == {}


def test_prompts_that_a_cache_holds_count_where_they_arrive():
    # Of a pool that is not short: 600 in to compute, with 25 % in the cache, are 800 as a gateway sees them.
    cached = floor("a", 0, 4, placed={"chat": (0.6, 600, 60)})
    reason = Reason.model_validate_json(cached[-1])
    chat = reason.classes["chat"].model_copy(update={"cached_share": 0.25, "prompt_in_per_s": 800.0})
    cached = (*cached[:-1], reason.model_copy(update={"classes": {"chat": chat}}).model_dump_json())
    other = floor(
        "b",
        0,
        2,
        short=2,
        placed={"chat": (0.4, 400, 40), "docs": (1, 0, 0)},
        admits={"chat": (0.5, 266.7, 20)},
    )
    assert admission_of(SEVERAL, cached, other) == {"chat": [(0, 1, 0.8, 1066.7, 80)]}
