"""Offsets, weights and corrections, learned origin by origin."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from floorcast.columns import QUANTILE_LEVELS
from forecasting.mixture.online import SPREADS, Input, Outcome, advance
from forecasting.series import FloatArray

STEP = timedelta(minutes=15)
AT_95 = QUANTILE_LEVELS.index(0.95)


def given_input(points: FloatArray, actual: FloatArray, *, delay: int = 1, usable: list[bool] | None = None) -> Input:
    """One series of about 100 tokens/s: `points` (origins, experts), `actual` (origins,)."""
    known = np.array([usable or [True] * points.shape[1]])
    mean, highest = np.full((len(points), 1), 100.0), np.full((len(points), 1), 1e9)
    direct = np.empty((len(points), 1, 0, len(QUANTILE_LEVELS)))
    return Input(points[:, None], direct, actual[:, None], mean, highest, known, delay, STEP)


def run(points: FloatArray, actual: FloatArray, **more: object) -> Outcome:
    return advance(given_input(points, actual, **more), judged_from=len(points) // 2)  # type: ignore[arg-type]


def _first(given: Input, count: int) -> Input:
    names = ("points", "direct", "actual", "mean", "highest")
    return replace(given, **{name: getattr(given, name)[:count] for name in names})


def test_quantiles_cover_their_share_through_a_change_of_noise() -> None:
    """The noise grows fivefold midway; a margin from all of the past would take days to follow."""
    noise = np.random.default_rng(2).standard_normal(2000) * np.where(np.arange(2000) < 1000, 20.0, 100.0)
    actual = 1000 + noise
    outcome = run(np.full((2000, 1), 1000.0), actual)
    for place, level in enumerate(QUANTILE_LEVELS):
        covered = np.mean(actual[1050:] <= outcome.quantiles[1050:, 0, place])
        assert covered == pytest.approx(level, abs=0.025)


def test_the_better_expert_gets_the_weight_and_loses_it_when_it_turns_worse() -> None:
    rng = np.random.default_rng(3)
    actual = 1000 + 300 * np.sin(np.arange(1200) / 20)
    good, bad = actual + rng.normal(0, 10, 1200), actual + rng.normal(0, 150, 1200)
    swapped = np.where(np.arange(1200)[:, None] < 800, np.stack([good, bad], 1), np.stack([bad, good], 1))
    early = run(swapped[:800], actual[:800]).weights[0].reshape(2, len(SPREADS), -1).sum(axis=1)
    late = run(swapped, actual).weights[0].reshape(2, len(SPREADS), -1).sum(axis=1)
    assert (early[0] > 0.99).all()
    assert (late[1] > 0.9).all()


def test_weights_are_those_of_the_formula_and_an_unusable_expert_has_none() -> None:
    actual = 100 + np.random.default_rng(4).normal(0, 5, 300)
    points = np.stack([np.full(300, 100.0), np.full(300, 103.0), actual], axis=1)
    outcome = run(points, actual, usable=[True, True, False])
    weights = outcome.weights[0].reshape(3, len(SPREADS), -1)
    np.testing.assert_allclose(weights.sum(axis=(0, 1)), 1.0)
    assert (weights[2] == 0).all(), "though it is always right"
    assert (outcome.earned[0].reshape(3, len(SPREADS), -1)[2] == 0).all()


def test_quantiles_of_its_own_earn_an_expert_the_weight_and_are_mended_where_they_are_too_low() -> None:
    """Two experts have the same median, of a noise that is tenfold every seventh origin; one knows when. Told 30 lower
    than they are, its quantiles are lifted by as much as they lack."""
    spread = np.where(np.arange(2000) % 7, 10.0, 100.0)
    actual = 1000 + spread * np.random.default_rng(9).standard_normal(2000)
    normal = np.array([-1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.6449, 1.96, 2.3263])
    known = 1000 + spread[:, None] * normal
    points = np.full((2000, 2), 1000.0)
    blind = run(points[:, :1], actual)
    for lower in (0.0, 30.0):
        own = advance(
            replace(given_input(points, actual), direct=(known - lower)[:, None, None]), judged_from=len(points) // 2
        )
        assert own.weights[0, len(SPREADS) :, AT_95].sum() > 0.8
        assert own.mixture_losses[0, AT_95] < 0.8 * blind.mixture_losses[0, AT_95]
        assert np.mean(actual[1000:] <= own.quantiles[1000:, 0, AT_95]) == pytest.approx(0.95, abs=0.02)


def nightly_job(days: int, spread: float) -> tuple[FloatArray, FloatArray]:
    """On for 16 of 96 steps a day at 1,000 with that noise, silent between: its rate, and 1,000 or 0."""
    level = np.where(np.arange(96 * days) % 96 < 16, 1000.0, 0.0)
    return level + np.where(level > 0, np.random.default_rng(12).normal(0, spread, 96 * days), 0.0), level


def test_quantiles_of_a_nightly_job_are_those_of_the_hours_in_which_it_runs() -> None:
    """Its silence, known ahead, is covered by any quantile at or over 0: counted with it, the lower half of the levels
    would all come to lie at the median of the running job."""
    actual, level = nightly_job(40, spread=100.0)
    outcome = run(level[:, None], actual)
    judged = (level > 0) & (np.arange(len(level)) >= 96 * 10)
    for place, wanted in enumerate(QUANTILE_LEVELS[:3]):
        covered = np.mean(actual[judged] <= outcome.quantiles[judged, 0, place])
        assert covered == pytest.approx(wanted, abs=0.03)


def test_experts_are_not_chosen_by_the_hours_in_which_nothing_comes() -> None:
    """Of two experts with the same points one learns its margins, and the other's own quantiles are twice too wide
    where the job runs, and all 0 in its silence: exactly right, where a margin leaves something."""
    actual, level = nightly_job(20, spread=20.0)
    normal = np.array([-1.2816, -0.6745, 0.0, 0.6745, 1.2816, 1.6449, 1.96, 2.3263])
    own = np.where(level > 0, 1000 + 40 * normal[:, None], 0.0).T
    given = replace(given_input(np.stack([level, level], axis=1), actual), direct=own[:, None, None])
    silent = 96 * 19 + 90  # at the end of 74 silent steps
    assert advance(_first(given, silent), judged_from=silent).weights[0, len(SPREADS) :, AT_95].sum() < 0.5


def test_what_comes_is_learned_only_once_its_window_is_over() -> None:
    """A burst at origin 250, past the warm-up, with a delay of 4: no quantile changes before origin 254."""
    actual = 100 + np.random.default_rng(5).normal(0, 5, 300)
    burst = actual.copy()
    burst[250] = 10_000.0
    calm, shaken = (run(np.full((300, 1), 100.0), each, delay=4).quantiles[:, 0] for each in (actual, burst))
    np.testing.assert_array_equal(calm[:254], shaken[:254])
    assert (shaken[254] > calm[254]).any()


def test_missing_targets_teach_nothing() -> None:
    actual = 100 + np.random.default_rng(6).normal(0, 5, 300)
    gone = actual.copy()
    gone[200:] = np.nan
    outcome = run(np.full((300, 1), 100.0), gone)
    np.testing.assert_allclose(outcome.quantiles[201:], np.broadcast_to(outcome.quantiles[201], (99, 1, 8)))


def test_series_of_a_batch_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(7)
    one, other = (100 + rng.normal(0, spread, 200) for spread in (5, 50))
    alone = [run(np.full((200, 2), 100.0), actual) for actual in (one, other)]
    both = advance(
        Input(
            points=np.full((200, 2, 2), 100.0),
            direct=np.empty((200, 2, 0, len(QUANTILE_LEVELS))),
            actual=np.stack([one, other], axis=1),
            mean=np.full((200, 2), 100.0),
            highest=np.full((200, 2), 1e9),
            usable=np.ones((2, 2), dtype=bool),
            delay=1,
            step=STEP,
        ),
        judged_from=100,
    )
    for place, each in enumerate(alone):
        np.testing.assert_allclose(both.quantiles[:, place], each.quantiles[:, 0])
        np.testing.assert_allclose(both.losses[place], each.losses[0])


def test_losses_are_the_mean_pinball_of_the_judged_origins() -> None:
    actual = 100 + np.random.default_rng(8).normal(0, 5, 200)
    outcome = run(np.full((200, 1), 100.0), actual, delay=2)
    error = actual[100:198, None] - outcome.quantiles[100:198, 0]
    levels = np.array(QUANTILE_LEVELS)
    np.testing.assert_allclose(outcome.mixture_losses[0], np.maximum(levels * error, (levels - 1) * error).mean(axis=0))


@given(
    points=arrays(float, (40, 3), elements=st.floats(0, 1e7)),
    actual=arrays(float, 40, elements=st.one_of(st.floats(0, 1e7), st.just(np.nan), st.just(0.0))),
    delay=st.integers(1, 6),
)
@settings(max_examples=80, deadline=None)
def test_quantiles_are_finite_uncrossed_and_not_negative(points: FloatArray, actual: FloatArray, delay: int) -> None:
    outcome = advance(given_input(points, actual, delay=delay), judged_from=0)
    assert np.isfinite(outcome.quantiles).all()
    assert (outcome.quantiles >= 0).all()
    assert (np.diff(outcome.quantiles, axis=2) >= 0).all()
    np.testing.assert_allclose(outcome.weights.sum(axis=1), 1.0)
