"""Classes that are on and off by the clock: tables of what a time of day was like, and their part in the outlook."""

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest

from floorcast.columns import QUANTILE_LEVELS
from forecasting.clocked import with_schedules
from forecasting.forecast import Request, StoredFit, forecast_all
from forecasting.models.schedule import SCHEDULE_DAY, SCHEDULE_WEEK
from forecasting.rows import Row
from forecasting.selection import fit_series
from forecasting.series import FloatArray, Series
from forecasting.verdict import Target

Make = Callable[[FloatArray], Series]
DAY_STEPS = 96
TARGET = Target(quantile=0.95, lead_steps=2, horizon_steps=DAY_STEPS)
AT_50, AT_90, AT_95 = (QUANTILE_LEVELS.index(level) for level in (0.5, 0.9, 0.95))


def nightly(days: int, absent_every: int = 5) -> FloatArray:
    """A job of four hours from about 01:00 on, at about 1,000 tokens/s, but for the last of every so many nights."""
    rng = np.random.default_rng(5)
    values = np.zeros((days, DAY_STEPS))
    for night, day in enumerate(values, start=1):
        if night % absent_every:
            begin = 4 + rng.integers(-1, 2)
            day[begin : begin + 16] = rng.normal(1000, 50, 16)
    return values.ravel()


def fitted(series: Series) -> tuple[dict[str, Row], dict[str, Row]]:
    """Fits by horizon, and the outlook's scores by model."""
    fits, scores = fit_series(series, cutoff=series.end, target=TARGET, timer=itertools.count().__next__)
    return (
        {str(row["horizon"]): row for row in fits},
        {str(row["model"]): row for row in scores if row["horizon"] == "outlook"},
    )


def test_quantiles_of_a_time_of_day_are_the_weighted_ones_of_the_rates_around_it(make_series: Make) -> None:
    """Against a plain loop over all steps of the past, at quarters of an hour: two on either side count, by a Gaussian
    of one step, and by their day's age over two weeks."""
    rng = np.random.default_rng(6)
    values = rng.uniform(1, 100, 5 * DAY_STEPS + 7) * (rng.uniform(size=5 * DAY_STEPS + 7) < 0.7)
    values[rng.uniform(size=len(values)) < 0.1] = np.nan
    series = make_series(values)
    view = series.view(series.end)
    table = np.array(SCHEDULE_DAY.fit(view)["quantiles"])
    for slot in (0, 1, 50, DAY_STEPS - 1):
        pairs = []
        for centre in range(slot, 6 * DAY_STEPS, DAY_STEPS):
            for off in (-2, -1, 0, 1, 2):
                if 0 <= centre + off < len(values) and np.isfinite(values[centre + off]):
                    age = (len(values) - centre) / (14 * DAY_STEPS)
                    pairs.append((values[centre + off], np.exp(-age) * np.exp(-0.5 * off**2)))
        pairs.sort()
        reached = np.cumsum([weight for _, weight in pairs])
        for place, level in enumerate(QUANTILE_LEVELS):
            wanted = pairs[int((reached < level * reached[-1]).sum())][0]
            assert table[slot, place] == pytest.approx(wanted, rel=1e-3)


def test_a_night_in_five_without_the_job_leaves_the_upper_levels_at_the_job_and_the_day_at_nothing(
    make_series: Make,
) -> None:
    series = make_series(nightly(40))
    view = series.view(series.end)
    ahead = SCHEDULE_DAY.quantiles(SCHEDULE_DAY.fit(view), view, len(view.values) + np.arange(DAY_STEPS))
    assert (ahead[8:18, AT_50] > 850).all()
    assert (ahead[8:18, AT_95] > 1000).all()
    assert (ahead[8:18, 0] == 0).all(), "one in ten nights has none"
    assert (ahead[26:] == 0).all()


