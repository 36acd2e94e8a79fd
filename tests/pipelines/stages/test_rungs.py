"""Each rung of the fallback ladder, by taking away what the one above it stands on, through the stages as they run."""

from __future__ import annotations

from datetime import timedelta

import duckdb
import pytest

from floorcast.types import Rung
from pipelines.publishers.schedule import read_schedule
from scaling.recompute import recompute

HOUR = timedelta(hours=1)


def lose(project, statement, *parameters):
    with duckdb.connect(str(project.store_path)) as store:
        store.execute(statement, parameters)


@pytest.mark.parametrize(
    ("lost", "rungs"),
    [
        # The forecasts go, the demand they were made from stays.
        ([("DELETE FROM forecasts",)], {Rung.PAST_WEEKS}),
        # One metric of one class of the two that chat-70b serves.
        ([("DELETE FROM forecasts WHERE workload_class = 'chat' AND metric = 'tokens_in'",)], {Rung.PAST_WEEKS}),
        ([("DELETE FROM forecasts",), ("DELETE FROM demand",)], {Rung.FALLBACK}),
        # Of the demand, all that past weeks and days are looked up in.
        ([("DELETE FROM forecasts",), ("DELETE FROM demand WHERE workload_class = 'agent'",)], {Rung.FALLBACK}),
    ],
    ids=["forecasts", "forecasts of one metric", "everything", "all of one class"],
)
def test_the_next_rung_holds_and_is_never_below_what_was_published(published, live, now, lost, rungs):
    before = read_schedule(published.output / "schedule.json").pools["chat-70b"]
    for statement in lost:
        lose(published, *statement)
    live(published, now + HOUR, "plan", "publish")
    after = read_schedule(published.output / "schedule.json").pools["chat-70b"]
    assert {after.rung} == rungs

    def floors(pool):
        return {
            window.start + hour * HOUR: window.min_replicas
            for window in pool.windows
            for hour in range((window.end - window.start) // HOUR)
        }

    old, new = floors(before), floors(after)
    both = old.keys() & new.keys()
    assert len(both) == 11
    assert all(new[moment] >= old[moment] for moment in both)
    assert [recompute(window.reason, after.settings) for window in after.windows] == [
        window.min_replicas for window in after.windows
    ]


def test_a_stale_forecast_is_the_last_one_after_three_intervals_and_widens_with_age(published, live, now):
    """Nothing is read or forecast any more; a publication interval is the step of an hour here."""
    (published.base / "trace.parquet").unlink()
    rungs, widths = [], []
    for hour in (3, 4, 7):
        live(published, now + hour * HOUR, "plan", "publish")
        pool = read_schedule(published.output / "schedule.json").pools["chat-70b"]
        rungs.append(pool.rung)
        widths.append(pool.windows[0].reason.classes["chat"].model_in.rpartition("spread x")[2])
    assert rungs == [Rung.FRESH, Rung.LAST_FORECAST, Rung.LAST_FORECAST]
    assert widths[1:] == ["1.33", "1.58"], "1 + 4 h / 12 h and 1 + 7 h / 12 h"
