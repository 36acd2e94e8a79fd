"""Floors within a startup and minimum uptime."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from scaling.overlay.ahead import floors_ahead


def test_the_highest_floor_within_startup_and_minimum_uptime(pool):
    """4 min + 6 min from any time in a window of 5 min: that window and the two after it. The last floor holds on."""
    spec = pool(min_uptime="6m")
    assert floors_ahead([4, 2, 2, 9, 2, 3], window_s=300, pool=spec).tolist() == [4, 9, 9, 9, 3, 3]


@profile(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    floors=st.lists(st.lists(st.integers(0, 50), min_size=2, max_size=2), min_size=1, max_size=40),
    window_s=st.sampled_from([60, 300, 3600]),
)
def test_as_in_loops_over_windows_and_lanes(pool, floors, window_s):
    spec = pool(min_uptime="10m")
    found = floors_ahead(floors, window_s=window_s, pool=spec)
    reach = -(-int(timedelta(minutes=14).total_seconds()) // window_s)
    expected = [[max(row[lane] for row in floors[w : w + reach + 1]) for lane in range(2)] for w in range(len(floors))]
    assert np.array_equal(found, expected)
