"""Demand: round trips against a dictionary, filters, and what is refused."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import DEMAND, empty
from floorcast.errors import DataError
from store.connection import Store
from store.demand import demand_extent, read_demand, replace_demand, upsert_demand

STEP = timedelta(minutes=5)
NAMES = st.one_of(st.sampled_from(["chat", "agent"]), st.text(st.characters(codec="utf-8"), max_size=4))
NUMBERS = st.floats(min_value=0, allow_infinity=False)


def batches(t0: datetime) -> st.SearchStrategy[list[list[tuple]]]:
    row = st.tuples(
        NAMES,
        st.integers(0, 5).map(lambda n: t0 + n * STEP),
        NUMBERS,
        NUMBERS,
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.floats(min_value=0, max_value=1, exclude_min=True),
        NAMES,
    )
    return st.lists(st.lists(row, max_size=8, unique_by=lambda row: row[:2]), max_size=4)


def test_store_holds_the_last_row_of_every_key(store: Store, t0: datetime) -> None:
    """Any sequence of upserts, each done twice, reads back as the dictionary it amounts to, sorted and filtered."""

    @settings(max_examples=40, deadline=None)
    @given(
        batches(t0),
        st.none() | st.integers(-1, 6),
        st.none() | st.integers(-1, 6),
        st.none() | st.sets(st.sampled_from(["chat", "agent", "absent"])),
    )
    def check(written: list[list[tuple]], first: int | None, last: int | None, classes: set[str] | None) -> None:
        store.execute("DELETE FROM demand")
        expected: dict[tuple, tuple] = {}
        for batch in written:
            frame = pl.DataFrame(batch, schema=dict(DEMAND), orient="row")
            assert upsert_demand(store, frame) == upsert_demand(store, frame) == len(batch)
            expected |= {row[:2]: row for row in batch}
        start = None if first is None else t0 + first * STEP
        end = None if last is None else t0 + last * STEP
        kept = [
            row
            for key, row in sorted(expected.items())
            if (start is None or key[1] >= start)
            and (end is None or key[1] < end)
            and (classes is None or key[0] in classes)
        ]
        back = read_demand(store, start=start, end=end, classes=classes)
        assert back.schema == dict(DEMAND)
        assert back.rows() == kept

    check()


def test_replacing_an_interval_is_what_it_is_on_a_dictionary(store: Store, t0: datetime) -> None:
    """Of one source, in [start, end), and nothing else; done twice it is as done once."""
    places = st.integers(0, 8)
    keys = st.tuples(st.sampled_from(["chat", "agent", "batch"]), places)
    sources = st.sampled_from(["prod", "backup"])
    edits = st.tuples(sources, places, places, st.dictionaries(keys, st.integers(0, 9), max_size=8))

    @settings(max_examples=60, deadline=None)
    @given(st.dictionaries(keys, st.tuples(sources, st.integers(10, 19))), st.lists(edits, max_size=4))
    def check(before: dict, edits: list) -> None:
        def frame(rows: dict) -> pl.DataFrame:
            values = [
                (name, t0 + n * STEP, tokens, tokens, None, None, None, 1.0, source)
                for (name, n), (source, tokens) in rows.items()
            ]
            return pl.DataFrame(values, schema=dict(DEMAND), orient="row")

        store.execute("DELETE FROM demand")
        upsert_demand(store, frame(before))
        expected = dict(before)
        for source, start, end, drawn in edits:
            rows = {key: (source, tokens) for key, tokens in drawn.items() if start <= key[1] < end}
            expected = {k: v for k, v in expected.items() if not (v[0] == source and start <= k[1] < end)} | rows
            for _ in "12":
                written = replace_demand(store, source, start=t0 + start * STEP, end=t0 + end * STEP, frame=frame(rows))
                assert written == len(rows)
        assert read_demand(store).equals(frame(dict(sorted(expected.items()))))

    check()


@pytest.mark.parametrize(
    "fault",
    [{"step_start": datetime.fromisoformat("2026-11-02T00:10:00Z")}, {"source": "backup"}, {"tokens_in": -1.0}],
    ids=["at the end", "of another source", "negative"],
)
def test_a_row_that_does_not_belong_is_refused_and_what_was_there_stays(
    store: Store, demand, t0: datetime, fault: dict
) -> None:
    before = demand({}, {"step_start": t0 + STEP})
    upsert_demand(store, before)
    with pytest.raises(DataError, match="1 of 2 rows"):
        replace_demand(store, "prod", start=t0, end=t0 + 2 * STEP, frame=demand({"workload_class": "agent"}, fault))
    assert read_demand(store).equals(before)


def test_end_is_excluded_and_start_included(store: Store, demand, t0: datetime) -> None:
    upsert_demand(store, demand(*({"step_start": t0 + n * STEP} for n in range(4))))
    back = read_demand(store, start=t0 + STEP, end=t0 + 3 * STEP)
    assert back["step_start"].to_list() == [t0 + STEP, t0 + 2 * STEP]


def test_no_class_named_is_no_row(store: Store, demand) -> None:
    upsert_demand(store, demand({}))
    assert read_demand(store, classes=[]).height == 0


def test_extent_by_class(store: Store, demand, t0: datetime) -> None:
    assert demand_extent(store).rows() == []
    rows = [{"step_start": t0 + n * STEP} for n in (0, 7)]
    upsert_demand(store, demand(*rows, {"workload_class": "agent"}))
    extent = demand_extent(store)
    assert extent.columns == ["workload_class", "first_step", "last_step", "steps"]
    assert extent.rows() == [("agent", t0, t0, 1), ("chat", t0, t0 + 7 * STEP, 2)]


def test_frame_is_conformed(store: Store, demand) -> None:
    """Columns in another order, one too many, whole numbers and a categorical class are all right."""
    frame = demand({}).select(
        pl.lit("x").alias("note"),
        pl.col("tokens_in").cast(pl.Int32),
        pl.col("workload_class").cast(pl.Categorical),
        pl.exclude("tokens_in", "workload_class"),
    )
    upsert_demand(store, frame)
    assert read_demand(store).equals(demand({}))


def test_empty_frame_writes_nothing(store: Store, demand) -> None:
    upsert_demand(store, demand({}))
    assert upsert_demand(store, empty(DEMAND)) == 0
    assert read_demand(store).height == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"tokens_in": -1.0},
            "tokens_in is negative in 1 of 2 rows, first at workload_class=batch, step_start=2026",
        ),
        ({"tokens_out": math.nan}, "tokens_out is NaN or infinite"),
        ({"tokens_in": math.inf}, "tokens_in is NaN or infinite"),
        ({"peak_tokens_out_per_s": -math.inf}, "peak_tokens_out_per_s is NaN or infinite"),
        ({"tokens_in": None}, "tokens_in is null"),
        ({"workload_class": None}, "workload_class is null"),
        ({"step_start": None}, "step_start is null"),
        ({"observed_fraction": 0.0}, "observed_fraction is outside"),
        ({"observed_fraction": 1.01}, "observed_fraction is outside"),
        ({"workload_class": "chat"}, "the key is repeated in 2 of 2 rows"),
    ],
)
def test_bad_rows_are_refused_and_nothing_is_written(store: Store, demand, fault: dict, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        upsert_demand(store, demand({}, {"workload_class": "batch"} | fault))
    assert caught.value.where == "demand"
    assert caught.value.remedy
    assert read_demand(store).is_empty()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("tokens_in", "source"), "columns missing: tokens_in, source"),
        (lambda frame: pl.DataFrame(), "columns missing: workload_class"),
        (lambda frame: frame.with_columns(tokens_in=pl.lit("many")), "wrong type: .*many"),
        (lambda frame: frame.with_columns(pl.col("step_start").dt.replace_time_zone(None)), "not an aware time"),
        (lambda frame: frame.with_columns(pl.col("step_start").dt.epoch()), "step_start is Int64, not an aware time"),
    ],
    ids=["missing", "no columns", "text for number", "naive time", "number for time"],
)
def test_frame_that_cannot_be_conformed_is_refused(store: Store, demand, change, message: str) -> None:
    with pytest.raises(DataError, match=message):
        upsert_demand(store, change(demand({})))


def test_steps_stay_exact_across_many_rows(store: Store, t0: datetime) -> None:
    """Twenty thousand steps read back gapless, each once."""
    frame = pl.DataFrame({"step_start": [t0 + n * STEP for n in range(20_000)]}).with_columns(
        pl.lit("chat").alias("workload_class"),
        pl.lit("prod").alias("source"),
        *(pl.lit(1.0).alias(name) for name, dtype in DEMAND.items() if dtype.is_float()),
    )
    upsert_demand(store, frame)
    upsert_demand(store, frame.tail(10_000))
    back = read_demand(store)["step_start"].to_list()
    assert len(back) == 20_000
    assert all(later - earlier == STEP for earlier, later in pairwise(back))
