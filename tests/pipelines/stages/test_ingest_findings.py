"""Every kind of finding from a source into the store, and what the forecaster is left with."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import forecasting.quality
from floorcast.columns import Metric
from pipelines.stages.common import read_series
from pipelines.stages.ingest import ingest
from store.connection import open_store
from store.demand import read_demand
from store.findings import read_findings

HOUR = timedelta(hours=1)
VALUES = ("tokens_in", "tokens_out", "requests")


def scaled(trace, now, hours, factor, names=VALUES, classes=("chat",)):
    """Rows of the classes between so many hours before `now`, times the factor."""
    inside = pl.col("time").is_between(now - hours[0] * HOUR, now - hours[1] * HOUR, closed="left")
    inside &= pl.col("class").is_in(classes)
    return trace.with_columns(pl.when(inside).then(pl.col(n) * factor).otherwise(n).alias(n) for n in names)


def without(trace, now, hours, part=True):
    inside = pl.col("time").is_between(now - hours[0] * HOUR, now - hours[1] * HOUR, closed="left")
    return trace.filter(~(inside & (pl.col("class") == "chat") & part))


def stuck(trace, now):
    rows = trace.filter(pl.col("class") == "chat", pl.col("time") == now - 10 * HOUR)
    inside = pl.col("time").is_between(now - 10 * HOUR, now - 2 * HOUR, closed="left") & (pl.col("class") == "chat")
    return trace.with_columns(pl.when(inside).then(pl.lit(rows[n][0])).otherwise(n).alias(n) for n in VALUES)


def delivered_twice(trace, now):
    chat = pl.col("class") == "chat"
    again = trace.filter(chat, pl.col("time").is_between(now - 40 * HOUR, now - 32 * HOUR, closed="left"))
    kept = without(trace, now, (20, 12))
    return pl.concat([kept, again.with_columns(pl.col("time") + 20 * HOUR)]).sort("time", "class")


# kind: the trace it is made from, then the class, its first and last hour before now, whether it is masked, and the
# hours of chat that the forecaster does not see.
CASES = {
    "gap": (lambda trace, now: without(trace, now, (30, 27)), "chat", 30, 27, False, range(27, 30)),
    "partial": (
        lambda trace, now: without(trace, now, (30, 29), pl.col("time").dt.minute() < 40),
        "chat", 30, 29, True, range(29, 30),
    ),
    "outage": (
        lambda trace, now: scaled(trace, now, (30, 27), 0, classes=("chat", "agent", "code")),
        "", 31, 27, True, range(27, 31),  # the step before reads lower than the one before it
    ),
    "flat_line": (stuck, "chat", 9, 2, True, range(2, 9)),
    "duplicated_interval": (delivered_twice, "chat", 20, 12, True, range(12, 20)),
    "unit_jump": (
        lambda trace, now: scaled(trace, now, (30, 20), 1000, Metric), "chat", 30, 20, True, range(20, 30),
    ),
    "level_shift": (lambda trace, now: scaled(trace, now, (60, 0), 4), "chat", 60, 0, False, ()),
    "spike": (lambda trace, now: scaled(trace, now, (30, 29), 30), "chat", 30, 29, False, ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_finding_is_stored_and_changes_what_the_forecaster_sees(kind, project, now, trace):
    make, name, first, last, masked, unseen = CASES[kind]
    make(trace, now).write_parquet(project.base / "trace.parquet")
    result = ingest(project, now)
    with open_store(project.store_path) as store:
        findings = read_findings(store)
    assert findings["kind"].unique().to_list() == [kind]
    assert findings.height == result.findings
    assert set(findings["workload_class"]) == {name}
    assert set(findings["masked"]) == {masked}
    begin, end = findings["start"].min(), findings["end"].max()
    slack = 3 * HOUR if kind == "level_shift" else timedelta(0)  # its median needs some hours to turn
    assert abs(begin - (now - first * HOUR)) <= slack
    assert abs(end - (now - last * HOUR)) <= slack
    assert all(json.loads(evidence) for evidence in findings["evidence"])
    series, _ = read_series(project, as_of=now)
    for metric in Metric:
        chat = series["chat", metric]
        missing = {round((now - chat.start) / HOUR) - int(place) for place in np.flatnonzero(np.isnan(chat.values))}
        assert missing == {hour + 1 for hour in unseen}


def test_every_kind_has_a_case():
    """A kind is named where findings are made."""
    folder = Path(forecasting.quality.__file__).parent
    text = "".join(file.read_text() for file in folder.glob("*.py"))
    named = set(re.findall(r'Finding\(\s*"(\w+)"', text)) | set(re.findall(r'= \("(\w+)", "", ""', text))
    assert named == {*CASES, "clock_skew"}


def skewed(project):
    with open_store(project.store_path) as store:
        findings = read_findings(store).filter(kind="clock_skew")
        return read_demand(store), [json.loads(evidence) for evidence in findings["evidence"]]


def test_rows_later_than_the_present_are_told_and_not_stored(project, now, trace):
    """The same rows are none of the business of a run in the past."""
    cut = trace.filter(pl.col("time") < now)
    ahead = cut.tail(30).with_columns(pl.col("time") + timedelta(minutes=150))
    cut.write_parquet(project.base / "trace.parquet")
    ingest(project, now)
    honest, none = skewed(project)
    assert none == []
    pl.concat([cut, ahead]).write_parquet(project.base / "trace.parquet")
    ingest(project, now)
    assert skewed(project)[1] == []
    result = ingest(project, now, present=now + timedelta(seconds=20))
    stored, evidence = skewed(project)
    latest = ahead["time"].max() - now
    assert evidence == [{"history_rows": 30, "history_ahead_h": float(f"{latest / HOUR:.4g}")}]
    assert stored.equals(honest)
    assert result.sources[0].ahead == 30
    assert "30 rows of the future" in result.summary
    ingest(project, now, only="history", present=now)
    assert skewed(project)[1] == evidence, "reading one source alone keeps what is known of the others' clocks"
    cut.write_parquet(project.base / "trace.parquet")
    ingest(project, now, present=now)
    assert skewed(project)[1] == []


def test_rows_of_a_far_future_are_counted_and_do_not_make_the_trace_longer(project, now, reconfigure):
    """Requests end three hours before now. One of 2099 does not show that the time since was observed and idle."""
    project = reconfigure(project, "    row_interval: 5m\n", "    class: chat\n")
    project = reconfigure(
        project,
        "class: class, tokens_in: tokens_in, tokens_out: tokens_out, requests: requests",
        "tokens_in: tokens_in, tokens_out: tokens_out",
    )
    times = [now - n * timedelta(minutes=1) for n in range(3000, 180, -1)]
    rows = pl.DataFrame({"time": times, "tokens_in": 100, "tokens_out": 10})
    rows.write_parquet(project.base / "trace.parquet")
    ingest(project, now, present=now)
    honest, _ = skewed(project)
    late = pl.DataFrame({"time": [now.replace(year=2099)], "tokens_in": 100, "tokens_out": 10})
    pl.concat([rows, late]).write_parquet(project.base / "trace.parquet")
    ingest(project, now, present=now)
    stored, evidence = skewed(project)
    assert stored.equals(honest)
    assert evidence == [{"history_rows": 1, "history_ahead_h": "over 700"}]
