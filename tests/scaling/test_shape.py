"""Dwell and step-down, against literal readings of their rules."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scaling.shape import descend, hold

floors = st.lists(st.integers(0, 30), min_size=1, max_size=40).map(np.array)


def _shape(wanted, *, published=None, first_index=0, dwell_steps=1, step_down=1, every_steps=1):
    published = np.zeros(len(wanted) + 1, dtype=np.int64) if published is None else published
    held = hold(wanted, published=published, dwell_steps=dwell_steps)
    return descend(
        held, before=int(published[0]), first_index=first_index, step_down=step_down, every_steps=every_steps
    )


def test_dwell_holds_a_rise_for_its_windows():
    assert hold(np.array([1, 5, 1, 1, 1]), published=np.zeros(6, int), dwell_steps=3).tolist() == [1, 5, 5, 5, 1]


def test_dwell_keeps_what_was_published_for_the_windows_it_lasts_and_no_longer():
    published = np.array([9, 9, 8, 7, 6])
    assert hold(np.array([1, 1, 1, 1]), published=published, dwell_steps=3).tolist() == [9, 8, 1, 1]
    assert hold(np.array([1, 1, 1, 1]), published=published, dwell_steps=1).tolist() == [1, 1, 1, 1]


def test_it_steps_down_from_the_floor_in_force_at_the_marks_of_the_grid():
    """Two replicas every three windows; windows 3 and 6 from the epoch are marks."""
    got = descend(np.array([0] * 6), before=7, first_index=2, step_down=2, every_steps=3)
    assert got.tolist() == [7, 5, 5, 5, 3, 3]


def test_a_rise_is_never_delayed():
    assert _shape(np.array([1, 20, 3]), step_down=5).tolist() == [1, 20, 15]


@given(
    wanted=floors,
    first_index=st.integers(0, 50),
    dwell_steps=st.integers(1, 6),
    step_down=st.integers(1, 4),
    every_steps=st.integers(1, 6),
    before=st.integers(0, 30),
    data=st.data(),
)
def test_shaping_equals_its_rule_written_as_a_loop_and_keeps_its_limits(
    *, wanted, first_index, dwell_steps, step_down, every_steps, before, data
):
    published = np.array([before, *data.draw(st.lists(st.integers(0, 30), min_size=len(wanted), max_size=len(wanted)))])
    options = {"dwell_steps": dwell_steps, "step_down": step_down, "every_steps": every_steps}
    got = _shape(wanted, published=published, first_index=first_index, **options)

    expected, floor = [], before
    for i in range(len(wanted)):
        held = max(wanted[max(0, i - dwell_steps + 1) : i + 1])
        if i + 1 < dwell_steps:
            held = max(held, published[i + 1])
        floor = max(held, floor - (step_down if (first_index + i) % every_steps == 0 else 0))
        expected.append(floor)
    assert got.tolist() == expected

    path = np.array([before, *got])
    assert (got >= wanted).all()
    assert got.max() <= max(wanted.max(), published.max())
    assert (path[:-every_steps] - path[every_steps:] <= step_down).all()
    rises = np.nonzero(np.diff(path) > 0)[0]
    assert all(got[rise : rise + dwell_steps].min() >= got[rise] for rise in rises if wanted[rise] == got[rise])

    more = wanted + np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(wanted), max_size=len(wanted))))
    assert (_shape(more, published=published, first_index=first_index, **options) >= got).all()


@given(
    wanted=st.lists(st.integers(0, 20), min_size=12, max_size=30),
    dwell_steps=st.integers(1, 5),
    step_down=st.integers(1, 3),
    every_steps=st.integers(1, 4),
)
def test_publications_one_after_another_keep_dwell_and_step_down_and_do_come_down(
    wanted, dwell_steps, step_down, every_steps
):
    """Each publication sees only the one before it, and forecasts that demand stays as it is now."""
    windows, options = 8, {"dwell_steps": dwell_steps, "step_down": step_down, "every_steps": every_steps}
    published, in_force = np.zeros(windows + 1, dtype=np.int64), []
    for index, level in enumerate([*wanted, *[0] * 200]):
        floors = _shape(np.full(windows, level), published=published, first_index=index, **options)
        in_force.append(int(floors[0]))
        published = np.array([*floors, 0])
    path = np.array(in_force)
    assert (path[:-every_steps] - path[every_steps:] <= step_down).all()
    for rise in np.nonzero(np.diff(path) > 0)[0] + 1:
        assert path[rise : rise + dwell_steps].min() >= path[rise]
    assert path[-1] == 0