def test_a_schedule_of_the_week_knows_the_weekend(make_series: Make) -> None:
    """Five weeks from a Monday on with the job on workdays only; the next day is a Monday, and the sixth a Saturday."""
    days = np.arange(35)
    values = nightly(35, absent_every=36).reshape(35, -1) * (days % 7 < 5)[:, None]
    series = make_series(values.ravel())
    view = series.view(series.end)
    for schedule, saturday in ((SCHEDULE_DAY, 900.0), (SCHEDULE_WEEK, 0.0)):
        ahead = schedule.quantiles(schedule.fit(view), view, len(view.values) + np.arange(6 * DAY_STEPS))
        ahead = ahead.reshape(6, DAY_STEPS, -1)
        assert (ahead[0, 8:18, AT_95] > 900).all()
        assert (ahead[5, 8:18, AT_95] >= saturday).all()
        assert saturday or not ahead[5].any()


def test_a_time_of_day_that_was_never_observed_is_not_taken_to_be_silent(make_series: Make) -> None:
    """On for the first half of the day and never observed from 03:00 to 06:00: of the 84 steps seen 36 were on."""
    day = np.where(np.arange(DAY_STEPS) < 48, 1000.0, 0.0)
    day[12:24] = np.nan
    series = make_series(np.tile(day, 10))
    table = np.array(SCHEDULE_DAY.fit(series.view(series.end))["quantiles"])
    assert (table[14:22] == table[14]).all()
    assert table[14, AT_50] == 0
    assert table[14, AT_90] == 1000
    assert not table[60].any()


@pytest.mark.parametrize("silent", [0.0, 0.05, 0.99])
def test_a_class_that_is_nearly_always_on_or_idle_is_no_schedule(silent: float, make_series: Make) -> None:
    values = np.where(np.random.default_rng(7).uniform(size=20 * DAY_STEPS) < silent, 0.0, 100.0)
    series = make_series(values)
    assert "a schedule is in 10% to 98%" in str(SCHEDULE_DAY.lacks(series.view(series.end)))


def test_a_nightly_job_is_foretold_whole_a_day_ahead_and_its_silence_too(make_series: Make) -> None:
    """Margins around a point promise part of it at every hour. Judged on the eight days after the fit's history."""
    known, judged = 32, 8
    values = nightly(known + judged)
    fits, scores = fitted(make_series(values[: known * DAY_STEPS]))
    assert sum(float(str(scores[name]["weight"])) for name in ("schedule_day", "schedule_week")) > 0.8
    points = max(float(str(row["pinball"])) for name, row in scores.items() if name.startswith("mstl_ets_day"))
    assert float(str(scores["mixture"]["pinball"])) < 0.7 * points
    assert sum(float(str(row["weight"])) for name, row in scores.items() if name != "mixture") == pytest.approx(1)
    covered = []
    for day in range(known, known + judged):
        series = make_series(values[: day * DAY_STEPS])
        stored = {
            name: StoredFit(*(str(row[part]) for part in ("model", "parameters", "margins")))
            for name, row in fits.items()
        }
        [made] = forecast_all([Request(series, series.end, TARGET, stored["lead"], stored["outlook"])])
        assert not isinstance(made, str)
        bound = made.frame["q95"].to_numpy()
        came = values[day * DAY_STEPS : (day + 1) * DAY_STEPS]
        assert (bound[30:] < 200).all()
        covered.append(came[6:18] <= bound[6:18])
        assert "schedule_day" in str(made.frame["model"][-1])
    assert np.mean(covered) > 0.85


def test_a_stored_schedule_that_fails_leaves_its_share_to_the_others(make_series: Make) -> None:
    series = make_series(nightly(10))
    view = series.view(series.end)
    quantiles = np.ones((4, len(QUANTILE_LEVELS)))
    stored = {
        "schedule_day": {**SCHEDULE_DAY.fit(view), "share": 0.5},
        "schedule_week": {"quantiles": [[0.0]], "share": 0.4},
    }
    mixed, shares, [failed] = with_schedules(quantiles, json.loads(json.dumps(stored)), view)
    own = SCHEDULE_DAY.quantiles(stored["schedule_day"], view, len(view.values) + np.arange(4))
    assert shares == {"schedule_day": pytest.approx(5 / 6)}
    np.testing.assert_allclose(mixed, quantiles / 6 + own * 5 / 6)
    assert failed.startswith("schedule_week: ValueError: a table of shape (1, 1)")
