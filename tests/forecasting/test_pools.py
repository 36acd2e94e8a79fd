"""How much of its classes' spread a pool keeps."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from floorcast.columns import Metric
from forecasting.forecast import Forecast, Request, StoredFit, forecast_all
from forecasting.lead import fit_lead
from forecasting.pools import kept_share, peak_factor
from forecasting.series import FloatArray, Series
from forecasting.verdict import Target, at_level

START = datetime(2026, 11, 2, tzinfo=UTC)
TARGET = Target(quantile=0.95, lead_steps=2, horizon_steps=2)


def forecast(series: Series) -> Forecast:
    row, _ = fit_lead(series.view(series.end), {}, target=TARGET, timer=lambda: 0.0)
    lead = StoredFit(str(row["model"]), str(row["parameters"]), "{}")
    [made] = forecast_all([Request(series, series.end, TARGET, lead, None)])
    assert isinstance(made, Forecast), made
    return made


def pool(make_series: Callable[[FloatArray], Series], *values: FloatArray) -> list[tuple[Series, Forecast]]:
    return [(series, forecast(series)) for series in map(make_series, values)]


def noise(seed: int, days: int = 8) -> FloatArray:
    return 1000 * np.exp(0.3 * np.random.default_rng(seed).standard_normal(days * 96))


def test_classes_that_are_alike_keep_all_of_their_spread_and_independent_ones_less(make_series) -> None:
    """Of n independent classes the sum spreads by about 1 / sqrt(n) of their spreads added up: four keep half."""
    alike = kept_share(pool(make_series, noise(1), noise(1)), quantile=0.95)
    four = kept_share(pool(make_series, *(noise(seed) for seed in range(4))), quantile=0.95)
    assert alike > 0.85
    assert 0.3 < four < 0.7


def test_the_share_is_the_rank_of_the_excess_over_the_medians_in_units_of_the_spread(make_series) -> None:
    """Beside the formula, a plain loop over the origins."""
    members = pool(make_series, noise(1), noise(2))
    excess = []
    origins = len(members[0][1].panel.actual)
    for origin in range(origins - TARGET.lead_steps):
        place = len(members[0][0].values) - origins + 1 + origin
        came = max(sum(series.values[place + step] for series, _ in members) for step in range(TARGET.lead_steps))
        medians = sum(at_level(made.combined.past[origin], 0.5) for _, made in members)
        bounds = sum(at_level(made.combined.past[origin], 0.95) for _, made in members)
        excess.append((came - medians) / (bounds - medians))
    rank = int(np.ceil((len(excess) + 1) * 0.95))
    assert kept_share(members, quantile=0.95) == pytest.approx(min(max(sorted(excess)[rank - 1], 0), 1))


def test_the_pools_bound_covers_its_share_where_added_quantiles_cover_too_much(make_series) -> None:
    """The share of the first days, on the origins of the last two, which it has not seen."""
    members, later = pool(make_series, *(noise(seed, days=12) for seed in range(4))), 2 * 96
    early = [
        (
            replace(series, values=series.values[:-later]),
            replace(
                made,
                panel=replace(made.panel, actual=made.panel.actual[:-later]),
                combined=replace(made.combined, past=made.combined.past[:-later]),
            ),
        )
        for series, made in members
    ]
    share = kept_share(early, quantile=0.95)
    past = sum(made.combined.past[-later - 1 : -2] for _, made in members)
    total = np.sum([series.values[-later:] for series, _ in members], axis=0)
    came = np.maximum(total[:-1], total[1:])
    median, bound = at_level(past, 0.5), at_level(past, 0.95)
    assert np.mean(came <= bound) > 0.97
    assert abs(np.mean(came <= median + share * (bound - median)) - 0.95) < 0.03


def test_the_busiest_minute_is_covered_as_often_as_the_mean(make_series) -> None:
    """Minutes that reach 20 to 60 % above their step's mean: beside the formula, a plain loop, and what it is for."""
    [(series, made)] = pool(make_series, noise(1))
    peaks = series.values * (1.2 + 0.4 * np.random.default_rng(2).random(len(series.values)))
    factor = peak_factor([(series, made)], [peaks], quantile=0.95, share=1.0)
    origins = len(made.panel.actual)
    rows = []
    for origin in range(origins - TARGET.lead_steps):
        place = len(series.values) - origins + 1 + origin
        rows.append((max(peaks[place : place + 2]), at_level(made.combined.past[origin], 0.95)))
    base = 0.05 * np.mean([bound for _, bound in rows])
    ratios = sorted((peak + base) / (bound + base) for peak, bound in rows)
    assert factor == pytest.approx(ratios[int(np.ceil((len(ratios) + 1) * 0.95)) - 1])
    assert factor > 1.1
    assert np.mean([peak <= factor * bound for peak, bound in rows]) == pytest.approx(0.95, abs=0.01)


def test_origins_that_skip_steps_are_compared_with_what_came_after_them() -> None:
    """Of classes alike all of the spread is kept, at five minutes a step too, where every other step is an origin."""
    fast = [
        Series("chat", Metric.TOKENS_IN, START, timedelta(minutes=5), 1000 * np.exp(0.3 * wobble))
        for wobble in [np.random.default_rng(1).standard_normal(4 * 288 + 1)] * 2
    ]
    members = [(series, forecast(series)) for series in fast]
    assert members[0][1].panel.spacing == 2
    share = kept_share(members, quantile=0.95)
    assert share > 0.85
    peaks = [1.5 * series.values for series in fast]
    assert peak_factor(members[:1], peaks[:1], quantile=0.95, share=1.0) == pytest.approx(1.5, abs=0.1)


def test_busiest_minutes_of_several_classes_do_not_add_up(make_series) -> None:
    """Each class half above its mean in some minute: four unrelated ones together by a half of that."""
    members = pool(make_series, *(noise(seed) for seed in range(4)))
    share = kept_share(members, quantile=0.95)
    peaks = [1.5 * series.values for series, _ in members]
    together = peak_factor(members, peaks, quantile=0.95, share=share)
    alone = peak_factor(members[:1], peaks[:1], quantile=0.95, share=1.0)
    assert 1.15 < together < 1.35
    assert alone == pytest.approx(1.5, abs=0.1)


def test_without_peaks_above_the_mean_or_without_enough_of_them_nothing_is_raised(make_series) -> None:
    members = pool(make_series, noise(1), noise(2))
    share = kept_share(members, quantile=0.95)
    flat = [series.values for series, _ in members]
    assert peak_factor(members, flat, quantile=0.95, share=share) == pytest.approx(1.0, abs=0.02)
    unknown = [np.full(len(series.values), np.nan) for series, _ in members]
    assert peak_factor(members, unknown, quantile=0.95, share=share) is None


def test_what_is_not_comparable_adds_up(make_series) -> None:
    one, other = pool(make_series, noise(1), noise(2))
    short = pool(make_series, noise(3)[:-5])[0]
    young = pool(make_series, noise(4)[:100])[0]
    assert kept_share([one], quantile=0.95) == 1
    assert kept_share([one, other, short], quantile=0.95) == 1, "known up to different times"
    assert kept_share([young, young], quantile=0.95) == 1, "too few origins"
