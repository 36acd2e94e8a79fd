"""What a reason cannot claim: each number is derived anew."""

from __future__ import annotations

import pytest

from floorcast.columns import DEMAND, empty
from floorcast.errors import FloorcastError
from floorcast.types import Adjustment, Reason
from scaling.floors import plan
from scaling.recompute import recompute


@pytest.mark.parametrize(
    ("rule", "after", "derived"),
    [
        ("step_down", 97, "10 or 20, and not 3"),
        ("step_down", 19, "10 or 20, and not 3"),
        ("hysteresis", 4, "recomputed 3"),
        ("already_published", 30, "3 or 12, and not 3"),
        ("dwell", 4, "recomputed 3"),
    ],
)
def test_a_made_up_move_of_a_shape_rule_is_refused(make_config, make_forecasts, now, rule, after, derived):
    """Demand asks for 3. 12 was published for the window, which is too far for a hysteresis of 5 %; the window before
    has 20, from which a floor falls by 10 or, between two marks, not at all; and there is no dwell."""
    config = make_config(shape={"step_down": 10, "every": "10m", "dwell": "0s", "hysteresis": 0.05})
    floors = plan(
        config, now=now, forecasts=make_forecasts({"chat": [30.0] * 14}), history=empty(DEMAND), published=None
    ).floors
    reason, pool = Reason.model_validate_json(floors["reason"][0]), config.pools["main"]
    assert recompute(reason, pool) == 3

    def forged(*moves: Adjustment) -> Reason:
        return reason.model_copy(update={"adjustments": moves, "published_replicas": 12, "previous_replicas": 20})

    assert recompute(forged(Adjustment(rule="step_down", before=3, after=10)), pool) == 10
    with pytest.raises(FloorcastError, match=derived):
        recompute(forged(Adjustment(rule=rule, before=3, after=after)), pool)


def test_a_reason_says_what_its_floor_fell_from(make_config, make_forecasts, make_schedule, now):
    """20 published for the step before, 12 for the first window: 3 are needed, and 10 at a time may go."""
    config = make_config(shape={"step_down": 10, "every": "5m", "dwell": "0s", "hysteresis": 0})
    published = make_schedule([20, 12, 11], start=now.replace(minute=45))
    floors = plan(
        config, now=now, forecasts=make_forecasts({"chat": [30.0] * 14}), history=empty(DEMAND), published=published
    ).floors
    found = [Reason.model_validate_json(text) for text in floors["reason"]]
    assert floors["min_replicas"].to_list()[:3] == [10, 3, 3]
    assert [one.published_replicas for one in found][:3] == [12, 11, 0]
    assert [one.previous_replicas for one in found][:3] == [20, 10, 3]
