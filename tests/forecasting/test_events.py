"""Events and holidays: taken out of history, put onto forecasts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import FORECASTS, QUANTILE_COLUMNS, Metric
from floorcast.config import Config
from floorcast.event import Window
from forecasting.events import Effect, adjust, clean, effects_of
from forecasting.factors import Rates, microseconds
from forecasting.series import FloatArray, Series

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
START = datetime(2026, 11, 2, tzinfo=UTC)
POOL = {
    "gpu": {"type": "H100"},
    "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 500},
    "startup": {"p90": "4m"},
    "bounds": {"min": 1, "max": 9},
}


def between(first: float, last: float) -> Window:
    return Window(START + first * HOUR, START + last * HOUR)


def series(values: Any) -> Series:
    return Series("chat", Metric.TOKENS_IN, START, HOUR, np.asarray(values, dtype=float))


def forecast(rows: FloatArray, at: datetime = START) -> pl.DataFrame:
    """Hourly rows of quantiles from `at` on."""
    return pl.DataFrame(
        {
            "workload_class": "chat",
            "metric": "tokens_in",
            "cutoff": at,
            "step_start": [at + place * HOUR for place in range(len(rows))],
            "model": "mixture",
            **{name: np.asarray(rows, dtype=float)[:, place] for place, name in enumerate(QUANTILE_COLUMNS)},
        },
        schema=dict(FORECASTS),
    )


def flat(hours: int, rate: float = 100.0) -> pl.DataFrame:
    return forecast(np.full((hours, 8), rate))


def test_factors_multiply_then_additions_add_then_the_highest_least_counts() -> None:
    """At 100/s: hour 0 x1.5; hour 1 x1.5 x2 +40; hour 2 +40 but at least 500; hour 3 at least 50; hour 4 nothing."""
    effects = [
        Effect("launch", (between(0, 2),), multiply=1.5),
        Effect("sale", (between(1, 2),), multiply=2),
        Effect("report", (between(1, 3),), add=40),
        Effect("keynote", (between(2, 3),), at_least=500),
        Effect("talk", (between(2, 4),), at_least=50),
    ]
    got = adjust(flat(5), effects, step=HOUR)
    assert got["q95"].to_list() == [150, 340, 500, 100, 100]
    assert got["model"].to_list() == [
        "mixture, x1.5 launch",
        "mixture, x1.5 launch, x2 sale, +40/s report",
        "mixture, +40/s report, at least 500/s keynote, at least 50/s talk",
        "mixture, at least 50/s talk",
        "mixture",
    ]
    assert dict(got.schema) == dict(FORECASTS)


def test_what_raises_covers_every_step_it_touches_and_what_lowers_only_whole_ones() -> None:
    window = (between(0.5, 2.5),)
    assert adjust(flat(4), [Effect("more", window, multiply=2)], step=HOUR)["q50"].to_list() == [200, 200, 200, 100]
    assert adjust(flat(4), [Effect("less", window, multiply=0)], step=HOUR)["q50"].to_list() == [100, 0, 100, 100]


def test_at_least_is_to_be_ready_for_in_the_busiest_minute_and_never_less_than_without_it() -> None:
    """Floors are 1.25 times the rate: at least 1000/s is a rate of 800/s, and 900/s stays, which is 1125/s."""
    effects = [Effect("keynote", (between(0, 1),), at_least=1000)]
    for rate, becomes in ((100.0, 800.0), (900.0, 900.0)):
        assert adjust(flat(1, rate), effects, step=HOUR, peak=1.25)["q95"].to_list() == [becomes]


def test_an_effect_without_a_factor_only_says_why() -> None:
    (row,) = adjust(
        flat(1), [Effect("sale", (between(0, 1),), hides=True, note="1 of 2 past times known")], step=HOUR
    ).to_dicts()
    assert (row["model"], row["q95"]) == ("mixture, sale: 1 of 2 past times known", 100)


effects = st.lists(
    st.builds(
        lambda first, lasts, multiply, add, at_least, hides: Effect(
            "e", (between(first, first + lasts),), multiply=multiply, add=add, at_least=at_least, hides=hides
        ),
        st.floats(-3, 12),
        st.floats(0.1, 9),
        st.sampled_from([0.0, 0.05, 0.5, 1.0, 1.0, 1.7, 100.0]),
        st.sampled_from([0.0, 0.0, 300.0]),
        st.sampled_from([0.0, 0.0, 5000.0]),
        st.booleans(),
    ),
    max_size=5,
)
paths = st.lists(st.lists(st.floats(0, 1e6), min_size=8, max_size=8).map(sorted), min_size=1, max_size=10)


@given(rows=paths, effects=effects)
def test_adjusted_quantiles_are_uncrossed_non_negative_and_marked_where_they_changed(
    rows: list[list[float]], effects: list[Effect]
) -> None:
    before = forecast(np.array(rows))
    after = adjust(before, effects, step=HOUR)
    values = after.select(QUANTILE_COLUMNS).to_numpy()
    assert (values >= 0).all()
    assert (np.diff(values, axis=1) >= 0).all()
    changed = (values != np.array(rows)).any(axis=1)
    assert (after["model"] != "mixture").to_numpy()[changed].all()
    assert after.drop("model", *QUANTILE_COLUMNS).equals(before.drop("model", *QUANTILE_COLUMNS))


@given(rows=paths, more=st.floats(0, 1e6), effects=effects)
def test_a_higher_forecast_is_never_adjusted_to_a_lower_one(
    rows: list[list[float]], more: float, effects: list[Effect]
) -> None:
    low = adjust(forecast(np.array(rows)), effects, step=HOUR).select(QUANTILE_COLUMNS).to_numpy()
    high = adjust(forecast(np.array(rows) + more), effects, step=HOUR).select(QUANTILE_COLUMNS).to_numpy()
    assert (high >= low).all()


@given(rows=paths, least=st.floats(0, 1e6))
def test_at_least_is_idempotent_and_the_order_of_events_does_not_matter(rows: list[list[float]], least: float) -> None:
    effects = [Effect("a", (between(0, 5),), at_least=least), Effect("b", (between(0, 9),), multiply=1.5)]
    forward, backward = (adjust(forecast(np.array(rows)), each, step=HOUR) for each in (effects, effects[::-1]))
    assert forward.drop("model").equals(backward.drop("model"))
    once = adjust(forecast(np.array(rows)), effects[:1], step=HOUR)
    assert adjust(once, effects[:1], step=HOUR).drop("model").equals(once.drop("model"))


def test_a_past_event_is_undone_in_history_and_the_steps_it_only_touches_are_left_out() -> None:
    values = [100, 130, 150, 150, 120, 100, 100]
    got = clean(series(values), [Effect("launch", (between(1.5, 4.5),), multiply=1.5)])
    np.testing.assert_allclose(got.values, [100, np.nan, 100, 100, np.nan, 100, 100])
    got = clean(series([100, 160, 30, 100]), [Effect("report", (between(1, 3),), add=60)])
    np.testing.assert_allclose(got.values, [100, 100, 0, 100])


def test_several_past_events_are_undone_together() -> None:
    both = [Effect("launch", (between(0, 2),), multiply=2), Effect("report", (between(1, 3),), add=10)]
    np.testing.assert_allclose(clean(series([200, 210, 110]), both).values, [100, 100, 100])


@pytest.mark.parametrize("multiply", [0.0, 0.05])
def test_maintenance_is_missing_not_zero(multiply: float) -> None:
    """Also while it goes on: the zeros that it brings must not be carried forward."""
    got = clean(series([100, 0, 0]), [Effect("maintenance", (between(1, 5),), multiply=multiply)])
    np.testing.assert_allclose(got.values, [100, np.nan, np.nan])


def test_learned_and_least_are_hidden_once_they_are_over_and_undone_while_they_last() -> None:
    over = Effect("sale", (between(0, 2),), multiply=2, hides=True)
    lasting = Effect("sale", (between(2, 9),), multiply=2, hides=True)
    np.testing.assert_allclose(clean(series([200, 200, 200, 300]), [over, lasting]).values, [np.nan, np.nan, 100, 150])
    least = Effect("keynote", (between(1, 3),), at_least=500, hides=True)
    np.testing.assert_allclose(clean(series([100, 600, 600]), [least]).values, [100, np.nan, np.nan])
    np.testing.assert_allclose(clean(series([100, 600]), [least]).values, [100, 600])


def test_what_lasted_longer_than_three_days_stays_in_history() -> None:
    month = Effect("ready", (between(0, 24 * 10),), at_least=50, hides=True)
    assert np.isfinite(clean(series(np.full(300, 100.0)), [month]).values).all()


@given(values=st.lists(st.one_of(st.floats(0, 1e6), st.just(np.nan)), min_size=1, max_size=12), effects=effects)
def test_cleaned_series_are_never_negative_keep_their_length_and_gain_no_step(
    values: list[float], effects: list[Effect]
) -> None:
    got = clean(series(values), effects)
    assert len(got.values) == len(values)
    assert not (got.values < 0).any()
    assert np.isnan(got.values)[np.isnan(values)].all()


@given(multiply=st.floats(0.1, 100), base=st.lists(st.floats(1, 1e6), min_size=4, max_size=4))
def test_what_is_undone_in_history_is_what_is_done_to_forecasts(multiply: float, base: list[float]) -> None:
    effects = [Effect("launch", (between(1, 3),), multiply=multiply)]
    rows = np.repeat(np.array(base)[:, None], 8, axis=1)
    shown = adjust(forecast(rows), effects, step=HOUR)["q50"].to_numpy()
    np.testing.assert_allclose(clean(series(shown), effects).values, base)


def config(**more: Any) -> Config:
    return Config.model_validate(
        {"pools": {"p": POOL}, "step": "1h", "classes": {"chat": {"pools": ["p"]}, "code": {"pools": ["p"]}}, **more}
    )


def known(
    config: Config, values: FloatArray, *, name: str = "chat", metric: Metric = Metric.TOKENS_IN
) -> tuple[Effect, ...]:
    """Effects from START to a week after the values' end, as known then."""
    cutoff = START + len(values) * HOUR
    rates = Rates(HOUR, microseconds(START) + np.arange(len(values)) * 3_600_000_000, values)
    return effects_of(config, name, metric, rates=rates, cutoff=cutoff, start=START, end=cutoff + 7 * DAY)


