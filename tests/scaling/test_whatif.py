"""Plans side by side."""

from __future__ import annotations

from datetime import timedelta

import pytest

from floorcast.columns import DEMAND, empty
from scaling.floors import plan
from scaling.whatif import hours_apart, remarks, together, totals

STEP = timedelta(minutes=5)


@pytest.fixture
def floors(make_config, make_forecasts, now):
    """Floors of `chat` at these rates, one a step, with a configuration."""

    def made(config, rates):
        forecasts = make_forecasts({"chat": rates})
        return plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=None).floors

    return made


def test_totals_by_hand(make_config, floors):
    """An hour in steps of 5 minutes, 10 tokens/s a replica, a lead window of three steps: 80 in the first step needs 8,
    where 5 are allowed, then 20 in each 2. 5 + 11 x 2 = 27 in twelfths of an hour, 3 of them short. Two GPUs of 4 USD
    a replica."""
    gpu = {"type": "H100", "per_replica": 2, "usd_per_gpu_hour": 4}
    config = make_config(bounds={"min": 1, "max": 5}, gpu=gpu)
    one = totals(config, floors(config, [80.0] + [20.0] * 13))["main"]
    assert (one.most, one.mean) == (5, pytest.approx(27 / 12))
    assert (one.replica_hours, one.short_replica_hours) == (pytest.approx(27 / 12), pytest.approx(3 / 12))
    assert one.usd == pytest.approx(2 * 4 * 27 / 12)


def test_no_price_is_no_cost_not_zero(make_config, floors):
    config = make_config()
    unpriced = totals(config, floors(config, [20.0] * 14))["main"]
    priced_config = make_config(gpu={"type": "H100", "usd_per_gpu_hour": 4})
    priced = totals(priced_config, floors(priced_config, [20.0] * 14))["main"]
    assert unpriced.usd is None
    assert together({"a": priced, "b": unpriced}).usd is None
    assert together({"a": priced, "b": priced}).usd == pytest.approx(2 * priced.usd)
    assert together({"a": priced, "b": unpriced}).replica_hours == pytest.approx(4)


def test_the_hours_that_differ_most_come_in_order_of_time(make_config, floors, now):
    """08:50 to 09:50: two steps in the hour of 08:00, ten in that of 09:00. The floor of 08:50 covers 09:00 too."""
    config = make_config(startup={"p90": "0s", "apply_delay": "0s"})
    before, after = floors(config, [20.0] * 13), floors(config, [20.0] * 7 + [90.0] + [20.0] * 6)
    (hour,) = hours_apart(before, after, count=5)
    assert (hour.pool, hour.start, hour.before) == ("main", now.replace(minute=0) + timedelta(hours=1), 2)
    # The step of 09:25, and that before it, whose lead reaches it.
    assert hour.after == pytest.approx((8 * 2 + 2 * 9) / 10)
    assert hours_apart(before, before, count=5) == []
    # From 08:55 on: a floor of 9 in all of the second hour, in half of what there is of the first.
    both = hours_apart(before, floors(config, [20.0] * 2 + [90.0] * 12), count=1)
    assert [one.start for one in both] == [now.replace(minute=0) + timedelta(hours=1)]


def test_remarks_say_what_the_forecasts_were_not_made_for(make_config, now):
    """Twelve windows of three steps reach to 10:00, of five to 10:10."""
    given = make_config()
    tried = make_config(startup={"p90": "14m"}, margin={"quantile": 0.9, "minimum": 0})
    until = now + 14 * STEP
    notes = remarks(given, tried, start=now, covered_until=until)
    assert "main: the stored forecasts are fitted for a lead window of 3 steps, not of 5" in notes[0]
    assert "look ahead to 2026-11-30T10:10:00Z, the forecasts to 2026-11-30T10:00:00Z" in notes[1]
    assert "quantile 0.95, not at 0.9" in notes[2]
    assert remarks(given, given, start=now, covered_until=until) == []
    assert "nothing is forecast" in remarks(given, given, start=now, covered_until=None)[0]


def test_work_that_may_wait_is_looked_for_by_its_wait_past_the_last_lead_window(make_config, now):
    """20 minutes of wait are four steps less the one it comes in: windows of three steps reach to 10:00, and the plan
    to 10:15."""
    config = make_config(slo={"max_wait": "20m"})
    assert config.longest_wait_steps == 3
    (note,) = remarks(config, config, start=now, covered_until=now + 14 * STEP)
    assert "look ahead to 2026-11-30T10:15:00Z, the forecasts to 2026-11-30T10:00:00Z" in note
    assert remarks(config, config, start=now, covered_until=now + 17 * STEP) == []


def test_a_spot_pool_costs_the_spot_price(make_config, floors):
    """2 replicas for an hour at 1 USD, whatever it would be on demand."""
    spot = {"type": "H100", "spot": True, "spot_usd_per_gpu_hour": 1}
    for gpu in (spot, spot | {"usd_per_gpu_hour": 4}):
        config = make_config(gpu=gpu)
        assert totals(config, floors(config, [20.0] * 14))["main"].usd == pytest.approx(2)


def test_horizons_of_different_length_are_remarked_on(make_config, now):
    given = make_config()
    tried = given.model_copy(update={"horizon": timedelta(hours=2)})
    notes = remarks(given, tried, start=now, covered_until=now + timedelta(hours=3))
    assert notes == ["the horizons differ, 1h and 2h: replica-hours and USD are of spans of different length"]
