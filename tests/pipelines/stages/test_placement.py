"""Classes that two pools can serve and a quota, through the real stages up to the schedule, the page and the cost."""

from __future__ import annotations

import shutil

import polars as pl
import pytest

from floorcast.types import Reason
from pipelines.project import load_project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.plan import shortfalls
from scaling.money import costs, splits
from scaling.recompute import recompute
from store.connection import open_store
from store.floors import read_floors
from store.forecasts import read_forecast
from store.publications import latest_publication

LARGE = """\
  large:
    gpu: {type: B200, usd_per_gpu_hour: 6, reserved_usd_per_gpu_hour: 3}
    capacity: {prefill_tokens_per_s: 4000, decode_tokens_per_s: 2400}
    startup: {p90: 9m}
    bounds: {min: 1, max: 60}
"""
STAGES = ("ingest", "fit", "forecast", "plan", "publish", "dashboard")


@pytest.fixture(scope="module")
def mixed(_blank, tmp_path_factory, live, now):
    """Every class of chat-70b may go to a pool of larger replicas too, and of its GPUs there are 4."""
    folder = shutil.copytree(_blank, tmp_path_factory.mktemp("mixed") / "project")
    file = folder / "floorcast.yaml"
    text = file.read_text().replace("pools:\n", f"pools:\n{LARGE}", 1).replace("[chat-70b]", "[chat-70b, large]")
    file.write_text(f"{text}\nquotas: [{{gpu: H100, gpus: 4}}]\n")
    project = load_project(file, environment={})
    return project, live(project, now, *STAGES)


def test_the_schedule_says_where_each_class_is_placed_and_recomputes(mixed):
    project, _ = mixed
    schedule = read_schedule(project.output / "schedule.json")
    for name, pool in schedule.pools.items():
        for window in pool.windows:
            assert recompute(window.reason, project.config.pools[name]) == window.min_replicas
    with open_store(project.store_path) as store:
        rows = read_floors(store, latest_publication(store, at=schedule.issued_at).run_id)
    first = rows.filter(pl.col("window_start") == schedule.issued_at)
    reasons = {row["pool"]: Reason.model_validate_json(row["reason"]) for row in first.iter_rows(named=True)}
    shared = reasons["chat-70b"].classes.keys() & reasons["large"].classes.keys()
    assert shared
    at_once = {name: sum(reasons[pool].classes[name].share for pool in ("chat-70b", "large")) for name in shared}
    # Each pool's deciding step may lie in another block of the lead window.
    assert all(0.9 < total <= 2 for total in at_once.values())


def test_the_quota_holds_in_every_window_and_what_is_short_is_told(mixed, now):
    project, runs = mixed
    config = project.config
    with open_store(project.store_path) as store:
        record = latest_publication(store, at=now)
        rows = read_floors(store, record.run_id)
    h100 = {name: pool.gpu.per_replica for name, pool in config.pools.items() if pool.gpu.type == "H100"}
    used = (
        rows.filter(pl.col("pool").is_in(list(h100)))
        .with_columns(gpus=pl.col("min_replicas") * pl.col("pool").replace_strict(h100))
        .group_by("window_start")
        .agg(pl.col("gpus").sum())
    )
    assert used["gpus"].max() <= 4
    told = runs["plan"].result.shortfalls
    assert told == tuple(shortfalls(rows))
    assert all(one.admission for one in told if "quota" in one.rules)
    assert read_schedule(project.output / "schedule.json").admission == runs["plan"].result.admission


def test_cost_adds_up_to_the_floors_at_their_prices(mixed, now):
    project, _ = mixed
    config = project.config
    with open_store(project.store_path) as store:
        record = latest_publication(store, at=now)
        rows, forecasts = read_floors(store, record.run_id), read_forecast(store, at=record.issued_at)
    found = costs(config, floors=rows, forecasts=forecasts)
    hours = config.step_s / 3600
    for name, pool in config.pools.items():
        gpu_hours = rows.filter(pool=name)["min_replicas"].sum() * pool.gpu.per_replica * hours
        assert found.filter(pool=name)["gpu_hours"].sum() == pytest.approx(gpu_hours)
        usd = found.filter(pool=name)["usd"]
        if pool.gpu.price is None:
            assert usd.null_count() == len(usd)
        else:
            assert usd.sum() == pytest.approx(gpu_hours * pool.gpu.price)
    [split] = splits(config, rows)
    assert split.pools == ("large",)
    assert split.usd <= split.on_demand_usd