def test_an_event_concerns_its_classes_and_the_metrics_it_names() -> None:
    event = {"name": "keynote", "classes": ["chat"], "start": "2026-11-10", "end": "2026-11-11"}
    told = config(events=[{**event, "at_least": {"tokens_out_per_s": 700}}])
    assert known(told, np.ones(200)) == ()
    assert known(told, np.ones(200), name="code", metric=Metric.TOKENS_OUT) == ()
    (effect,) = known(told, np.ones(200), metric=Metric.TOKENS_OUT)
    assert (effect.at_least, effect.hides, effect.windows) == (700, True, (Window(START + 8 * DAY, START + 9 * DAY),))


def test_a_learned_factor_comes_from_all_past_entries_of_the_name() -> None:
    values = np.full(24 * 28, 100.0)
    values[24 * 8 : 24 * 9] = 130
    values[24 * 18 : 24 * 19] = 150
    entries = [
        {"name": "sale", "start": "2026-11-10", "end": "2026-11-11", "multiply": 3},
        {"name": "sale", "start": "2026-11-20", "end": "2026-11-21", "learn": True},
        {"name": "sale", "start": "2026-12-01", "end": "2026-12-02", "learn": True},
    ]
    told, learned = known(config(events=entries), values)
    assert (told.multiply, told.hides) == (3, False)
    assert learned.multiply == pytest.approx(1.4)
    assert len(learned.windows) == 2
    (_, unknown) = known(config(events=entries), values[: 24 * 15])
    assert unknown.label == "sale: 1 of 2 past times known"


