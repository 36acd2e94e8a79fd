"""What a pool's demand would have been forecast to be, at every origin of its past."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from floorcast.columns import QUANTILE_LEVELS, Metric
from forecasting.mixture import replay
from forecasting.past_pools import Member, past_quantiles
from forecasting.series import FloatArray, Series

START, STEP, DAY = datetime(2026, 11, 2, tzinfo=UTC), timedelta(hours=1), 24
DAYS, LEAD = 14, 2
END = START + timedelta(days=DAYS)
FROM = START + timedelta(days=10)
AT_50, AT_95 = QUANTILE_LEVELS.index(0.5), QUANTILE_LEVELS.index(0.95)


def series_of(seed: int, name: str = "chat") -> Series:
    hours = np.arange(DAYS * DAY)
    noise = np.random.default_rng(seed).lognormal(0, 0.2, len(hours))
    values: FloatArray = 100 * (1.5 + np.sin(2 * np.pi * hours / DAY)) * noise
    return Series(name, Metric.TOKENS_IN, START, STEP, values)


def quantiles(*members: Member) -> FloatArray:
    return past_quantiles(members, lead_steps=LEAD, start=FROM, end=END).peaks


def test_a_class_alone_is_forecast_as_by_the_mixture() -> None:
    one = series_of(0)
    expected = replay(one.view(one.end), lead_steps=LEAD, first_origin=10 * DAY)
    found = quantiles(Member(one, None))
    assert found.shape == (4 * DAY, len(QUANTILE_LEVELS))
    # The origins learned from begin six days before, not with the first that is asked for.
    np.testing.assert_allclose(found[-DAY:], expected[-DAY:], rtol=0.1)


def test_what_comes_later_changes_no_forecast() -> None:
    """The last day drawn anew: what was forecast before it, and at its first step, stays."""
    members = [Member(one, 1.3 * one.values) for one in (series_of(0), series_of(1, "agent"))]
    later = []
    for seed, member in enumerate(members, start=7):
        changed = np.concatenate([member.series.values[:-DAY], series_of(seed).values[-DAY:] * 3])
        later.append(Member(replace(member.series, values=changed), 1.3 * changed))
    before, after = quantiles(*members), quantiles(*later)
    np.testing.assert_array_equal(before[: -DAY + 1], after[: -DAY + 1])
    assert (before[-1] != after[-1]).any()


def test_classes_that_peak_apart_need_less_than_their_sum() -> None:
    """Two of independent noise: at 0.95 less than their quantiles added up, their medians as they are."""
    one, other = Member(series_of(0), None), Member(series_of(1, "agent"), None)
    together, apart = quantiles(one, other), quantiles(one) + quantiles(other)
    np.testing.assert_allclose(together[:, AT_50], apart[:, AT_50])
    assert (together[:, AT_95] <= apart[:, AT_95] + 1e-9).all()
    assert together[:, AT_95].mean() < 0.97 * apart[:, AT_95].mean()


def test_the_busiest_minute_lifts_them() -> None:
    """Peaks of 1.3 times every step's mean: the factor is 1.3 but for the share of the mean on both sides of it."""
    one = series_of(0)
    lifted, plain = quantiles(Member(one, 1.3 * one.values)), quantiles(Member(one, None))
    assert (lifted[:, AT_50:] / plain[:, AT_50:]).mean() == pytest.approx(1.3, abs=0.1)
    both = past_quantiles([Member(one, 1.3 * one.values)], lead_steps=LEAD, start=FROM, end=END)
    np.testing.assert_array_equal(both.means, plain)


def test_a_class_that_has_not_begun_asks_for_nothing() -> None:
    one, young = series_of(0), series_of(1, "agent")
    begins = 12 * DAY
    young = replace(young, start=START + begins * STEP, values=young.values[begins:])
    together, alone = quantiles(Member(one, None), Member(young, None)), quantiles(Member(one, None))
    np.testing.assert_allclose(together[: 2 * DAY, AT_50], alone[: 2 * DAY, AT_50])
    assert (together[2 * DAY + 1 :, AT_50] > alone[2 * DAY + 1 :, AT_50]).all()


def test_after_its_data_end_a_class_is_as_last_forecast() -> None:
    one = series_of(0)
    ended = replace(one, values=one.values[:-6])
    found, whole = quantiles(Member(ended, None)), quantiles(Member(one, None))
    np.testing.assert_array_equal(found[:-6], whole[:-6])
    np.testing.assert_array_equal(found[-6:], np.repeat(found[-7:-6], 6, axis=0))
