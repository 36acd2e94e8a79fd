"""Borrowed and inherited histories."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import DEMAND, FORECASTS, MEDIAN, QUANTILE_COLUMNS, Metric
from floorcast.workload import WorkloadClass
from forecasting.series import FloatArray, Series
from forecasting.siblings import WIDENING, borrow, inherit, widen

HOUR = timedelta(hours=1)
START = datetime(2026, 11, 2, tzinfo=UTC)
TOKENS_IN = Metric.TOKENS_IN


def series(name: str, values: FloatArray | list[float], start: datetime = START) -> dict[tuple[str, Metric], Series]:
    return {(name, metric): Series(name, metric, start, HOUR, np.asarray(values, dtype=float)) for metric in Metric}


def classes(**like: tuple[str, float | None]) -> dict[str, WorkloadClass]:
    borrowing = {name: WorkloadClass(pools=("p",), like=of, scale=scale) for name, (of, scale) in like.items()}
    return {"chat": WorkloadClass(pools=("p",)), **borrowing}


def test_a_class_without_a_history_has_its_siblings_scaled() -> None:
    found = borrow(series("chat", [10.0, 20, np.nan, 40]), classes(newchat=("chat", 0.2)))
    got = found.series["newchat", TOKENS_IN]
    assert (got.workload_class, got.start) == ("newchat", START)
    np.testing.assert_allclose(got.values, [2, 4, np.nan, 8])
    assert found.labels == {("newchat", metric): "like chat x0.2" for metric in Metric}


def test_its_own_data_win_where_observed_and_its_own_gaps_stay_gaps() -> None:
    """The sibling's stand in front only; where the class was not observed later, nothing is known."""
    own = series("newchat", [np.nan, 7, np.nan, 9], START + 2 * HOUR)
    found = borrow({**series("chat", np.arange(10.0, 90, 10)), **own}, classes(newchat=("chat", 0.5)))
    got = found.series["newchat", TOKENS_IN]
    np.testing.assert_allclose(got.values, [5, 10, 15, 7, np.nan, 9])
    assert got.end == START + 6 * HOUR, "as fresh as its own data, not its sibling's"


def test_a_sibling_that_begins_later_or_ends_earlier_lends_what_it_has() -> None:
    early = borrow({**series("chat", [8.0, 8]), **series("new", [1.0], START + 4 * HOUR)}, classes(new=("chat", None)))
    np.testing.assert_allclose(early.series["new", TOKENS_IN].values, [8, 8, np.nan, np.nan, 1])
    late = borrow({**series("chat", [8.0], START + 4 * HOUR), **series("new", [1.0, 2])}, classes(new=("chat", None)))
    np.testing.assert_allclose(late.series["new", TOKENS_IN].values, [1, 2])


def test_nothing_is_borrowed_once_two_days_are_observed() -> None:
    chat = series("chat", np.full(200, 10.0))
    for hours, borrowed in ((47, True), (48, False)):
        own = series("newchat", [np.nan] * 5 + [1.0] * hours, START + 100 * HOUR)
        found = borrow({**chat, **own}, classes(newchat=("chat", 0.2)))
        assert bool(found.labels) is borrowed
        assert (len(found.series["newchat", TOKENS_IN].values) == 53) is not borrowed


def test_a_class_borrows_what_its_sibling_borrowed_whatever_their_order() -> None:
    found = borrow(series("chat", [100.0]), classes(third=("second", 0.5), second=("chat", 0.5)))
    assert found.series["third", TOKENS_IN].values.tolist() == [25]


def test_without_a_sibling_to_borrow_from_nothing_changes() -> None:
    own = series("newchat", [1.0])
    assert borrow(own, classes(newchat=("chat", 0.2))).series == own


rates = st.lists(st.one_of(st.floats(0, 1e6), st.just(np.nan)), min_size=1, max_size=80)


