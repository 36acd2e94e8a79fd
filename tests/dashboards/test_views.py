"""What the tables show."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest

from dashboards.data import SiteData
from dashboards.views import class_views, pool_views
from floorcast.columns import FLOORS, conform
from floorcast.types import Reason, Rung
from pipelines.publishers.schedule import build_schedule


def test_a_pool_shows_the_floor_of_the_window_that_holds_now(site_data: SiteData) -> None:
    pool = next(view for view in pool_views(site_data) if view.name == "chat-70b")
    row = site_data.floors.filter((pl.col("pool") == "chat-70b") & (pl.col("window_start") == site_data.now))
    assert pool.now is not None
    assert pool.now.min_replicas == row["min_replicas"].item() == 11
    assert pool.gpus == 22
    assert pool.usd_per_hour == pytest.approx(22 * 3.99)
    assert pool.gate == "untested"


def test_the_peak_is_the_first_of_the_largest_floors_to_come(site_data: SiteData) -> None:
    pool = next(view for view in pool_views(site_data) if view.name == "chat-70b")
    ahead = site_data.floors.filter((pl.col("pool") == "chat-70b") & (pl.col("window_end") > site_data.now))
    top = ahead.filter(pl.col("min_replicas") == pl.col("min_replicas").max())
    assert pool.peak is not None
    assert (pool.peak.min_replicas, pool.peak.start) == (top["min_replicas"][0], top["window_start"][0])


def test_changes_are_contiguous_and_differ_from_one_another(site_data: SiteData) -> None:
    changes = pool_views(site_data)[0].changes
    assert len(changes) > 10
    for before, after in pairwise(changes):
        assert before.end == after.start
        assert before.min_replicas != after.min_replicas


def test_the_rows_are_the_windows_of_the_published_schedule_with_their_reasons(site_data: SiteData) -> None:
    schedule = build_schedule(
        mode="advisory",
        version=1,
        issued_at=site_data.now,
        valid_until=site_data.now + timedelta(hours=1),
        floors=site_data.floors,
        rungs={"chat-70b": Rung.FRESH, "batch-8b": Rung.PAST_WEEKS},
        settings={},
    )
    for pool in pool_views(site_data):
        windows = [window for window in schedule.pools[pool.name].windows if window.end > site_data.now]
        assert [(row.start, row.end, row.min_replicas, row.reason) for row in pool.changes] == [
            (window.start, window.end, window.min_replicas, window.reason) for window in windows
        ]
        assert all(row.required_replicas == row.reason.required_replicas for row in pool.changes)


def test_the_shortfall_is_the_most_of_any_step_to_come(site_data: SiteData) -> None:
    """Two steps of one window are short, the easier one by more; the step before now, by most, is over."""
    row = site_data.floors.filter(pl.col("pool") == "chat-70b").row(0, named=True)
    steps = []
    for ahead, (required, short) in enumerate([(30.0, 9), (28.0, 2), (26.0, 4), (20.0, 0)]):
        start = site_data.now + (ahead - 1) * timedelta(minutes=5)
        reason = Reason.model_validate_json(row["reason"]).model_copy(update={"shortfall_replicas": short})
        floor = {"min_replicas": 24 if short else 20, "rung": "fresh" if ahead else "past_weeks"}
        window = {"window_start": start, "window_end": start + timedelta(minutes=5), "required_replicas": required}
        steps.append({**row, **window, **floor, "reason": reason.model_dump_json()})
    floors = conform(pl.DataFrame(steps), FLOORS)
    pool = pool_views(dataclasses.replace(site_data, floors=floors))[1]
    assert [change.shortfall_replicas for change in pool.changes] == [4, 0]
    assert pool.shortfall_replicas == 4


def test_what_changed_the_binding_forecasts_is_noted_with_the_classes_it_concerns(site_data: SiteData) -> None:
    reason = pool_views(site_data)[1].changes[0].reason
    launch = {"model_in": "blend 1.00, x9 unbound", "model_out": "mstl_ets 0.80, others 0.20, x1.5 launch-day"}
    chat = reason.classes["chat"].model_copy(update=launch)
    one = dataclasses.replace(
        pool_views(site_data)[1].changes[0],
        reason=reason.model_copy(update={"classes": {**reason.classes, "chat": chat}}),
    )
    both = dataclasses.replace(one, reason=reason.model_copy(update={"classes": {"chat": chat, "agent": chat}}))
    assert (one.notes, both.notes) == (("chat: x1.5 launch-day",), ("x1.5 launch-day",))
    unknown = dataclasses.replace(one, reason=one.reason.model_copy(update={"binding": "fallback_replicas"}))
    assert unknown.notes == ()


def test_past_the_last_window_the_floor_is_not_known(site_data: SiteData) -> None:
    late = dataclasses.replace(site_data, now=site_data.now + timedelta(days=30))
    pool = pool_views(late)[0]
    assert (pool.now, pool.peak, pool.gpus, pool.usd_per_hour) == (None, None, None, None)


def test_a_pool_without_a_price_costs_an_unknown_sum(site_data: SiteData) -> None:
    pool = next(view for view in pool_views(site_data) if view.name == "batch-8b")
    assert pool.gpus == 6
    assert pool.usd_per_hour is None


def test_a_class_shows_its_error_at_the_nearest_horizon(site_data: SiteData) -> None:
    view = next(view for view in class_views(site_data) if view.name == "chat")
    assert view.wape["tokens_in"] == {"published": 0.061, "last_value": 0.094, "seasonal_naive": 0.083}
    assert view.last_observed == site_data.now - timedelta(minutes=5)
    assert view.observed_share == pytest.approx((2016 - 49) / 2016), "a gap of 4 h, both ends included"


def test_a_class_shows_the_model_of_most_weight_in_the_next_step(site_data: SiteData) -> None:
    first = pl.col("step_start") == pl.col("step_start").min()
    mixed = pl.when(first).then(pl.lit("blend 0.58, last_value 0.42, x1.5 launch-day")).otherwise("model")
    forecasts = site_data.forecasts.with_columns(
        pl.when(metric="tokens_in").then(mixed).otherwise("model").alias("model")
    )
    view = class_views(dataclasses.replace(site_data, forecasts=forecasts))[0]
    assert view.experts == {"tokens_in": ("blend", 0.58), "tokens_out": ("mstl_ets", None)}


def test_a_class_that_only_the_data_know_has_no_pool(site_data: SiteData) -> None:
    stray = site_data.demand.with_columns(pl.lit("gone").alias("workload_class"))
    views = class_views(dataclasses.replace(site_data, demand=pl.concat([site_data.demand, stray])))
    gone = next(view for view in views if view.name == "gone")
    assert (gone.kind, gone.pools, gone.fits) == (None, (), {})
