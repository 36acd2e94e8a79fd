"""Floors must be cheaper beyond noise, or keep a promise that the overlay alone does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from floorcast.pool import Pool
from scaling.tuning.candidates import coarse
from scaling.tuning.gate import draw_days, expect, not_told, pays, verdict
from scaling.tuning.outcomes import Outcome

DAYS = 7
POOL = {
    "gpu": {"type": "H100"},
    "capacity": {"prefill_tokens_per_s": 1, "decode_tokens_per_s": 1},
    "startup": {"p90": "5m"},
    "bounds": {"min": 1, "max": 100},
}


def days(hours: float | Sequence[float], share: float | Sequence[float] = 1.0) -> Outcome:
    return Outcome(
        np.broadcast_to(hours, DAYS).astype(float),
        np.broadcast_to(100 * np.asarray(share), DAYS).astype(float),
        np.full(DAYS, 100.0),
    )


@pytest.fixture
def drawn() -> np.ndarray:
    return draw_days(DAYS, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("floors", "alone", "gate"),
    [
        pytest.param(days(90), days(100), "open", id="a tenth cheaper on every day"),
        pytest.param(days(98), days(100), "open", id="just what pays"),
        pytest.param(days(99), days(100), "closed", id="surely cheaper and not worth it"),
        pytest.param(days(110), days(100), "closed", id="dearer"),
        pytest.param(
            days([20, 20, 20, 20, 190, 190, 190]),
            days(100),
            "closed",
            id="650 for 700 in sum, and dearer on three days of seven: other such weeks could be dearer",
        ),
        pytest.param(days(150, 0.995), days(100, 0.95), "open", id="keeps what the overlay alone does not"),
        pytest.param(days(50, 0.95), days(100, 0.995), "closed", id="cheap and late"),
        pytest.param(days(100, 0.95), days(100, 0.90), "open", id="neither keeps it, floors come nearer"),
        pytest.param(days(100, 0.90), days(90, 0.95), "closed", id="neither keeps it, floors come less near"),
        pytest.param(
            days(130),
            days(100, [1, 1, 1, 1, 1, 1, 0.9]),
            "closed",
            id="98.6 percent for one day of seven, which other weeks would not have",
        ),
    ],
)
def test_the_gate(floors: Outcome, alone: Outcome, gate: str, drawn: np.ndarray) -> None:
    assert verdict(floors, alone, drawn, promise=0.99).gate == gate


def test_floors_pay_where_other_days_would_hardly_make_them_dearer() -> None:
    """Of eleven draws the tenth decides: 1.02 is borne there, 1.03 is not, and the last one may be anything."""
    assert pays(0.98, np.array([0.9] * 9 + [1.02, np.inf]))
    assert not pays(0.98, np.array([0.9] * 9 + [1.03, 1.03]))
    assert not pays(0.99, np.full(11, 0.99))


def test_the_reason_has_the_figures(drawn: np.ndarray) -> None:
    found = verdict(days(90), days(100), drawn, promise=0.99)
    assert found.why == "floors cost 0.900 times the overlay alone (0.900 to 0.900)"
    found = verdict(days(90, 0.9), days(100), drawn, promise=0.99)
    assert found.why == "with floors 90.00% are on time, the overlay alone keeps 99%: 100.00%"


def test_few_days_tell_nothing() -> None:
    two = Outcome(np.ones(2), np.ones(2), np.ones(2))
    assert verdict(two, two, draw_days(2, np.random.default_rng(0)), promise=0.99).gate == "untested"


def test_intervals_are_those_of_drawn_days(drawn: np.ndarray) -> None:
    """Six days of 10 GPU-hours and one of 24: 84 in seven, 12 a day. A draw has the last day k times with binomial
    probability (7, 1/7): none 0.34, at most two 0.93, at most three 0.99. So from 10 to (4 x 10 + 3 x 24) / 7 = 16."""
    settings = coarse(Pool.model_validate(POOL), floors=True)[0]
    found = expect(settings, days([10] * 6 + [24]), np.full(DAYS, 10.0), drawn)
    assert found.gpu_hours_per_day.value == 12
    assert found.gpu_hours_per_day.low == 10
    assert found.gpu_hours_per_day.high == pytest.approx(16)
    assert found.over_clairvoyant is not None
    assert (found.over_clairvoyant.value, found.over_clairvoyant.low) == pytest.approx((1.2, 1.0))
    assert (found.on_time.value, found.on_time.low, found.on_time.high) == (1, 1, 1)
    assert expect(settings, days(10), None, drawn).over_clairvoyant is None


@pytest.mark.parametrize(
    ("margin", "said"),
    [
        ({}, ""),
        ({"zones": 3}, "margin.zones insures against what no replay shows"),
        ({"rollout_unavailable": 1}, "margin.rollout_unavailable insures against what no replay shows"),
        ({"takes_over": {"other": 0.5}}, "margin.takes_over insures against what no replay shows"),
    ],
)
def test_a_replay_cannot_tell_of_insurance(margin: dict[str, object], said: str) -> None:
    assert not_told(Pool.model_validate(POOL | {"margin": margin})) == said
