"""Which stored steps a frame is about to change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import DEMAND, REOPENED
from store.connection import open_store
from store.demand import upsert_demand
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
        changed = record_reopened(store, "prod", start=T0, end=T0 + 10 * STEP, frame=frame(*rows), replaces=replaces)
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
            record_reopened(store, "prod", start=T0, end=T0 + 4 * STEP, frame=frame((3, tokens)), replaces=False)
            upsert_demand(store, frame((3, tokens)))
            [one] = read_reopened(store)["reopened_at"]
        times.append(one)
    assert times[0] < times[1]


def test_an_empty_frame_reopens_what_its_interval_held(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        upsert_demand(store, frame(*STORED))
        assert record_reopened(store, "prod", start=T0, end=T0 + 4 * STEP, frame=frame(), replaces=True) == 2
