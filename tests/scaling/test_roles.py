"""Prefill and decode pools: each planned on its own metric, together for one lead window and one rung."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND, FORECASTS, empty
from floorcast.config import Config
from floorcast.types import FloorWindow, Reason
from scaling.explain import explain
from scaling.fleet_admission import fleet_admission
from scaling.floors import plan
from scaling.recompute import recompute

STEP = timedelta(minutes=5)
NO_HISTORY = empty(DEMAND)


def _pool(role: str, p90: str, quantile: float = 0.95) -> dict[str, object]:
    """Of 10-tokens replicas without margins; publication 5m and no apply delay on top of `p90`."""
    return {
        "role": role,
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 10, "decode_tokens_per_s": 10, "target_utilization": 1},
        "startup": {"p90": p90, "apply_delay": "0s"},
        "bounds": {"min": 1, "max": 100},
        "margin": {"quantile": quantile, "minimum": 0},
        "shape": {"step_down": 100, "every": "5m", "dwell": "0s", "hysteresis": 0},
        "fallback_replicas": 40,
    }


@pytest.fixture(scope="session")
def config() -> Config:
    """chat and docs share the prefill pool and decode on their own; code is apart from them."""
    pools = {
        "prefill": _pool("prefill", "1m"),
        "decode-chat": _pool("decode", "5m", quantile=0.75),
        "decode-docs": _pool("decode", "19m"),
        "code": _pool("unified", "1m"),
    }
    classes = {
        "chat": {"pools": ["prefill", "decode-chat"]},
        "docs": {"pools": ["decode-docs", "prefill"]},
        "code": {"pools": ["code"]},
    }
    return Config.model_validate({"horizon": "1h", "pools": pools, "classes": classes})


def _of(made, pool):
    rows = made.floors.filter(pool=pool)
    return rows["min_replicas"].to_list(), [Reason.model_validate_json(reason) for reason in rows["reason"]]


def test_each_metric_of_a_class_is_planned_on_the_pool_that_does_its_work(config):
    assert {pool: config.classes_of(pool) for pool in config.pools} == {
        "prefill": ("chat", "docs"),
        "decode-chat": ("chat",),
        "decode-docs": ("docs",),
        "code": ("code",),
    }
    assert [config.pool_of("docs", metric) for metric in ("tokens_in", "tokens_out")] == ["prefill", "decode-docs"]
    assert [config.pool_of("code", metric) for metric in ("tokens_in", "tokens_out")] == ["code", "code"]


def test_all_that_share_classes_have_the_longest_lead(config):
    """19m + 5m of publication, of decode-docs; the unified pool keeps its 6m."""
    leads = {pool: config.lead(pool) for pool in config.pools}
    assert leads == {pool: timedelta(minutes=6 if pool == "code" else 24) for pool in config.pools}
    group = ("decode-chat", "decode-docs", "prefill")
    assert config.together == dict.fromkeys(group, group)


def test_floors_worked_by_hand(config, make_forecasts, now):
    """Rates in and out of chat are 20 and 60, of docs 50 and 10, and the spread between levels 0 and 1 is 100.

    Prefill at 0.95: (20 + 45) + (50 + 45) = 160, 16 replicas. Chat's decode at 0.75: 60 + 25 = 85, 9 replicas; docs'
    at 0.95: 10 + 45 = 55, 6 replicas.
    """
    frames = [
        make_forecasts({"chat": [20.0] * 20, "docs": [50.0] * 20}, spread=100, metrics=("tokens_in",)),
        make_forecasts({"chat": [60.0] * 20, "docs": [10.0] * 20}, spread=100, metrics=("tokens_out",)),
        make_forecasts({"code": [1.0] * 20}),
    ]
    made = plan(config, now=now, forecasts=pl.concat(frames), history=NO_HISTORY, published=None)
    for pool, floor in (("prefill", 16), ("decode-chat", 9), ("decode-docs", 6), ("code", 1)):
        floors, reasons = _of(made, pool)
        assert floors == [floor] * 12, pool
        assert [recompute(reason, config.pools[pool]) for reason in reasons] == floors


def test_both_rise_for_the_same_step_a_lead_of_the_slower_ahead(config, make_forecasts, now):
    """From step 8 on chat needs 8 of each. 24 minutes are 5 steps: the windows from 3 on cover step 8."""
    rates = {"chat": [20.0] * 8 + [80.0] * 12, "docs": [0.0] * 20, "code": [1.0] * 20}
    made = plan(config, now=now, forecasts=make_forecasts(rates), history=NO_HISTORY, published=None)
    for pool in ("prefill", "decode-chat"):
        floors, reasons = _of(made, pool)
        assert floors == [2] * 3 + [8] * 9, pool
        assert reasons[3].needed_by == now + 8 * STEP


def test_the_reason_names_the_partners_and_whose_lead_it_is(config, make_forecasts, now):
    rates = {"chat": [20.0] * 20, "docs": [30.0] * 20, "code": [1.0] * 20}
    made = plan(config, now=now, forecasts=make_forecasts(rates), history=NO_HISTORY, published=None)
    reason = _of(made, "prefill")[1][0]
    assert (reason.partners, reason.lead_of, reason.lead_s) == (("decode-chat", "decode-docs"), "decode-docs", 24 * 60)
    assert _of(made, "decode-docs")[1][0].lead_of is None
    assert _of(made, "code")[1][0].partners == ()
    window = FloorWindow(start=now, end=now + STEP, min_replicas=5, reason=reason)
    said = explain(window, pool_name="prefill", pool=config.pools["prefill"])
    assert "partners    decode-chat, decode-docs: planned together" in said
    assert "lead        24m, that of decode-docs, which starts slower; here startup p90 1m" in said


def test_a_forecast_lost_for_one_keeps_both_at_what_was_published(config, make_forecasts, make_schedule, now):
    """Tokens in of chat are not known: the prefill pool gets its fallback, and chat's decode pool, which needs 2, stays
    at the 7 published. The decode pool of docs shares the prefill pool's group, but no class without a figure."""
    frames = [
        make_forecasts({"docs": [20.0] * 20, "code": [1.0] * 20}),
        make_forecasts({"chat": [20.0] * 20}, metrics=("tokens_out",)),
    ]
    for pool, floor, rung in (
        ("prefill", 40, "fallback_replicas"),
        ("decode-chat", 7, "fallback_replicas"),
        ("decode-docs", 2, "fresh"),
    ):
        published = make_schedule([7] * 13, start=now - STEP, pool=pool)
        made = plan(config, now=now, forecasts=pl.concat(frames), history=NO_HISTORY, published=published)
        assert (_of(made, pool)[0][6], made.rungs[pool]) == (floor, rung), pool


