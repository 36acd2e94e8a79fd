"""The cutoff guard."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from floorcast.errors import LeakageError
from forecasting.series import FloatArray, Series

Make = Callable[[FloatArray], Series]
START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=15)


def test_a_view_holds_nothing_from_its_cutoff_on(make_series: Make) -> None:
    series = make_series(np.arange(10.0))
    view = series.view(START + 4 * STEP)
    assert view.values.tolist() == [0, 1, 2, 3]
    assert view.values.base is None, "a slice of the whole series would still reach the future"
    assert view.cutoff == START + 4 * STEP


def test_asking_a_view_past_its_cutoff_raises(make_series: Make) -> None:
    view = make_series(np.arange(10.0)).view(START + 4 * STEP)
    assert view.between(START + STEP, view.cutoff).tolist() == [1, 2, 3]
    with pytest.raises(LeakageError, match="past the cutoff"):
        view.between(START, view.cutoff + STEP)
    with pytest.raises(LeakageError):
        view.first(5)


def test_a_view_cannot_be_written_to(make_series: Make) -> None:
    view = make_series(np.arange(4.0)).view(START + 4 * STEP)
    with pytest.raises(ValueError, match="read-only"):
        view.values[0] = 1.0


def test_a_cutoff_after_the_end_is_refused(make_series: Make) -> None:
    with pytest.raises(LeakageError, match="before the cutoff"):
        make_series(np.arange(4.0)).view(START + 5 * STEP)


def test_a_tail_keeps_its_place_in_time(make_series: Make) -> None:
    view = make_series(np.arange(10.0)).view(START + 10 * STEP).tail(3)
    assert (view.start, view.cutoff) == (START + 7 * STEP, START + 10 * STEP)
    assert view.first_index == (START + 7 * STEP).timestamp() / STEP.total_seconds()
