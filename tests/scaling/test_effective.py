"""Prompt tokens in the prefix cache: which share is planned without, and that the floor says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import CACHED_TOKENS, DEMAND, conform, empty
from floorcast.config import Config
from floorcast.errors import FloorcastError
from floorcast.types import FloorWindow, Reason
from scaling.effective import cached_shares, effective
from scaling.explain import explain
from scaling.floors import plan
from scaling.ladder import Figures
from scaling.recompute import recompute

STEP = timedelta(minutes=5)
DAY = 288


@pytest.fixture
def observed(make_history, now):
    """`observed(shares, tokens)`: cached tokens and demand of chat, a step each up to now; no row where it is None."""

    def make(shares, tokens=None):
        steps = [now - (len(shares) - place) * STEP for place in range(len(shares))]
        rates = dict(zip(steps, tokens or [100.0] * len(shares), strict=True))
        rows = [
            {"workload_class": "chat", "step_start": at, "cached_tokens_in": rates[at] * 300 * share}
            for at, share in zip(steps, shares, strict=True)
            if share is not None
        ]
        return conform(pl.DataFrame(rows, schema=dict(CACHED_TOKENS)), CACHED_TOKENS), make_history({"chat": rates})

    return make


def test_the_tenth_percentile_by_tokens_is_planned_without(make_config, observed, now):
    # 300 steps: 20 at a share of 0.2 with 300 tokens/s, 280 at 0.6 with 100. Of 34,000 the low ones are 6,000, over a
    # tenth, although they are only 7 % of the steps: 0.2. With 100 tokens/s they are 2,000 of 30,000: 0.6.
    shares = [0.2] * 20 + [0.6] * 280
    busy = observed(shares, [300.0] * 20 + [100.0] * 280)
    assert cached_shares(make_config(), *busy, now=now) == {"chat": 0.2}
    assert cached_shares(make_config(), *observed(shares), now=now) == {"chat": 0.6}


def test_a_day_of_steps_is_needed(make_config, observed, now):
    assert cached_shares(make_config(), *observed([0.5] * (DAY - 1)), now=now) == {}
    assert cached_shares(make_config(), *observed([0.5] * DAY), now=now) == {"chat": 0.5}


def test_a_counter_that_has_ended_says_nothing_of_today(make_config, observed, now):
    half, fewer = DAY // 2, DAY // 2 - 1
    assert cached_shares(make_config(), *observed([0.5] * DAY + [0.5] * half + [None] * half), now=now) == {"chat": 0.5}
    assert cached_shares(make_config(), *observed([0.5] * DAY + [0.5] * fewer + [None] * (half + 1)), now=now) == {}


def test_what_is_older_than_a_week_does_not_count(make_config, observed, now):
    assert cached_shares(make_config(), *observed([0.0] * DAY + [0.7] * 7 * DAY), now=now) == {"chat": 0.7}


def test_the_configured_share_stands_whatever_is_observed(make_config, observed, now):
    config, found = make_config(), observed([0.5] * DAY)
    for share in (0.0, 0.3):
        spec = config.classes["chat"]
        given = spec.model_copy(update={"prefix_cache": spec.prefix_cache.model_copy(update={"share": share})})
        changed = config.model_copy(update={"classes": {"chat": given}})
        assert cached_shares(changed, *found, now=now) == ({"chat": 0.3} if share else {})


def test_a_cache_that_holds_everything_does_not_plan_for_nothing(make_config, observed, now):
    assert cached_shares(make_config(), *observed([1.0] * DAY), now=now) == {"chat": 0.999}


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1, 1e6)), min_size=24, max_size=30))
def test_at_least_nine_tenths_of_the_tokens_came_in_steps_with_that_share(steps):
    """The oracle sorts and counts by hand what the product finds by array."""
    now = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
    times = [now - (place + 1) * timedelta(hours=1) for place in range(len(steps))]
    demand = pl.DataFrame(
        [
            {"workload_class": "chat", "step_start": at, "tokens_in": tokens, "tokens_out": 1.0}
            | {"requests": 1.0, "peak_tokens_in_per_s": 1.0, "peak_tokens_out_per_s": 1.0}
            | {"observed_fraction": 1.0, "source": "test"}
            for at, (_, tokens) in zip(times, steps, strict=True)
        ]
    )
    cached = pl.DataFrame(
        [
            {"workload_class": "chat", "step_start": at, "cached_tokens_in": share * tokens}
            for at, (share, tokens) in zip(times, steps, strict=True)
        ]
    )
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 1, "decode_tokens_per_s": 1},
        "startup": {"p90": "4m"},
        "bounds": {"min": 1, "max": 2},
    }
    config = Config.model_validate({"step": "1h", "pools": {"main": pool}, "classes": {"chat": {"pools": ["main"]}}})
    share = cached_shares(config, conform(cached, CACHED_TOKENS), conform(demand, DEMAND), now=now).get("chat", 0.0)
    total = sum(tokens for _, tokens in steps)
    with_it = sum(tokens for one, tokens in steps if one >= share - 1e-9)
    assert with_it >= 0.9 * total * (1 - 1e-9)
    more = sum(tokens for one, tokens in steps if one > share + 0.001)
    assert share >= 0.999 or more <= 0.9 * total * (1 + 1e-9)


def windows_of(config, forecasts, now, cached):
    made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=None, cached=cached)
    return [
        FloorWindow(
            start=row["window_start"],
            end=row["window_end"],
            min_replicas=row["min_replicas"],
            reason=Reason.model_validate_json(row["reason"]),
        )
        for row in made.floors.iter_rows(named=True)
    ]


@pytest.fixture
def planned(make_config, make_forecasts, now):
    """1,000 prompt tokens/s of chat and 100 of agent on replicas of 100 in, 1,000 out."""
    config = make_config(
        classes={"agent": "main", "chat": "main"},
        capacity={"prefill_tokens_per_s": 100, "decode_tokens_per_s": 1000, "target_utilization": 1},
    )
    forecasts = make_forecasts({"agent": [100.0] * 15, "chat": [1000.0] * 15})
    return config.pools["main"], lambda cached: windows_of(config, forecasts, now, cached)


def test_a_floor_is_planned_without_the_cached_tokens(planned):
    # (1,000 x 0.7 + 100) / 100 = 8; without a cache 11. Tokens out, 1,100 / 1,000 = 1.1, never bind.
    _, windows = planned
    assert windows({})[0].min_replicas == 11
    assert windows({"chat": 0.3})[0].min_replicas == 8
    demand = windows({"chat": 0.3})[0].reason.classes
    assert (demand["chat"].tokens_in_per_s, demand["chat"].prompt_in_per_s) == (700, 1000)
    assert (demand["chat"].median_in_per_s, demand["chat"].tokens_out_per_s) == (700, 1000)
    assert demand["chat"].cached_share == 0.3
    assert "cached_share" not in demand["agent"].model_dump()


def test_the_explanation_shows_and_recomputes_it(planned):
    pool, windows = planned
    window = windows({"chat": 0.3})[0]
    assert recompute(window.reason, pool) == 8
    text = explain(window, pool_name="main", pool=pool)
    assert "  cached      chat 1,000 prompt tokens/s x (1 - 0.3) = 700/s, the rest is in the prefix cache" in text
    assert "cached" not in explain(windows({})[0], pool_name="main", pool=pool)


def test_a_share_that_does_not_lead_to_the_tokens_is_refused(planned):
    pool, windows = planned
    reason = windows({"chat": 0.3})[0].reason
    chat = reason.classes["chat"].model_copy(update={"cached_share": 0.4})
    with pytest.raises(FloorcastError, match=r"of chat, without cached ones: the reason says 700, recomputed 600"):
        recompute(reason.model_copy(update={"classes": reason.classes | {"chat": chat}}), pool)


@given(st.floats(0, 0.999), st.floats(0, 1))
def test_a_larger_share_never_raises_tokens_in_and_touches_nothing_else(share, smaller):
    figures = Figures(
        classes=("a", "b"),
        quantile=np.array([[[100.0, 5.0], [3.0, 4.0]], [[7.0, np.nan], [1.0, 1.0]]]),
        median=np.full((2, 2, 2), 1.0),
        rung=np.zeros((2, 2, 2), dtype=np.int8),
        label=np.zeros((2, 2, 2), dtype=np.int32),
        labels=("x",),
    )
    more, less = effective(figures, {"a": share}), effective(figures, {"a": share * smaller})
    assert (more.quantile[0, 0] <= less.quantile[0, 0] + 1e-12).all()
    assert (more.median[0, 0] <= less.median[0, 0] + 1e-12).all()
    np.testing.assert_array_equal(more.quantile[:, 1], figures.quantile[:, 1])
    np.testing.assert_array_equal(more.quantile[1], figures.quantile[1])