def test_an_older_forecast_of_one_metric_is_the_rung_of_both(config, make_forecasts, now):
    frames = [
        make_forecasts({"chat": [20.0] * 20}, metrics=("tokens_in",), cutoff=now - timedelta(hours=2)),
        make_forecasts({"chat": [20.0] * 20}, metrics=("tokens_out",)),
        make_forecasts({"docs": [20.0] * 20, "code": [1.0] * 20}),
    ]
    made = plan(config, now=now, forecasts=pl.concat(frames), history=NO_HISTORY, published=None)
    old, fresh = "last_forecast", "fresh"
    assert made.rungs == {"prefill": old, "decode-chat": old, "decode-docs": fresh, "code": fresh}


def test_nothing_known_at_all_is_the_fallback_of_each(config, now):
    made = plan(config, now=now, forecasts=empty(FORECASTS), history=NO_HISTORY, published=None)
    assert set(made.floors["min_replicas"]) == {40}


def test_what_a_partner_cannot_serve_takes_no_gpus_from_others(make_forecasts, now):
    """200 tokens/s each way need 20 replicas to prefill and 20 to decode, of which 10 may be there: half is served. Of
    35 GPUs the 10 that decode, 10 of those that prefill and all 10 of code, whose priority is lower, come first; the 5
    that are left prefill. Both pools admit the half that the lesser serves."""
    config = Config.model_validate(
        {
            "horizon": "1h",
            "pools": {
                "prefill": _pool("prefill", "1m"),
                "decode": _pool("decode", "1m") | {"bounds": {"min": 1, "max": 10}, "fallback_replicas": 10},
                "code": _pool("unified", "1m"),
            },
            "classes": {"chat": {"pools": ["prefill", "decode"], "priority": 200}, "code": {"pools": ["code"]}},
            "quotas": [{"gpu": "H100", "gpus": 35}],
        }
    )
    forecasts = make_forecasts({"chat": [200.0] * 14, "code": [100.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=NO_HISTORY, published=None)
    assert {pool: _of(made, pool)[0][0] for pool in config.pools} == {"prefill": 15, "decode": 10, "code": 10}
    admission = fleet_admission(config, made.floors)
    assert {name: [one.share for one in windows] for name, windows in admission.items()} == {"chat": [0.5]}