@given(chat=rates, own=rates, shift=st.integers(-30, 30), scale=st.floats(0.01, 10))
def test_borrowing_keeps_all_own_data_and_is_idempotent(
    chat: list[float], own: list[float], shift: int, scale: float
) -> None:
    spec = classes(newchat=("chat", scale))
    given_ = {**series("chat", chat), **series("newchat", own, START + shift * HOUR)}
    found = borrow(given_, spec)
    got = found.series["newchat", TOKENS_IN]
    for place, value in enumerate(own):
        if np.isfinite(value):
            assert got.values[(START + (shift + place) * HOUR - got.start) // HOUR] == value
    assert not (got.values < 0).any()
    assert found.series["chat", TOKENS_IN] is given_["chat", TOKENS_IN]
    again = borrow({**given_, ("newchat", TOKENS_IN): got}, spec).series["newchat", TOKENS_IN]
    shared = slice((got.start - again.start) // HOUR, None)
    seen = np.isfinite(got.values)
    if seen.any() and got.end == again.end:
        np.testing.assert_array_equal(again.values[shared][seen], got.values[seen])


def forecast(quantiles: list[float]) -> pl.DataFrame:
    row = {"workload_class": "newchat", "metric": "tokens_in", "cutoff": START, "step_start": START, "model": "mixture"}
    return pl.DataFrame([{**row, **dict(zip(QUANTILE_COLUMNS, quantiles, strict=True))}], schema=dict(FORECASTS))


def test_borrowed_forecasts_are_wider_and_say_so() -> None:
    (row,) = widen(forecast([1, 60, 100, 110, 120, 130, 140, 150]), "like chat x0.2").to_dicts()
    assert row["model"] == "mixture, like chat x0.2"
    assert [row[name] for name in QUANTILE_COLUMNS] == [0, 40, 100, 115, 130, 145, 160, 175]


@given(quantiles=st.lists(st.floats(0, 1e9), min_size=8, max_size=8).map(sorted))
def test_widened_quantiles_stay_in_order_around_the_same_median(quantiles: list[float]) -> None:
    (row,) = widen(forecast(quantiles), "").to_dicts()
    values = [row[name] for name in QUANTILE_COLUMNS]
    assert row[MEDIAN] == quantiles[2]
    assert values == sorted(values)
    assert values[0] >= 0
    assert values[7] - values[2] == pytest.approx(WIDENING * (quantiles[7] - quantiles[2]))


def demand(name: str, first: int, last: int) -> pl.DataFrame:
    rows = [
        {"workload_class": name, "step_start": START + hour * HOUR, "tokens_in": float(hour), "tokens_out": 1.0,
         "observed_fraction": 1.0, "source": name}
        for hour in range(first, last)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(DEMAND))


def test_a_renamed_class_has_its_old_rows_until_its_own_begin_and_never_both() -> None:
    stored = pl.concat([demand("assistant", 5, 9), demand("chat", 0, 3), demand("helper", 0, 7)])
    got = inherit(stored, renamed={"assistant": "helper"}, first_steps={"assistant": START + 5 * HOUR})
    mine = got.filter(workload_class="assistant").sort("step_start")
    assert mine["tokens_in"].to_list() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert mine["source"].to_list() == ["helper"] * 5 + ["assistant"] * 4
    assert set(got["workload_class"]) == {"assistant", "chat"}
    assert dict(got.schema) == dict(DEMAND)


def test_old_rows_are_not_inherited_after_own_ones_that_lie_further_back_than_is_read() -> None:
    got = inherit(demand("helper", 3, 7), renamed={"assistant": "helper"}, first_steps={"assistant": START})
    assert got.is_empty()


def test_a_class_not_yet_seen_under_its_new_name_has_all_of_the_old() -> None:
    got = inherit(demand("helper", 0, 4), renamed={"assistant": "helper"}, first_steps={})
    assert got["workload_class"].to_list() == ["assistant"] * 4
