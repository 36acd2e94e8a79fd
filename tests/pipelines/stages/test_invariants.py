"""Missing is not zero, a failure never lowers a floor, nothing later is read: through the stages as they run."""

from __future__ import annotations

import shutil
from datetime import timedelta

import polars as pl
import pytest

from floorcast.errors import DataError, ForecastError
from floorcast.types import Rung
from pipelines.project import load_project
from pipelines.publishers.schedule import floor_due, read_schedule
from store.connection import open_store
from store.floors import read_floors

HOUR = timedelta(hours=1)
FAST = ("forecast", "plan", "publish")


def schedule_of(project):
    return read_schedule(project.output / "schedule.json")


def steps(schedule):
    """Floor by pool and hour of a schedule."""
    return {
        (name, window.start + hour * HOUR): window.min_replicas
        for name, pool in schedule.pools.items()
        for window in pool.windows
        for hour in range((window.end - window.start) // HOUR)
    }


def assert_nowhere_below(after, before):
    """No floor fell for a time that both speak of."""
    assert after.keys() & before.keys()
    assert {key: (before[key], after[key]) for key in after.keys() & before.keys() if after[key] < before[key]} == {}


def copy_of(project, name):
    folder = shutil.copytree(project.base, project.base.with_name(name))
    return load_project(folder / "floorcast.yaml", environment={})


def test_an_outage_recorded_as_zeros_lowers_no_floor(published, live, now, trace):
    """Hours of zeros in all classes: floors are no lower than without the rows, or than those published before."""
    unread = copy_of(published, "unread")
    zeros = pl.when(pl.col("time") >= now).then(0.0)
    trace.with_columns(
        zeros.otherwise(pl.col(name)).alias(name) for name in ("tokens_in", "tokens_out", "requests")
    ).write_parquet(published.base / "trace.parquet")
    trace.filter(pl.col("time") < now).write_parquet(unread.base / "trace.parquet")
    before = steps(schedule_of(published))
    for hour in (1, 3):
        for project in (published, unread):
            live(project, now + hour * HOUR, "ingest", *FAST)
        after = steps(schedule_of(published))
        assert_nowhere_below(after, before)
        assert_nowhere_below(after, steps(schedule_of(unread)))
        before = after
    with open_store(published.store_path) as store:
        zero = store.read("SELECT count(*) AS n FROM demand WHERE tokens_in = 0 AND tokens_out = 0")["n"].item()
    assert zero == 3 * 3, "the zeros were read"


def test_without_sources_floors_hold_and_go_down_the_ladder(published, live, now):
    """Fresh for three publication intervals, then the last forecast, after its end the same time of past weeks."""
    (published.base / "trace.parquet").unlink()
    before, rungs = steps(schedule_of(published)), []
    for hour in (3, 4, 11, 14, 24):
        moment = now + hour * HOUR
        with pytest.raises(DataError, match="no such file"):
            live(published, moment, "ingest")
        done = live(published, moment, *FAST)
        after = steps(schedule_of(published))
        assert_nowhere_below(after, before)
        before = after
        rungs.append(done["plan"].result.rungs["chat-70b"])
        # The forecast is made anew as long as the data are younger than the horizon.
        assert bool(done["forecast"].result.failed) == (hour > 12)
    assert rungs == [Rung.FRESH, *[Rung.LAST_FORECAST] * 3, Rung.PAST_WEEKS]


def test_an_older_forecast_asks_for_no_less_than_the_fresh_one(published, live, now):
    """From the second rung on the spread widens, so that ageing alone never lowers what is wanted."""
    (published.base / "trace.parquet").unlink()
    live(published, now + 4 * HOUR, *FAST)
    with open_store(published.store_path) as store:
        fresh = read_floors(store, "plan-20261116T090000Z")
        old = read_floors(store, "plan-20261116T130000Z").filter(rung="last_forecast")
    both = old.join(fresh, on=["pool", "window_start"], suffix="_fresh")
    assert both.height == 2 * 8
    assert (both["required_replicas"] >= both["required_replicas_fresh"]).all()
    assert (both["required_replicas"] / both["required_replicas_fresh"]).max() > 1.005


def test_with_nothing_stored_and_no_source_the_fallback_replicas_are_published(project, live, now):
    (project.base / "trace.parquet").unlink()
    for name, error in (("ingest", DataError), ("fit", ForecastError), ("forecast", ForecastError)):
        with pytest.raises(error):
            live(project, now, name)
    done = live(project, now, "plan", "publish", "evaluate", "dashboard")
    assert done["publish"].result.due == {"chat-70b": 30, "code-8b": 25}
    assert set(steps(schedule_of(project)).values()) == {30, 25}
    assert {pool.rung for pool in schedule_of(project).pools.values()} == {Rung.FALLBACK}


def test_a_lost_database_lowers_no_floor_that_is_published(published, live, now, reconfigure):
    """Consumers still see the publication; only the record of it is gone. Its floors are above the fallback here."""
    project = reconfigure(published, "    fallback_replicas: 30", "    fallback_replicas: 2")
    project.store_path.unlink()
    (project.base / "trace.parquet").unlink()
    before = steps(schedule_of(project))
    assert min(before.values()) > 2
    done = live(project, now + HOUR, "plan", "publish")
    assert done["publish"].result.version == 2
    assert_nowhere_below(steps(schedule_of(project)), before)


def test_a_run_in_the_past_reads_nothing_later(project, published, live, now, trace):
    """The store already holds garbage from after `now`, and forecasts made with it; so does the source."""
    factor = pl.when(pl.col("time") >= now).then(37.0).otherwise(1.0)
    trace.with_columns(tokens_in=pl.col("tokens_in") * factor, tokens_out=pl.col("tokens_out") / factor).write_parquet(
        project.base / "trace.parquet"
    )
    live(project, now + 30 * HOUR, "ingest")
    live(project, now, "fit")
    live(project, now + 30 * HOUR, "forecast", "plan", "evaluate")
    live(project, now, "ingest", "forecast", "plan", "publish", "evaluate", "dashboard")
    live(published, now, "evaluate", "dashboard")
    for name in ("schedule.json", "keda/chat-70b.yaml", "hpa/code-8b.yaml", "site/index.html", "site/accuracy.html"):
        assert (project.output / name).read_bytes() == (published.output / name).read_bytes(), name


def test_a_floor_is_published_for_every_step_of_the_horizon(published, now):
    schedule = schedule_of(published)
    for pool in published.config.pools:
        for hour in range(12):
            assert floor_due(schedule, pool, now + hour * HOUR).min_replicas >= 1
