"""Quantiles of the lead window from moments of the past like the one now."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from floorcast.columns import QUANTILE_LEVELS
from forecasting.mixture.analogue import ANY_LOAD, AROUND, FADE, FARTHEST, NEAR, OFFSET, SAME_MINUTE, like_moments
from forecasting.mixture.past import Past
from forecasting.series import FloatArray, View

STEP = timedelta(minutes=30)
DAY_STEPS = 48
AT_50, AT_95 = QUANTILE_LEVELS.index(0.5), QUANTILE_LEVELS.index(0.95)


def view(values: FloatArray) -> View:
    return View(datetime(2026, 11, 2, tzinfo=UTC), STEP, np.asarray(values, dtype=float))


def at_end(values: FloatArray, lead_steps: int = 2) -> FloatArray:
    seen = view(values)
    [quantiles] = like_moments(Past(seen, len(seen.values), lead_steps), 1)
    return quantiles


def by_hand(values: FloatArray, lead_steps: int) -> list[float]:
    """The same at the end of `values`, moment by moment."""
    now = len(values)
    offset = OFFSET * float(np.nanmean(values[: now // DAY_STEPS * DAY_STEPS]))
    filled = values.copy()
    for place in np.flatnonzero(np.isnan(values)):
        filled[place] = filled[place - 1]
    pairs = []
    for moment in range(1, now - lead_steps + 1):
        window = values[moment : moment + lead_steps]
        ago = now - moment
        apart = (ago + DAY_STEPS // 2) % DAY_STEPS - DAY_STEPS // 2
        if np.isnan(window).any() or abs(apart) * STEP > FARTHEST:
            continue
        weight = np.exp(-ago * STEP / FADE)
        weight *= np.exp(-0.5 * (apart * STEP / AROUND) ** 2) + (SAME_MINUTE if apart == 0 else 0)
        ratio = (filled[moment - 1] + offset) / (filled[-1] + offset)
        weight *= np.exp(-0.5 * (np.log(ratio) / NEAR) ** 2) + ANY_LOAD
        pairs.append(((window.max() + offset) / (filled[moment - 1] + offset), weight))
    pairs.sort()
    reached = np.cumsum([weight for _, weight in pairs])
    growths = [pairs[int(np.argmax(reached >= level * reached[-1]))][0] for level in QUANTILE_LEVELS]
    return [(filled[-1] + offset) * growth - offset for growth in growths]


@pytest.mark.parametrize("lead_steps", [1, 3])
def test_quantiles_are_those_of_moments_weighed_one_by_one(lead_steps: int) -> None:
    values = 100 * np.exp(np.random.default_rng(1).normal(0, 0.4, 5 * DAY_STEPS + 7))
    values[[60, 61, 200]] = np.nan
    for end in (3 * DAY_STEPS, 4 * DAY_STEPS + 5, len(values)):
        np.testing.assert_allclose(at_end(values[:end], lead_steps), by_hand(values[:end], lead_steps), rtol=1e-9)


def test_what_starts_by_the_clock_is_expected_at_its_minute_and_at_no_other() -> None:
    """Ten days at 100 tokens/s, with 500 from 10:00 to 14:00: at 10:00 the rise is foreseen, at 05:00 there is none."""
    day = np.full(DAY_STEPS, 100.0)
    day[20:28] = 500.0
    values = np.tile(day, 10)
    assert at_end(np.append(values, day[:20]))[AT_95] == pytest.approx(500)
    assert at_end(np.append(values, day[:20]))[AT_50] == pytest.approx(500)
    assert at_end(np.append(values, day[:10]))[AT_95] == pytest.approx(100)


def test_what_a_load_like_this_one_did_counts_and_not_what_another_did() -> None:
    """At noon of even days a load of 100 doubles, of odd days one of 1,000 stays."""
    low, high = np.full(DAY_STEPS, 100.0), np.full(DAY_STEPS, 1000.0)
    low[24:36] = 200.0
    values = np.tile(np.concatenate([low, high]), 5)
    assert at_end(np.append(values, low[:24]))[AT_50] == pytest.approx(200)
    assert at_end(np.append(values, high[:24]))[AT_95] == pytest.approx(1000)


def test_nothing_at_or_after_an_origin_is_looked_at() -> None:
    values = 100 * np.exp(np.random.default_rng(2).normal(0, 0.4, 6 * DAY_STEPS))
    first, cut = 2 * DAY_STEPS, 5 * DAY_STEPS + 3
    shuffled = values.copy()
    np.random.default_rng(3).shuffle(shuffled[cut:])
    whole, changed = (like_moments(Past(view(each), first, 2), 1) for each in (values, shuffled))
    np.testing.assert_array_equal(whole[: cut - first + 1], changed[: cut - first + 1])
    assert (whole[cut - first + 1 :] != changed[cut - first + 1 :]).any()


def test_every_other_origin_ends_with_the_last() -> None:
    values = np.tile(np.arange(1.0, DAY_STEPS + 1), 4)
    for first in (2 * DAY_STEPS, 2 * DAY_STEPS + 1):
        past = Past(view(values), first, 2)
        made = like_moments(past, 2)
        assert len(made) == (past.origins + 1) // 2
        [alone] = like_moments(Past(view(values), len(values), 2), 2)
        np.testing.assert_allclose(made[-1], alone)


def test_without_a_moment_to_go_by_it_is_the_newest_rate_and_none_before_the_first() -> None:
    made = like_moments(Past(view(np.array([np.nan, np.nan, 7.0, 9.0])), 1, 2), 1)
    assert np.isnan(made[:2]).all()
    np.testing.assert_allclose(made[2:], np.repeat([[7.0], [9.0]], len(QUANTILE_LEVELS), axis=1))


@given(
    values=arrays(
        float, 3 * DAY_STEPS, elements=st.one_of(st.just(0.0), st.floats(1e-3, 1e7), st.just(np.nan)), fill=st.nothing()
    )
)
@settings(max_examples=40, deadline=None)
def test_quantiles_are_uncrossed_not_negative_and_never_absurd(values: FloatArray) -> None:
    past = Past(view(values), DAY_STEPS, 2)
    seen = np.isfinite(past.back(1))
    made = like_moments(past, 1)[seen]
    assert np.isfinite(made).all()
    assert (made >= 0).all()
    assert (np.diff(made, axis=1) >= 0).all()
    assert (made <= 3 * past.highest()[seen, None]).all()
