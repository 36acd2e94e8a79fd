"""Drift: the newest per class and metric, and replacement of all that a run found."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from floorcast.columns import DRIFT
from floorcast.errors import DataError
from store.connection import Store
from store.drift import read_drift, write_drift

HOUR = timedelta(hours=1)


def drift(*rows: tuple[str, str, datetime, str]) -> pl.DataFrame:
    figures = {"value": 0.8, "reference": 0.95, "hours": 9.0, "evidence": "80 % of 95 % over 9h"}
    return pl.DataFrame(
        [
            {"workload_class": name, "metric": metric, "as_of": as_of, "kind": kind, "cutoff": as_of - HOUR, **figures}
            for name, metric, as_of, kind in rows
        ],
        schema=dict(DRIFT),
    )


def test_the_newest_of_each_class_and_metric_stands_until_something_newer_is_found(store: Store, t0: datetime) -> None:
    first = drift(("chat", "tokens_in", t0, "coverage_lost"), ("chat", "tokens_in", t0, "error_risen"))
    second = drift(("agent", "tokens_in", t0 + HOUR, "level_shifted"))
    third = drift(("chat", "tokens_in", t0 + 2 * HOUR, "error_risen"))
    for hours, frame in enumerate((first, second, third)):
        write_drift(store, f"forecast-{hours}", t0 + hours * HOUR, frame)
    assert read_drift(store, at=t0 - HOUR).is_empty()
    assert read_drift(store, at=t0).equals(first)
    assert read_drift(store, at=t0 + HOUR).equals(pl.concat([second, first]))
    assert read_drift(store, at=t0 + 9 * HOUR).equals(pl.concat([second, third]))


def test_a_run_that_finds_nothing_any_more_takes_its_drift_back(store: Store, t0: datetime) -> None:
    before = drift(("agent", "tokens_in", t0 - HOUR, "level_shifted"))
    write_drift(store, "forecast-0", t0 - HOUR, before)
    for frame in (drift(("chat", "tokens_in", t0, "error_risen")), drift()):
        write_drift(store, "forecast-1", t0, frame)
    assert read_drift(store, at=t0).equals(before)


def test_a_figure_that_is_none_is_refused(store: Store, t0: datetime) -> None:
    broken = drift(("chat", "tokens_in", t0, "error_risen")).with_columns(value=float("nan"))
    with pytest.raises(DataError, match="drift: value is NaN"):
        write_drift(store, "forecast-0", t0, broken)
