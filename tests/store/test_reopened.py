"""Which stored steps a frame is about to change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND, REOPENED
from store.connection import open_store
from store.demand import demand_extent, upsert_demand
from store.reopened import read_reopened, record_reopened

T0, STEP = datetime(2026, 11, 1, tzinfo=UTC), timedelta(minutes=5)


def frame(*rows, source="prod"):
    """Rows of (step, tokens_in) or (step, tokens_in, observed_fraction) of chat."""
    made = [
        {
            "workload_class": "chat",
            "step_start": T0 + row[0] * STEP,
            "tokens_in": float(row[1]),
            "tokens_out": 7.0,
            "requests": 1.0,
            "peak_tokens_in_per_s": None,
            "peak_tokens_out_per_s": None,
            "observed_fraction": row[2] if len(row) > 2 else 1.0,
            "source": source,
        }
        for row in rows
    ]
    return pl.DataFrame(made, schema=dict(DEMAND))


def record(store, stop, *rows, start=0, extent=None, replaces):
    """Of rows of "prod" that are all it has from a step to before another, where `extent` is not given as it is now."""
    return record_reopened(
        store,
        "prod",
        start=T0 + start * STEP,
        end=T0 + stop * STEP,
        frame=frame(*rows),
        extent=demand_extent(store, "prod") if extent is None else extent,
        replaces=replaces,
    )


STORED = [(2, 100), (3, 100), (5, 0), (6, 100)]
CASES = {
    "the same": (STORED, set(), set()),
    "other tokens": ([(2, 100), (3, 101), (5, 0), (6, 100)], {3}, {3}),
    "a sum in another order": ([(2, 100 + 1e-9), (3, 100), (5, 0), (6, 100)], set(), set()),
    "a zero that is none": ([(2, 100), (3, 100), (5, 1e-3), (6, 100)], {5}, {5}),
    "less of it observed": ([(2, 100, 0.5), (3, 100), (5, 0), (6, 100)], {2}, {2}),
    "a gap that is filled": ([*STORED, (4, 1)], {4}, {4}),
    "what came before and after": ([(1, 1), *STORED, (7, 1)], set(), set()),
    "what is gone": ([(2, 100), (6, 100)], set(), {3, 5}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("replaces", [False, True])
def test_a_step_is_reopened_where_what_is_stored_of_it_changes(case, replaces, tmp_path):
    rows, upserted, replaced = CASES[case]
    expected = replaced if replaces else upserted
    with open_store(tmp_path / "store.db") as store:
        upsert_demand(store, frame(*STORED))
        upsert_demand(store, frame((20, 5), source="other"))
        changed = record(store, 10, *rows, replaces=replaces)
        found = read_reopened(store)
    assert found.schema == dict(REOPENED)
    assert {(start - T0) // STEP for start in found["step_start"]} == expected
    assert changed == len(expected)
    assert set(found["source"]) <= {"prod"}


def test_a_step_that_changes_again_is_kept_once_with_the_later_time(tmp_path):
    times = []
    for tokens in (200, 300):
        with open_store(tmp_path / "store.db") as store:
            if tokens == 200:
                upsert_demand(store, frame(*STORED))
            record(store, 4, (3, tokens), replaces=False)
            upsert_demand(store, frame((3, tokens)))
            [one] = read_reopened(store)["reopened_at"]
        times.append(one)
    assert times[0] < times[1]


def test_an_empty_frame_reopens_what_its_interval_held(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        upsert_demand(store, frame(*STORED))
        assert record(store, 4, replaces=True) == 2


@pytest.mark.parametrize("replaces", [False, True])
def test_an_older_history_that_is_stored_piece_by_piece_reopens_nothing(replaces, tmp_path):
    """Once its first piece is stored, the rest lies between the class's first and last steps."""
    with open_store(tmp_path / "store.db") as store:
        upsert_demand(store, frame((12, 100), (14, 100)))
        extent = demand_extent(store, "prod")
        for steps in (range(4), range(4, 8), range(8, 12)):
            rows = [(step, 100) for step in steps]
            assert record(store, steps.stop, *rows, start=steps.start, extent=extent, replaces=replaces) == 0
            upsert_demand(store, frame(*rows))
        assert record(store, 14, (13, 100), start=13, extent=extent, replaces=False) == 1, "a gap is one still"
