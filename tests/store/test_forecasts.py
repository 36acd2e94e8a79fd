"""Forecasts: latest cutoff, ranges over cutoffs, and replacement."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floorcast.columns import FORECASTS
from floorcast.errors import DataError
from store.connection import Store
from store.forecasts import read_forecast, read_forecasts, write_forecasts

STEP = timedelta(minutes=5)


def steps(name: str, metric: str, cutoff: datetime, count: int) -> list[dict]:
    return [
        {"workload_class": name, "metric": metric, "cutoff": cutoff, "step_start": cutoff + n * STEP, "q10": float(n)}
        for n in range(count)
    ]


def test_latest_forecast_is_whole_and_by_class_and_metric(store: Store, forecasts, t0: datetime) -> None:
    older = steps("chat", "tokens_in", t0, 3)
    newer = steps("chat", "tokens_in", t0 + STEP, 2)
    other = steps("chat", "tokens_out", t0, 2)
    for run, rows in enumerate((older, newer, other)):
        write_forecasts(store, f"r{run}", forecasts(*rows))
    assert read_forecast(store, at=t0 - STEP).is_empty()
    assert read_forecast(store, at=t0).equals(forecasts(*older, *other))
    assert read_forecast(store, at=t0 + 9 * STEP).equals(forecasts(*newer, *other))


def test_range_gives_every_cutoff(store: Store, forecasts, t0: datetime) -> None:
    rows = steps("chat", "tokens_in", t0, 3) + steps("chat", "tokens_in", t0 + STEP, 3)
    write_forecasts(store, "r", forecasts(*reversed(rows)))
    back = read_forecasts(store, start=t0 + STEP, end=t0 + 3 * STEP)
    assert back.equals(forecasts(rows[1], rows[2], rows[3], rows[4]))


def test_shorter_forecast_of_the_same_cutoff_replaces_the_longer(store: Store, forecasts, t0: datetime) -> None:
    write_forecasts(store, "r1", forecasts(*steps("chat", "tokens_in", t0, 4)))
    for _ in "12":
        write_forecasts(store, "r2", forecasts(*steps("chat", "tokens_in", t0, 2)))
    assert read_forecast(store, at=t0).equals(forecasts(*steps("chat", "tokens_in", t0, 2)))


def test_any_writes_give_the_latest_at_or_before(store: Store, forecasts, t0: datetime) -> None:
    """Against a plain loop over all that was written."""
    unit = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["tokens_in", "tokens_out"]), st.integers(0, 4))

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(unit, st.integers(1, 3)), max_size=6), st.integers(-1, 5))
    def check(writes: list[tuple[tuple[str, str, int], int]], at: int) -> None:
        store.execute("DELETE FROM forecasts")
        held: dict[tuple[str, str, int], list[dict]] = {}
        for (name, metric, n), count in writes:
            held[name, metric, n] = steps(name, metric, t0 + n * STEP, count)
            write_forecasts(store, "r", forecasts(*held[name, metric, n]))
        expected: list[dict] = []
        for name, metric in sorted({key[:2] for key in held}):
            cutoffs = [n for (a, b, n) in held if (a, b) == (name, metric) and n <= at]
            expected += held[name, metric, max(cutoffs)] if cutoffs else []
        back = read_forecast(store, at=t0 + at * STEP)
        assert back.schema == dict(FORECASTS)
        assert back.equals(forecasts(*expected))

    check()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"q95": float("nan")}, "q95 is NaN"),
        ({"q10": -0.1}, "q10 is negative"),
        ({"q97_5": None}, "q97_5 is null"),
        ({"metric": None}, "metric is null"),
    ],
)
def test_bad_quantiles_are_refused(store: Store, forecasts, t0: datetime, fault: dict, message: str) -> None:
    with pytest.raises(DataError, match=f"forecasts: {message}"):
        write_forecasts(store, "r", forecasts(fault))
    assert read_forecast(store, at=t0).is_empty()


def test_repeated_step_is_refused(store: Store, forecasts) -> None:
    with pytest.raises(DataError, match="the key is repeated in 2 of 2 rows"):
        write_forecasts(store, "r", pl.concat([forecasts({}), forecasts({"q10": 1.0})]))