def test_holidays_are_as_sundays_are_until_two_are_known_and_then_as_those_were() -> None:
    """Bavaria: Christmas 2026 is a Friday and a Saturday, New Year a Friday, Epiphany a Wednesday."""
    holidays = {"country": "DE", "subdivision": "BY", "zone": "UTC"}
    values = np.repeat(np.resize([400.0, 400, 400, 400, 400, 300, 100], 70), 24)
    (christmas,) = known(config(holidays=holidays), values[: 24 * 50])
    assert christmas.label == "x0.25 holiday DE-BY (as Sundays are)"
    assert christmas.windows == (Window(datetime(2026, 12, 25, tzinfo=UTC), datetime(2026, 12, 26, tzinfo=UTC)),)
    values[24 * 53 : 24 * 54] = 80
    values[24 * 60 : 24 * 61] = 160
    (learned,) = known(config(holidays=holidays), values[: 24 * 63])
    assert learned.label == "x0.3 holiday DE-BY"
    assert len(learned.windows) == 3
    (ordinary,) = known(config(holidays={**holidays, "until_learned": "ordinary"}), values[: 24 * 50])
    assert ordinary.label == "holiday DE-BY: 0 of 2 past times known"
    (few,) = known(config(holidays={**holidays, "until_learned": "sunday"}), np.full(24 * 50, np.nan))
    assert few.label == "holiday DE-BY: too few weeks known to compare"


def test_a_class_may_have_holidays_of_its_own() -> None:
    mine = {"pools": ["p"], "holidays": {"country": "US", "zone": "America/New_York"}}
    told = config(holidays={"country": "DE", "zone": "Europe/Berlin"}, classes={"chat": mine, "code": {"pools": ["p"]}})
    values = np.full(24 * 20, 100.0)
    assert [effect.name for effect in known(told, values)] == ["holiday US"] * 2, "Veterans Day and Thanksgiving"
    assert known(told, values, name="code") == ()


LEARNING = config(
    events=[{"name": "sale", "start": f"2026-11-{day:02}", "end": f"2026-11-{day + 1:02}", "learn": True}
            for day in (5, 10, 16, 23)],
    holidays={"country": "US", "zone": "America/New_York"},
)  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(24, 24 * 60), seed=st.integers(0, 50))
def test_no_effect_depends_on_what_came_after_the_cutoff(cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.lognormal(size=24 * 70)
    cutoff = START + cut * HOUR
    found = []
    for later in (values, np.concatenate([values[:cut], rng.lognormal(size=len(values) - cut) * 99])):
        rates = Rates(HOUR, microseconds(START) + np.arange(len(later)) * 3_600_000_000, later)
        span = {"cutoff": cutoff, "start": START, "end": cutoff + 3 * DAY}
        found.append(effects_of(LEARNING, "chat", Metric.TOKENS_IN, rates=rates, **span))
    assert found[0] == found[1]
