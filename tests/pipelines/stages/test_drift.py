"""A class that leaves what its fit knew is fitted anew, alone, and shown."""

from __future__ import annotations

import re
from datetime import timedelta

import polars as pl
import pytest

from floorcast.columns import Metric
from pipelines.stages.runner import CYCLE, run_stage
from store.connection import open_store
from store.drift import read_drift
from store.fits import read_fits

HOUR = timedelta(hours=1)


def cycle(project, moment):
    return {name: run_stage(name, CYCLE[name], project, moment).result for name in ("ingest", "fit", "forecast")}


def cutoffs(project, moment):
    with open_store(project.store_path) as store:
        return {(row["workload_class"], row["cutoff"]) for row in read_fits(store, at=moment).to_dicts()}


@pytest.fixture
def shifted(published, now, trace):
    """From the fit on, chat has four times the demand."""
    after = (pl.col("time") >= now) & (pl.col("class") == "chat")
    four = [pl.when(after).then(4 * pl.col(metric)).otherwise(metric).alias(metric) for metric in Metric]
    trace.with_columns(four).write_parquet(published.base / "trace.parquet")
    return published


def test_a_class_that_shifted_is_refitted_by_the_next_cycle_alone_and_once(shifted, now):
    found = cycle(shifted, now + 6 * HOUR)
    assert found["fit"].drifted == {}
    assert set(found["forecast"].drifted) == {"chat tokens_in", "chat tokens_out"}
    assert found["forecast"].summary.endswith(", 2 drifted")
    assert found["forecast"].unjudged == {}

    done = cycle(shifted, now + 7 * HOUR)
    assert {one.workload_class for one in done["fit"].chosen} == {"chat"}
    assert done["fit"].kept == 4
    assert done["fit"].drifted == found["forecast"].drifted
    said = done["fit"].drifted["chat tokens_in"]
    assert re.fullmatch(r"level_shifted \([\d,]+ tokens/s against [\d,]+ at the same times before, over 6h\)", said)
    assert f"2 series refitted for drift: chat tokens_in {said}, chat tokens_out" in done["fit"].summary
    assert cutoffs(shifted, now + 7 * HOUR) == {("agent", now), ("chat", now + 7 * HOUR), ("code", now)}

    # As much evidence again after the refit, which knows the new level.
    last = cycle(shifted, now + 13 * HOUR)
    assert (last["fit"].kept, last["forecast"].drifted) == (6, {})
    with open_store(shifted.store_path) as store:
        kept = read_drift(store, at=now + 13 * HOUR)
    assert set(kept["workload_class"]) == {"chat"}
    assert set(kept["cutoff"]) == {now + 6 * HOUR}


def test_drift_leads_to_one_refit_where_no_data_follow_it(shifted, now):
    """The fit's cutoff stays where the data end, before the cycles that look at the drift."""
    cycle(shifted, now + 6 * HOUR)
    fits = [run_stage("fit", CYCLE["fit"], shifted, now + hours * HOUR).result for hours in (7, 8)]
    assert [len(one.drifted) for one in fits] == [2, 0]
    assert cutoffs(shifted, now + 8 * HOUR) == {("agent", now), ("chat", now + 6 * HOUR), ("code", now)}
    with open_store(shifted.store_path) as store:
        assert not read_drift(store, at=now + 8 * HOUR).is_empty()
