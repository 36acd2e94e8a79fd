"""What is suspicious about demand is stored when it is read, and missing to what comes after."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from floorcast.errors import DataError
from pipelines.stages.common import read_series
from store.connection import open_store
from store.findings import read_findings

HOUR = timedelta(hours=1)


@pytest.fixture
def holed(project, trace, now):
    """The fleet with no rows of chat for three hours, and agent stuck for eight until two hours before now."""
    time, name = pl.col("time"), pl.col("class")
    gap = (name == "chat") & time.is_between(now - 30 * HOUR, now - 27 * HOUR, closed="left")
    stuck = (name == "agent") & time.is_between(now - 10 * HOUR, now - 2 * HOUR, closed="left")
    level = {column: trace.filter(stuck)[column][0] for column in ("tokens_in", "tokens_out", "requests")}
    trace.filter(~gap).with_columns(
        pl.when(stuck).then(pl.lit(value)).otherwise(column).alias(column) for column, value in level.items()
    ).write_parquet(project.base / "trace.parquet")
    return project


def findings(project):
    with open_store(project.store_path) as store:
        return read_findings(store).select("kind", "workload_class", "start", "end", "masked").rows()


def test_ingest_stores_what_is_suspicious(holed, live, now):
    done = live(holed, now, "ingest")["ingest"].result
    assert findings(holed) == [
        ("flat_line", "agent", now - 9 * HOUR, now - 2 * HOUR, True),
        ("gap", "chat", now - 30 * HOUR, now - 27 * HOUR, False),
    ]
    assert done.findings == 2
    assert done.summary.endswith(", 2 findings")


def test_what_was_mended_is_no_longer_suspicious(holed, live, now, trace):
    live(holed, now, "ingest")
    trace.write_parquet(holed.base / "trace.parquet")
    done = live(holed, now, "ingest")["ingest"].result
    assert findings(holed) == []
    assert "finding" not in done.summary


def test_findings_are_stored_also_where_another_source_fails(holed, live, now, reconfigure):
    broken = "  - {name: gone, kind: trace, format: azure, path: gone.csv, class: chat}\n  - name: history"
    with pytest.raises(DataError, match="no such file"):
        live(reconfigure(holed, "  - name: history", broken), now, "ingest")
    assert len(findings(holed)) == 2


def test_a_masked_step_of_one_class_is_there_for_the_others(holed, live, now):
    live(holed, now, "ingest")
    series, believed = read_series(holed, as_of=now)
    steps = {name: rows.height for (name,), rows in believed.partition_by("workload_class", as_dict=True).items()}
    assert steps == {"agent": 288 - 7, "chat": 288 - 3, "code": 288}
    assert {key[0]: int(pl.Series(one.values).is_nan().sum()) for key, one in series.items()} == {
        "agent": 7,
        "chat": 3,
        "code": 0,
    }
