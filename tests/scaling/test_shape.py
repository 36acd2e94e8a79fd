"""Dwell and step-down, against literal readings of their rules."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scaling.shape import descend, hold, stay, whole_multiples

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


def test_a_published_floor_stays_where_the_new_one_is_a_little_lower():
    """5 % of 100 are 5: 95 is near, 94 is not; a higher one always counts, and where nothing was published the new."""
    wanted, published = np.array([95, 94, 101, 7, 0]), np.array([100, 100, 100, 0, 3])
    assert stay(wanted, published=published, hysteresis=0.05).tolist() == [100, 94, 101, 7, 0]
    assert stay(wanted, published=published, hysteresis=0).tolist() == wanted.tolist()


@given(wanted=floors, more=st.integers(0, 5), share=st.floats(0, 0.99), data=st.data())
def test_hysteresis_is_never_below_need_nor_above_what_was_published_and_follows_demand(wanted, more, share, data):
    published = np.array(data.draw(st.lists(st.integers(0, 30), min_size=len(wanted), max_size=len(wanted))))
    kept = stay(wanted, published=published, hysteresis=share)
    assert (kept >= wanted).all()
    assert (kept <= np.maximum(wanted, published)).all()
    assert (kept * (1 - share) <= wanted + 1e-6).all()
    assert (stay(wanted + more, published=published, hysteresis=share) >= kept).all()


def test_a_share_steps_down_with_the_floor_and_by_one_at_least():
    """A tenth of 200 is 20, of 180 18, of 162 16; of 9 it is less than one, which is one."""
    down = {"first_index": 0, "step_down": 0.1, "every_steps": 1}
    assert descend(np.array([0] * 3), before=200, **down).tolist() == [180, 162, 146]
    assert descend(np.array([0] * 3), before=9, **down).tolist() == [8, 7, 6]


def test_a_fall_is_of_whole_multiples():
    """Nodes of 4: one replica at a time gives a node back at a time, and a third of 6 nodes are 2."""
    down = {"first_index": 0, "every_steps": 1, "multiple_of": 4}
    assert descend(np.array([0] * 4), before=24, step_down=1, **down).tolist() == [20, 16, 12, 8]
    assert descend(np.array([0] * 2), before=24, step_down=6, **down).tolist() == [16, 8]
    assert descend(np.array([0] * 2), before=24, step_down=1 / 3, **down).tolist() == [16, 12]
    assert whole_multiples(np.array([0, 1, 4, 5]), 4).tolist() == [0, 4, 4, 8]


@given(
    wanted=floors,
    before=st.integers(0, 30),
    step_down=st.integers(1, 9) | st.floats(0.01, 0.99),
    multiple_of=st.integers(1, 8),
    every_steps=st.integers(1, 3),
)
def test_a_descent_in_multiples_never_stalls_nor_goes_below_need(
    *, wanted, before, step_down, multiple_of, every_steps
):
    held = whole_multiples(np.append(wanted, np.zeros(40 * every_steps, dtype=np.int64)), multiple_of)
    first = int(whole_multiples(before, multiple_of))
    options = {"first_index": 0, "step_down": step_down, "every_steps": every_steps, "multiple_of": multiple_of}
    path = descend(held, before=first, **options)
    assert (path >= held).all()
    assert (path % multiple_of == 0).all()
    assert path[-1] == 0
    more = descend(held + multiple_of, before=first, **options)
    assert (more >= path).all()
