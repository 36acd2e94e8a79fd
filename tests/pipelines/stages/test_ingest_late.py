"""Late data: steps stored before are opened again, and the forecasts made from them are marked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from pipelines.stages.ingest import ingest
from store.connection import open_store
from store.forecasts import forecasts_on_changed_data

HOUR, STEP, DAY = timedelta(hours=1), timedelta(minutes=5), timedelta(days=1)
T0 = datetime(2026, 11, 1, tzinfo=UTC)
NOW = T0 + 2 * DAY + timedelta(minutes=2)


def outdated(project, at, **keys):
    with open_store(project.store_path) as store:
        return forecasts_on_changed_data(store, at=at, look_back=42 * DAY, **keys)


def test_late_rows_reopen_their_steps_and_are_told(gateway, requests, stored, marks):
    """Those of the last quarter of an hour before the watermark; a gap that is filled counts as changed."""
    late = (pl.col("time") >= NOW - 12 * timedelta(minutes=1)) & (pl.col("class") == "chat")
    requests.filter(~late | (pl.col("time") >= NOW - timedelta(minutes=2))).write_parquet(gateway.base / "rows.parquet")
    ingest(gateway, NOW)
    requests.write_parquet(gateway.base / "rows.parquet")
    result = ingest(gateway, NOW)
    assert result.sources[0].reopened_steps == 2
    assert "2 stored steps changed" in result.summary
    end = T0 + 2 * DAY
    assert marks(gateway) == {("chat", end - 2 * STEP), ("chat", end - STEP)}
    undisturbed = stored(gateway)
    gateway.store_path.unlink()
    ingest(gateway, NOW)
    assert stored(gateway).equals(undisturbed)


def test_a_forecast_is_marked_until_it_is_made_again(published, live, now, trace):
    """Only that of the class whose steps before the cutoff changed after it was made."""
    assert outdated(published, now).is_empty()
    changed = pl.col("time").is_between(now - 3 * HOUR, now - HOUR, closed="left") & (pl.col("class") == "chat")
    trace.with_columns(
        tokens_in=pl.when(changed).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")
    ).write_parquet(published.base / "trace.parquet")
    result = live(published, now, "ingest")["ingest"].result
    assert result.outdated_forecasts == 2
    assert "2 stored steps changed since 2 newest forecasts" in result.summary
    row = {
        "workload_class": "chat",
        "cutoff": now,
        "steps": 2,
        "first_step": now - 3 * HOUR,
        "last_step": now - 2 * HOUR,
    }
    assert outdated(published, now).drop("metric").unique().to_dicts() == [row]
    live(published, now + HOUR, "ingest", "forecast")
    assert outdated(published, now + HOUR).is_empty(), "the newest was made from what is stored"
    assert set(outdated(published, now + HOUR, since=now - HOUR)["cutoff"]) == {now}, "the one before is still marked"
    live(published, now, "forecast")
    assert outdated(published, now + HOUR, since=now - HOUR).is_empty()


def test_steps_before_what_a_forecast_looks_back_on_do_not_mark_it(published, live, now, trace):
    old = pl.col("time") < now - 200 * HOUR
    trace.with_columns(tokens_in=pl.when(old).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")).write_parquet(
        published.base / "trace.parquet"
    )
    live(published, now, "ingest")
    with open_store(published.store_path) as store:
        assert forecasts_on_changed_data(store, at=now, look_back=200 * HOUR).is_empty()
        assert forecasts_on_changed_data(store, at=now, look_back=202 * HOUR)["steps"].to_list() == [2] * 6


def test_a_forecast_whose_rerun_was_killed_stays_marked(published, live, now, trace):
    """The run has begun anew, after the change; the forecast is still the old one."""
    changed = pl.col("time") == now - HOUR
    trace.with_columns(
        tokens_in=pl.when(changed).then(pl.col("tokens_in") + 1000).otherwise("tokens_in")
    ).write_parquet(published.base / "trace.parquet")
    live(published, now, "ingest")
    with open_store(published.store_path) as store, store.transaction():
        store.execute(
            "UPDATE runs SET status = 'running', started_at = now() + INTERVAL 1 HOUR, finished_at = NULL "
            "WHERE kind = 'forecast'"
        )
    assert outdated(published, now).height == 6
