"""A floor published as a metric, against the algorithm of the HorizontalPodAutoscaler."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.publishers.tolerance import through_tolerance

REPLICAS = st.integers(1, 500)
TOLERANCES = st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.5])


def autoscaler(value: int, current: int, tolerance: float) -> int:
    """What the autoscaler makes of an average value of a metric with target 1, as in GetExternalPerPodMetricReplicas:
    in thousandths, compared in floats, the same as `1 - tolerance <= ratio <= 1 + tolerance`."""
    usage, target = value * 1000, 1000
    ratio = usage / (target * current)
    if 1.0 - tolerance <= ratio <= 1.0 + tolerance:
        return current
    return math.ceil(usage / target)


@given(floor=REPLICAS, current=REPLICAS, tolerance=TOLERANCES)
def test_no_replica_count_is_left_under_the_floor(floor: int, current: int, tolerance: float) -> None:
    assert autoscaler(through_tolerance(floor, tolerance), current, tolerance) >= floor


def test_no_replica_count_is_left_under_any_floor_up_to_500() -> None:
    for floor in range(1, 501):
        value = through_tolerance(floor)
        assert min(autoscaler(value, current, 0.1) for current in range(1, 501)) >= floor


@given(floor=REPLICAS, tolerance=TOLERANCES)
def test_one_less_would_leave_some_count_under_the_floor(floor: int, tolerance: float) -> None:
    value = through_tolerance(floor, tolerance) - 1
    if value > 0:
        assert min(autoscaler(value, current, tolerance) for current in range(1, 501)) < floor


@given(floor=REPLICAS)
def test_a_fleet_grows_past_the_floor_by_a_tenth_at_most(floor: int) -> None:
    assert floor <= through_tolerance(floor) <= max(floor, 1.1 * floor)


@pytest.mark.parametrize(("floor", "current"), [(21, 20), (51, 50), (54, 50), (55, 50)])
def test_the_bare_floor_would_be_ignored(floor: int, current: int) -> None:
    """21 / 20 = 1.05, 54 / 50 = 1.08 and 55 / 50 = 1.1 are inside the tolerance."""
    assert autoscaler(floor, current, 0.1) == current < floor
    assert autoscaler(through_tolerance(floor), current, 0.1) >= floor


def test_by_hand() -> None:
    """1.1 x 10 = 11.0 is inside: 12. 1.1 x 20 = 22.0: 23. 1.1 x 30 = 33.0: 34. 1.1 x 9 = 9.9 < 10: the floor itself."""
    assert [through_tolerance(floor) for floor in (0, 1, 2, 10, 11, 21, 31)] == [0, 1, 2, 10, 12, 23, 34]
