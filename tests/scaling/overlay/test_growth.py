"""How much load grows until a replica asked for now serves."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from floorcast.overlay import Lookahead
from scaling.overlay.growth import growth, loads_ahead

HOUR = 3600.0
DAY = 24


def oracle(load, position, *, ahead, look, step_s):
    """The same by a sort over a plain list of moments."""
    known = [value for value in load[: position // DAY * DAY] if not np.isnan(value)]
    offset = 0.1 * sum(known) / len(known)
    now = load[position - 1]
    moments = []
    for past in range(1, position - ahead - 1):
        before, later = load[past - 1], load[past + ahead : past + ahead + 2]
        if np.isnan([before, *later]).any():
            continue
        lag = position - past
        apart_s = min(lag % DAY, DAY - lag % DAY) * step_s
        weight = np.exp(-lag * step_s / look.fade.total_seconds())
        weight *= (
            np.exp(-0.5 * (apart_s / look.around.total_seconds()) ** 2)
            + 0.02
            + look.same_minute * np.exp(-0.5 * (apart_s / 240) ** 2)
        )
        weight *= np.exp(-0.5 * (np.log((before + offset) / (now + offset)) / look.near) ** 2) + 1e-6
        moments.append((np.log((max(later) + offset) / (before + offset)), weight))
    moments.sort()
    total, reached = sum(weight for _, weight in moments), 0.0
    for grown, weight in moments:
        reached += weight
        if reached >= look.quantile * total:
            return max((now + offset) * np.exp(grown) - offset, 0) / now
    raise AssertionError("no moment")


@pytest.mark.parametrize("quantile", [0.5, 0.95])
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_it_is_the_weighted_quantile_of_like_moments(quantile, ahead):
    rng = np.random.default_rng(3)
    load = 50 + 40 * np.sin(np.arange(20 * DAY) * 2 * np.pi / DAY) + rng.gamma(2, 4, 20 * DAY)
    load[rng.integers(len(load), size=30)] = np.nan
    look = Lookahead(quantile=quantile, near=0.5, around=timedelta(hours=2), same_minute=2)
    at = np.array([position for position in range(15 * DAY, 16 * DAY) if not np.isnan(load[position - 1])])
    found = growth(load, at=at, step_s=HOUR, ahead_s=ahead * HOUR, lookahead=look)
    expected = [oracle(load, position, ahead=ahead, look=look, step_s=HOUR) for position in at]
    # Growth is counted in bins of 0.5 %.
    np.testing.assert_allclose(found, expected, rtol=0.01)


def test_a_job_that_starts_by_the_clock_is_seen_before_it_starts():
    load = np.full(12 * DAY, 10.0)
    load[9::DAY] = 100.0
    look = Lookahead(quantile=0.9, around=timedelta(minutes=30))
    before = [10 * DAY + hour for hour in (6, 7, 8)]
    found = growth(load, at=before, step_s=HOUR, ahead_s=HOUR, lookahead=look)
    # An hour to start: at 7 the steps from 8 and 9 count, at 8 those from 9 and 10, at 6 those from 7 and 8.
    assert found[0] == pytest.approx(1, abs=0.02)
    assert found[1:] == pytest.approx([10, 10], rel=0.02)


def test_out_of_next_to_nothing_growth_is_a_sum():
    """Every other day is idle but for 50 at noon; a factor on the idle load would be without bound."""
    load = np.zeros(12 * DAY) + 0.001
    load[12::DAY] = 50.0
    common = {"at": [10 * DAY + 11], "step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead(quantile=0.9)}
    assert loads_ahead(load, **common, levels=(0.9,))[0] == pytest.approx(50, rel=0.05)
    # As a factor it is bounded, since it meets a rate measured later: a mean of 50 / 24 = 2.08, a tenth of that as the
    # offset, and half of it as the least live load: 50 / 0.104 = 480.
    assert growth(load, **common) == pytest.approx(480, rel=0.05)


def test_a_load_like_this_one_counts_more_than_the_time_of_day():
    """High load stays, low load goes up by half: what follows depends on where one is."""
    rng = np.random.default_rng(0)
    high = rng.random(400 * DAY) < 0.5
    load = np.where(high, 100.0, 10.0)
    load[1:] = np.where(high[:-1], 100.0, 15.0)
    for position, now, expected in ((380 * DAY, 100.0, 1.0), (380 * DAY, 15.0, None)):
        live = np.concatenate([[np.nan], load[:-1]])
        live[position] = now
        found = growth(
            load, at=[position], step_s=HOUR, ahead_s=0, lookahead=Lookahead(quantile=0.5, near=0.1), live=live
        )
        if expected is not None:
            assert found[0] == pytest.approx(expected, rel=0.02)
        else:
            assert found[0] > 5


def test_nothing_of_the_first_day_and_nothing_of_an_unknown_load_is_told():
    load = np.full(3 * DAY, 10.0)
    load[2 * DAY] = np.nan
    found = growth(load, at=[5, 2 * DAY + 1], step_s=HOUR, ahead_s=HOUR, lookahead=Lookahead())
    assert np.isnan(found).all()
    assert np.isnan(growth(np.zeros(3 * DAY), at=[2 * DAY], step_s=HOUR, ahead_s=HOUR, lookahead=Lookahead())).all()


def test_what_comes_later_changes_nothing():
    rng = np.random.default_rng(1)
    load = rng.gamma(3, 5, 10 * DAY)
    changed = load.copy()
    changed[8 * DAY :] = rng.gamma(30, 50, 2 * DAY)
    common = {"at": np.arange(2 * DAY, 8 * DAY + 1), "step_s": HOUR, "ahead_s": 2 * HOUR, "lookahead": Lookahead()}
    np.testing.assert_array_equal(growth(load, **common), growth(changed, **common))


def test_a_higher_quantile_asks_for_no_less():
    load = np.random.default_rng(2).gamma(3, 5, 60 * DAY)
    common = {"at": np.arange(50 * DAY, 59 * DAY), "step_s": HOUR, "ahead_s": HOUR}
    levels = [growth(load, **common, lookahead=Lookahead(quantile=level, near=0.5)) for level in (0.5, 0.8, 0.95)]
    assert np.isfinite(levels).all()
    assert (np.diff(levels, axis=0) >= 0).all()
