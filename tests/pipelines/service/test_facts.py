"""Tuned settings and the past, from what was published."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from floorcast.pool import Pool
from floorcast.tuning import TunedSettings
from pipelines.publishers.overlay_file import FILE, OverlayFacts, PastLoad, write_overlay_facts
from pipelines.service.facts import Expectations, FactsReader, expected_load, tuned
from scaling.overlay.settings import Settings, settings_of
from scaling.overlay.signals import Signals, snapshot
from scaling.overlay.state import State, begin

START = datetime(2026, 11, 20, tzinfo=UTC)
TUNED = TunedSettings(
    quantile=0.9,
    minimum_margin=0.2,
    target_utilization=0.6,
    policy="target_tracking",
    scale_in_window_s=300,
    lookahead_quantile=0.8,
)


def pool(**keys: object) -> Pool:
    return Pool.model_validate(
        {
            "gpu": {"type": "H100"},
            "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100},
            "startup": {"p90": "10m"},
            "bounds": {"min": 1, "max": 40},
            **keys,
        }
    )


def daily(days: int) -> PastLoad:
    """By 5-minute step 4 replicas, and 12 from 09:00 to 17:00 of each day."""
    hours = np.arange(days * 288) / 12 % 24
    load = np.where((hours >= 9) & (hours < 17), 12.0, 4.0)
    return PastLoad(start=START, step_s=300, load=tuple(load.tolist()))


def test_the_daily_rise_is_expected_before_it_comes() -> None:
    """At 08:52 of the eighth day load is 4 and will be 12 ten minutes later, as on all days. At 03:00 it stays."""
    past, one = daily(7), pool()
    load, seen = np.array(past.load, dtype=np.float64), np.array([4.0, 4.0])
    rise = expected_load(load, past, one, seen=seen, now=START + timedelta(days=7, hours=8, minutes=52))
    night = expected_load(load, past, one, seen=seen, now=START + timedelta(days=7, hours=3))
    assert (rise, night) == pytest.approx((12.0, 4.0), rel=0.02)


def test_the_mean_over_the_window_and_the_rate_just_now_count_alike() -> None:
    """At 03:00 nothing grows: what is expected is the mean of 4 and 8, whichever of the two is which."""
    past = daily(7)
    load, now = np.array(past.load, dtype=np.float64), START + timedelta(days=7, hours=3)
    for seen in ([4.0, 8.0], [8.0, 4.0]):
        assert expected_load(load, past, pool(), seen=np.array(seen), now=now) == pytest.approx(6.0, rel=0.02)


def test_without_a_live_rate_or_with_a_past_long_gone_nothing_is_expected() -> None:
    past = daily(7)
    load = np.array(past.load, dtype=np.float64)
    assert np.isnan(expected_load(load, past, pool(), seen=np.array([4.0, np.nan]), now=START + timedelta(days=7)))
    assert np.isnan(expected_load(load, past, pool(), seen=np.array([4.0, 4.0]), now=START + timedelta(days=15)))


MORNING = START + timedelta(days=7, hours=8, minutes=52)


def seen_by(pools: dict[str, Pool], **live: float) -> tuple[Signals, State, Settings, float]:
    return snapshot(len(pools), **live), begin(len(pools), 0.0), settings_of(list(pools.values())), 1.0


def test_only_pools_with_a_published_past_expect_anything() -> None:
    """400 tokens a second out are 4 replicas at full use."""
    pools = {"code": pool(), "chat": pool()}
    expectations = Expectations()
    expectations.use(pools, OverlayFacts(as_of=START, past={"chat": daily(7)}))
    found = expectations.read(*seen_by(pools, tokens_in_per_s=0, tokens_out_per_s=400), MORNING)
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(12, rel=0.02)


def test_a_rate_that_is_stale_expects_nothing() -> None:
    pools = {"chat": pool()}
    expectations = Expectations()
    expectations.use(pools, OverlayFacts(as_of=START, past={"chat": daily(7)}))
    stale = seen_by(pools, tokens_in_per_s=0, tokens_out_per_s=400, age_s=3_600)
    assert np.isnan(expectations.read(*stale, MORNING)).all()


def test_more_pools_than_time_take_turns_and_keep_what_they_expect_over_publications() -> None:
    """Each look takes more than a tick has time for. The first two ticks see to one pool each; a publication between
    them changes neither. What is older than five minutes counts no more."""
    pools = {"code": pool(), "chat": pool()}
    facts = OverlayFacts(as_of=START, past={"chat": daily(7), "code": daily(7)})
    clock = itertools.count(step=10)
    expectations = Expectations(monotonic=lambda: float(next(clock)))
    seen = seen_by(pools, tokens_in_per_s=0, tokens_out_per_s=400)
    expectations.use(pools, facts)
    first = expectations.read(*seen, MORNING)
    expectations.use(pools, facts)
    second = expectations.read(*seen, MORNING + timedelta(seconds=15))
    assert (np.isfinite(first).sum(), np.isfinite(second).sum()) == (1, 2)
    later = expectations.read(*seen, MORNING + timedelta(minutes=5, seconds=10))
    assert np.isfinite(later).sum() == 2
    assert np.isfinite(expectations.read(*seen, MORNING + timedelta(hours=1))).sum() == 1


def test_tuned_settings_count_where_the_pool_applies_them() -> None:
    pools = {"chat": pool(tune={"apply": True}), "code": pool()}
    facts = OverlayFacts(as_of=START, tuned={"chat": TUNED, "code": TUNED})
    found = tuned(pools, facts)
    assert (found["chat"].overlay.policy, found["chat"].capacity.target_utilization) == ("target_tracking", 0.6)
    assert found["code"] == pools["code"]
    assert tuned(pools, None) == pools


def test_a_damaged_file_leaves_the_last_in_force(tmp_path: Path) -> None:
    reader = FactsReader(tmp_path)
    assert not reader.changed()
    write_overlay_facts(OverlayFacts(as_of=START, tuned={"chat": TUNED}), tmp_path)
    assert reader.changed()
    assert not reader.changed()
    (tmp_path / FILE).write_text('{"as_of": ')
    assert not reader.changed()
    assert reader.fault is not None
    assert reader.facts is not None
    assert reader.facts.tuned == {"chat": TUNED}
