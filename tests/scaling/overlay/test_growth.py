"""How much load grows until a replica asked for now serves."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from floorcast.overlay import Lookahead
from scaling.overlay.growth import loads_ahead

HOUR = 3600.0
DAY = 24


def expected(load, position, **given):
    """The mean of three looks, each by a sort over a plain list of moments: the growth of `oracle` on the load now."""
    look, now = given["look"], load[position - 1]
    wide = look.model_copy(update={"same_minute": 7 * look.same_minute, "around": 2.5 * look.around})
    offset = 0.1 * np.nanmean(load[: position // DAY * DAY])
    grown = [
        oracle(load, position, offset=offset, **given),
        oracle(load, position, offset=offset, **given | {"look": wide}),
        oracle(load, position, offset=offset, alike=True, **given),
    ]
    return np.mean([max((now + offset) * factor - offset, 0) for factor in grown])


def oracle(load, position, *, ahead, look, step_s, offset, alike=False):
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
        if alike:
            weight *= likeness(load, position, (lag + DAY // 2) // DAY, offset)
        moments.append((np.log((max(later) + offset) / (before + offset)), weight))
    moments.sort()
    total, reached = sum(weight for _, weight in moments), 0.0
    for grown, weight in moments:
        reached += weight
        if reached >= look.quantile * total:
            return np.exp(grown)
    raise AssertionError("no moment")


def likeness(load, position, days, offset):
    """Of the three hours that ended now and those so many days ago, by their mean distance on a log scale."""
    if not days:
        return 1.05
    apart = []
    for hour in range(position - 3, position):
        now, then = load[hour], load[hour - days * DAY] if hour >= days * DAY else np.nan
        apart.append(abs(np.log((now + offset) / (then + offset))))
    if np.isnan(apart).all():
        return 0.05
    return np.exp(-0.5 * (np.nanmean(apart) / 0.3) ** 2) + 0.05


@pytest.mark.parametrize("quantile", [0.5, 0.95])
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_it_is_the_mean_of_weighted_quantiles_of_like_moments(quantile, ahead):
    rng = np.random.default_rng(3)
    load = 50 + 40 * np.sin(np.arange(20 * DAY) * 2 * np.pi / DAY) + rng.gamma(2, 4, 20 * DAY)
    load[rng.integers(len(load), size=30)] = np.nan
    look = Lookahead(quantile=quantile, near=0.5, around=timedelta(hours=2), same_minute=2)
    at = np.array([position for position in range(15 * DAY, 16 * DAY) if not np.isnan(load[position - 1])])
    [found] = loads_ahead(load, at=at, step_s=HOUR, ahead_s=ahead * HOUR, lookahead=look, levels=(quantile,))
    by_hand = [expected(load, position, ahead=ahead, look=look, step_s=HOUR) for position in at]
    # Growth is counted in bins of 0.5 %.
    np.testing.assert_allclose(found, by_hand, rtol=0.01)


def test_a_job_that_starts_by_the_clock_is_seen_before_it_starts():
    load = np.full(12 * DAY, 10.0)
    load[9::DAY] = 100.0
    look = Lookahead(around=timedelta(minutes=10))
    before = [10 * DAY + hour for hour in (6, 7, 8)]
    [found] = loads_ahead(load, at=before, step_s=HOUR, ahead_s=HOUR, lookahead=look, levels=(0.9,))
    # An hour to start: at 7 the steps from 8 and 9 count, at 8 those from 9 and 10, at 6 those from 7 and 8.
    assert found == pytest.approx([10, 100, 100], rel=0.02)


def test_a_job_out_of_nothing_is_seen_before_it_starts():
    """Nothing is live, and every day 50 at noon."""
    load = np.zeros(12 * DAY)
    load[12::DAY] = 50.0
    common = {"at": [10 * DAY + 11], "step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead()}
    assert loads_ahead(load, **common, levels=(0.9,))[0] == pytest.approx(50, rel=0.02)


def test_a_day_goes_on_as_days_went_that_began_like_it():
    """By turns days are of 10 all along, and of 20 from 8 and 60 from noon on. At 11, with three hours of 20 behind it,
    a day is of the second kind; with a load of 20 that only the last hour had, the same load does not tell."""
    load = np.full(20 * DAY, 10.0)
    for day in range(0, 20, 2):
        load[day * DAY + 8 : day * DAY + 12], load[day * DAY + 12 : (day + 1) * DAY] = 20.0, 60.0
    load[9 * DAY + 10 :: 2 * DAY] = 20.0
    common = {"step_s": HOUR, "ahead_s": HOUR, "levels": (0.5,)}
    look = Lookahead(near=10, around=timedelta(hours=1), same_minute=0)
    [found] = loads_ahead(load, at=[18 * DAY + 11, 17 * DAY + 11], lookahead=look, **common)
    rises, stays = found.tolist()
    assert rises > stays


def test_two_views_of_the_live_load_count_alike():
    load = np.random.default_rng(6).gamma(3, 5, 12 * DAY)
    before = np.concatenate([[np.nan], load[:-1]])
    longer = np.concatenate([[np.nan, np.nan], (load[1:-1] + load[:-2]) / 2])
    common = {"at": np.arange(8 * DAY, 9 * DAY), "step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead()}
    each = [loads_ahead(load, **common, levels=(0.9,), live=view) for view in (before, longer)]
    both = loads_ahead(load, **common, levels=(0.9,), live=[before, longer])
    np.testing.assert_allclose(both, np.mean(each, axis=0))
    # A view that is not known leaves the other; without any nothing is known.
    some = longer.copy()
    some[8 * DAY] = np.nan
    np.testing.assert_allclose(loads_ahead(load, **common, levels=(0.9,), live=[before, some])[0, 0], each[0][0, 0])


def test_a_load_like_this_one_counts_more_than_the_time_of_day():
    """High load stays, low load goes up by half: what follows depends on where one is."""
    rng = np.random.default_rng(0)
    high = rng.random(400 * DAY) < 0.5
    load = np.where(high, 100.0, 10.0)
    load[1:] = np.where(high[:-1], 100.0, 15.0)
    look, position = Lookahead(near=0.1), 380 * DAY
    found = {}
    for now in (100.0, 15.0):
        live = np.concatenate([[np.nan], load[:-1]])
        live[position] = now
        common = {"at": [position], "step_s": HOUR, "ahead_s": 0, "lookahead": look, "live": live}
        found[now] = float(loads_ahead(load, **common, levels=(0.5,))[0, 0])
    assert found[100.0] == pytest.approx(100, rel=0.02)
    assert found[15.0] > 75


def test_nothing_is_expected_where_nothing_was_ever_known():
    common = {"step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead(), "levels": (0.9,)}
    live = np.full(3 * DAY, 5.0)
    assert np.isnan(loads_ahead(np.full(3 * DAY, np.nan), at=[2 * DAY], live=live, **common)).all()


def test_nothing_of_the_first_day_and_nothing_of_an_unknown_load_is_told():
    load = np.full(3 * DAY, 10.0)
    load[2 * DAY] = np.nan
    common = {"step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead(), "levels": (0.9,)}
    assert np.isnan(loads_ahead(load, at=[5, 2 * DAY + 1], **common)).all()
    assert np.isnan(loads_ahead(np.zeros(3 * DAY), at=[2 * DAY], **common)).all()


def test_what_comes_later_changes_nothing():
    rng = np.random.default_rng(1)
    load = rng.gamma(3, 5, 10 * DAY)
    changed = load.copy()
    changed[8 * DAY :] = rng.gamma(30, 50, 2 * DAY)
    common = {"at": np.arange(2 * DAY, 8 * DAY + 1), "step_s": HOUR, "ahead_s": 2 * HOUR, "lookahead": Lookahead()}
    np.testing.assert_array_equal(*(loads_ahead(one, **common, levels=(0.9,)) for one in (load, changed)))


def test_a_higher_quantile_asks_for_no_less():
    load = np.random.default_rng(2).gamma(3, 5, 60 * DAY)
    common = {"at": np.arange(50 * DAY, 59 * DAY), "step_s": HOUR, "ahead_s": HOUR, "lookahead": Lookahead(near=0.5)}
    levels = loads_ahead(load, **common, levels=(0.5, 0.8, 0.95))
    assert np.isfinite(levels).all()
    assert (np.diff(levels, axis=0) >= 0).all()
