"""Small pasts whose best settings are known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pytest

from floorcast.columns import QUANTILE_LEVELS
from floorcast.errors import DataError
from floorcast.pool import Pool
from scaling.ladder import Grid
from scaling.moves import no_limits
from scaling.replay.conditions import NO_KNEE, Conditions
from scaling.replay.traffic import Stream, Traffic
from scaling.tuning.candidates import settings_of
from scaling.tuning.floors import at_level, past_floors, plain_minimums
from scaling.tuning.outcomes import Past, outcomes
from scaling.tuning.search import search
from scaling.tuning.tune import tune

START, STEP = datetime(2026, 11, 2, tzinfo=UTC), timedelta(minutes=10)
DAYS, DAY = 6, 144
AHEAD = 3
END = START + timedelta(days=DAYS)
LEVELS = np.array(QUANTILE_LEVELS)


def pool_of(**changed: object) -> Pool:
    spec = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 1, "decode_tokens_per_s": 1},
        "startup": {"p90": "20m"},
        "bounds": {"min": 1, "max": 100},
        "shape": {"step_down": 100, "every": "10m", "dwell": "0s", "hysteresis": 0},
        "slo": {"max_wait": "60s", "on_time": 0.99},
    }
    return Pool.model_validate(spec | changed)


def past_of(load: npt.NDArray[np.float64], ahead: npt.NDArray[np.float64], **changed: object) -> Past:
    """`load` [steps] replicas at full use; `ahead` [steps] the median forecast of the lead window, its other quantiles
    up to a tenth above it."""
    work = load * STEP.total_seconds()
    rates = np.repeat((ahead[:, None] * (1 + 0.2 * np.maximum(LEVELS - 0.5, 0)))[None], 2, axis=0)
    return Past(
        pool=pool_of(**changed),
        traffic=Traffic(START, STEP.total_seconds(), (Stream("chat", work, work, work, 60.0),)),
        conditions=Conditions(
            startup_s=np.array([1200.0]), knee=NO_KNEE, metric_age_s=(0.0, 0.0), tick_s=STEP.total_seconds()
        ),
        grid=Grid(START, STEP, len(load)),
        rates=rates,
        mean_rates=rates,
        limits=no_limits(len(load)),
        load=load,
    )


def waves() -> npt.NDArray[np.float64]:
    """Every four hours from 5 to 30 replicas and back, within one step."""
    return np.where(np.arange(DAYS * DAY) // 24 % 2 == 0, 5.0, 30.0)


def seen(load: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The greatest of the lead window."""
    return np.lib.stride_tricks.sliding_window_view(np.pad(load, (0, AHEAD - 1), mode="edge"), AHEAD).max(axis=1)


def test_floors_that_see_jumps_coming_open_the_gate() -> None:
    """A jump of 25 replicas waits 20 minutes for them, with what comes meanwhile: about a tenth of the tokens are late
    unless the troughs run at a sixth of their capacity. Floors of 30, asked for 20 minutes ahead, serve it in time."""
    load = waves()
    found = tune(past_of(load, seen(load)), name="main", now=END, rng=np.random.default_rng(0))
    assert (found.pool, found.as_of, found.days, found.gate) == ("main", END, 3, "open")
    assert found.floors.on_time.value >= 0.99
    assert found.floors.settings.quantile is not None
    assert found.floors.over_clairvoyant is not None
    assert 1 <= found.floors.over_clairvoyant.value < 1.5
    assert found.settings == found.floors.settings


def test_forecasts_of_nothing_close_it() -> None:
    """A load that never changes, and forecasts of one to four times of it: the overlay alone goes down to
    12 replicas, 288 replica-hours a day, since with 11 the last tenth of them would be used, which hysteresis keeps."""
    load = np.full(DAYS * DAY, 10.0)
    rng = np.random.default_rng(1)
    found = tune(past_of(load, load * rng.uniform(1, 4, len(load))), name="main", now=END, rng=rng)
    assert found.gate == "closed"
    assert found.overlay_alone.gpu_hours_per_day.value == 288
    assert found.floors.gpu_hours_per_day.value > 1.2 * 288
    assert found.settings == found.overlay_alone.settings
    assert found.now.settings == settings_of(pool_of(), floors=True)


def test_insurance_is_not_given_up_for_a_replay() -> None:
    load = np.full(DAYS * DAY, 10.0)
    found = tune(past_of(load, load, margin={"zones": 2}), name="main", now=END, rng=np.random.default_rng(0))
    assert found.gate == "untested"
    assert found.why.startswith("margin.zones insures against what no replay shows; floors cost")


