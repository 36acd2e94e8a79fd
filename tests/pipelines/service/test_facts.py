"""Tuned settings and the past, from what was published."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from floorcast.pool import Pool
from floorcast.tuning import TunedSettings
from pipelines.publishers.overlay_file import FILE, OverlayFacts, PastLoad, write_overlay_facts
from pipelines.service.facts import FactsReader, Growths, growth_now, tuned
from scaling.overlay.settings import settings_of
from scaling.overlay.signals import snapshot
from scaling.overlay.smoothing import observe
from scaling.overlay.state import begin

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


def test_the_growth_of_a_moment_before_the_daily_rise_is_seen() -> None:
    """At 08:52 of the eighth day load is 4 and will be 12 ten minutes later, as on all days. At 03:00 it stays."""
    past, one = daily(7), pool()
    load = np.array(past.load, dtype=np.float64)
    rise = growth_now(load, past, one, seen=np.array([4.0, 4.0]), now=START + timedelta(days=7, hours=8, minutes=52))
    night = growth_now(load, past, one, seen=np.array([4.0, 4.0]), now=START + timedelta(days=7, hours=3))
    # A tenth of the mean of 6.67 is added: from 4.67 to 12.67 is a factor of 2.71, at night of 1.
    assert rise == pytest.approx((2.71, 0.667), rel=0.02)
    assert night == pytest.approx((1.0, 0.667), rel=0.02)


def test_without_a_live_rate_or_with_a_past_long_gone_no_growth_is_known() -> None:
    past = daily(7)
    load = np.array(past.load, dtype=np.float64)
    assert np.isnan(growth_now(load, past, pool(), seen=np.array([4.0, np.nan]), now=START + timedelta(days=7))).all()
    assert np.isnan(growth_now(load, past, pool(), seen=np.array([4.0, 4.0]), now=START + timedelta(days=15))).all()


def test_only_pools_with_a_published_past_grow() -> None:
    """400 tokens a second out are 4 replicas at full use."""
    facts = OverlayFacts(as_of=START, past={"chat": daily(7)})
    growths = Growths({"code": pool(), "chat": pool()}, facts)
    live = snapshot(2, tokens_in_per_s=0, tokens_out_per_s=400)
    settings = settings_of([pool(), pool()])
    observed, _ = observe(live, begin(2, 0.0), settings, 1.0)
    found = growths.read(live, observed, START + timedelta(days=7, hours=8, minutes=52))
    assert np.isnan(found.factor[0])
    assert found.factor[1] > 2.5


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