def test_the_last_day_changes_no_choice_for_the_judged_days() -> None:
    """Three times the load on the last day, and other forecasts: what is chosen for it is chosen before it."""
    load = waves() * np.repeat(np.random.default_rng(3).uniform(0.8, 1.2, DAYS * DAY // 24), 24)
    other = np.concatenate([load[:-DAY], 3 * load[-DAY:][::-1]])
    forecast = seen(load)
    chosen, judged = [], []
    for one in (load, other):
        past = past_of(one, np.concatenate([forecast[:-DAY], seen(one)[-DAY:]]))
        found = search(lambda some, past=past: outcomes(past, some), past.pool, days=DAYS, judged=3, promise=0.99)
        chosen.append((found.floors.chosen, found.overlay_alone.chosen))
        judged.append(found.floors.outcome.gpu_hours)
    assert chosen[0] == chosen[1]
    np.testing.assert_array_equal(judged[0][:-1], judged[1][:-1])
    assert judged[0][-1] != judged[1][-1]


def test_a_day_costs_its_replicas() -> None:
    """Bounds of 7 to 7: 7 x 24 = 168 replica-hours a day, of 2 GPUs each 336; a load of 5 in and out is on time."""
    none = np.zeros(2 * DAY)
    past = past_of(none + 5, none, bounds={"min": 7, "max": 7}, gpu={"type": "H100", "per_replica": 2})
    (found,) = outcomes(past, [settings_of(past.pool, floors=True)])
    np.testing.assert_allclose(found.gpu_hours, [336, 336])
    np.testing.assert_allclose(found.settled, 2 * 5 * 86400)
    np.testing.assert_allclose(found.on_time, found.settled)


def test_a_past_of_a_day_is_not_tuned_on() -> None:
    past = past_of(np.ones(DAY), np.ones(DAY))
    with pytest.raises(DataError, match="1 whole days are too few"):
        tune(past, name="main", now=END, rng=np.random.default_rng(0))


def test_floors_of_the_past_by_hand() -> None:
    """Medians 6, 9, 3, unknown, 3 at U 0.75 and a margin of 10 %: 8 x 1.1 = 8.8, 12 x 1.1 = 13.2, 4 x 1.1 = 4.4, so 9,
    14, 5, and unknown stays 5. Down by 2 at most: 9, 14, 12, 10, 8. With bounds to 13 and a minimum of 11 in the last:
    9, 13, 11, 9, 11."""
    past = past_of(np.ones(5), np.array([6.0, 9.0, 3.0, np.nan, 3.0]))
    none = no_limits(5)
    minimums = replace(none, minimums=np.array([0, 0, 0, 0, 11]))
    wide, narrow = (
        pool_of(
            margin={"quantile": 0.5, "minimum": 0.1},
            bounds={"min": 2, "max": most},
            shape={"step_down": 2, "every": "10m", "dwell": "0s", "hysteresis": 0},
        )
        for most in (100, 13)
    )
    assert past_floors(wide, past.rates, past.grid, none).tolist() == [9, 14, 12, 10, 8]
    assert past_floors(narrow, past.rates, past.grid, minimums).tolist() == [9, 13, 11, 9, 11]
    assert plain_minimums(narrow, past.rates, past.grid, minimums).tolist() == [2, 2, 2, 2, 11]
    unknown = np.full((2, 5, len(LEVELS)), np.nan)
    assert past_floors(narrow, unknown, past.grid, none).tolist() == [13] * 5, "fallback_replicas, else bounds.max"


def test_floors_are_of_the_busiest_minutes_or_of_the_means() -> None:
    """Medians 6 and, of the busiest minutes, twice that, at U 0.75: 8 and 16."""
    past = past_of(np.ones(3), np.full(3, 6.0))
    past = replace(past, rates=2 * past.rates)
    means, peaks = (
        pool_of(margin={"quantile": 0.5, "minimum": 0, "peak": peak}, shape={"dwell": "0s"}) for peak in (False, True)
    )
    assert past.floors(means).tolist() == [8, 8, 8]
    assert past.floors(peaks).tolist() == [16, 16, 16]


def test_idle_pools_of_the_past_have_none() -> None:
    """2 tokens in and 2 out are not under 3; 2 / 0.75 = 2.67 is 3 replicas, or with plain minimums one."""
    pool = pool_of(
        bounds={"min": 0, "max": 9},
        scale_to_zero={"wake_up": "1m", "below_tokens_per_s": 3},
        margin={"quantile": 0.5, "minimum": 0},
    )
    past = past_of(np.ones(3), np.array([1.0, 2.0, 1.0]))
    assert past_floors(pool, past.rates, past.grid, no_limits(3)).tolist() == [0, 3, 0]
    assert plain_minimums(pool, past.rates, past.grid, no_limits(3)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("level", [0.5, 0.6, 0.9, 0.97, 0.99])
def test_levels_are_read_between_the_stored_ones(level: float) -> None:
    rates = np.sort(np.random.default_rng(0).random((2, 4, len(LEVELS))))
    expected = [[np.interp(level, LEVELS, row) for row in metric] for metric in rates]
    np.testing.assert_allclose(at_level(rates, level), expected)
