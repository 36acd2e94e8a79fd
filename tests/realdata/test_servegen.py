"""The whole line on ServeGen's production clients."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import polars as pl
import pytest

from floorcast.types import FloorSchedule
from forecasting.quality import outage_steps
from forecasting.rows import MIXTURE
from pipelines.project import Project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE, run_stage
from scaling.recompute import recompute
from store.connection import open_store
from store.demand import read_demand
from store.fits import read_scores

pytestmark = pytest.mark.realdata

MIDNIGHT = datetime(2026, 10, 31, 16, tzinfo=UTC)
STEP = timedelta(minutes=10)
Example = Callable[[str], Project]


@pytest.mark.parametrize("model", ["m-small", "m-large"])
def test_a_cycle_on_two_weeks_gives_forecasts_floors_and_pages(example: Example, model: str) -> None:
    project = example(f"servegen/{model}.yaml")
    now = MIDNIGHT + timedelta(days=14)
    results = {name: run_stage(name, stage, project, now).result for name, stage in CYCLE.items()}
    assert results["forecast"].model_dump()["failed"] == {}
    schedule = read_schedule(project.output / "schedule.json")
    assert set(schedule.pools) == set(project.config.pools)
    for name, pool in schedule.pools.items():
        assert pool.windows[-1].end - pool.windows[0].start == project.config.horizon
        assert all(recompute(w.reason, project.config.pools[name]) == w.min_replicas for w in pool.windows)
    pages = {path.name for path in project.site.glob("*.html")}
    assert {f"class-{name}.html" for name in project.config.classes} <= pages
    with open_store(project.store_path) as store:
        scores = read_scores(store, at=now).filter(pl.col("horizon") == "lead")
    pinball = {(row["workload_class"], row["metric"], row["model"]): row["pinball"] for row in scores.to_dicts()}
    assert scores.filter(model=MIXTURE).height == 2 * len(project.config.classes)
    for (name, metric, forecaster), loss in pinball.items():
        if forecaster == MIXTURE:
            assert loss <= 1.1 * pinball[name, metric, "last_value"], "no class is forecast worse than by last value"
    total = {model: sum(loss for key, loss in pinball.items() if key[2] == model) for model in (MIXTURE, "last_value")}
    assert total[MIXTURE] < total["last_value"]


def test_through_the_windows_in_which_every_client_reads_zero_no_floor_falls(example: Example) -> None:
    """Models fitted before the first of them. At the beginning of each run of zeros a schedule is published, and
    another after its last window, of the longest run after its first too; none may ask for less at any time than the
    one before the zeros did.
    """
    project = example("servegen/m-small.yaml")
    run_stage("ingest", CYCLE["ingest"], project, MIDNIGHT + timedelta(days=14))
    with open_store(project.store_path) as store:
        demand = read_demand(store)
    silent = _silent_steps(demand)
    assert len(silent) == 37
    found = outage_steps(demand, step=STEP)["step_start"].to_list()
    assert set(silent) <= set(found)
    run_stage("fit", CYCLE["fit"], project, MIDNIGHT + timedelta(days=7))
    runs = _runs(silent)
    longest = max(runs, key=len)
    for run in runs:
        before = _published(project, run[0])
        for step in sorted({run[0], run[-1]} if run is longest else {run[-1]}):
            during = _published(project, step + STEP)
            for pool, floors in _floors(during).items():
                reference = _floors(before)[pool]
                fallen = {at: (reference[at], n) for at, n in floors.items() if n < reference.get(at, 0)}
                assert not fallen, f"{pool} during the zeros at {step}"


def _silent_steps(demand: pl.DataFrame) -> list[datetime]:
    zero = demand.group_by("step_start").agg(pl.col("tokens_in", "requests").sum()).filter(pl.col("requests") == 0)
    return zero["step_start"].sort().to_list()


def _runs(steps: list[datetime]) -> list[list[datetime]]:
    runs = [[steps[0]]]
    for before, step in pairwise(steps):
        if step - before == STEP:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _published(project: Project, now: datetime) -> FloorSchedule:
    for name in ("forecast", "plan", "publish"):
        run_stage(name, CYCLE[name], project, now)
    return read_schedule(project.output / "schedule.json")


def _floors(schedule: FloorSchedule) -> dict[str, dict[datetime, int]]:
    floors: dict[str, dict[datetime, int]] = {}
    for name, pool in schedule.pools.items():
        floors[name] = {}
        for window in pool.windows:
            at = window.start
            while at < window.end:
                floors[name][at] = window.min_replicas
                at += STEP
    return floors


def test_the_azure_hour_is_planned_by_the_minute(example: Example) -> None:
    project = example("azure/azure.yaml")
    now = datetime(2023, 11, 16, 19, 5, tzinfo=UTC)
    for name, stage in CYCLE.items():
        run_stage(name, stage, project, now)
    document = json.loads((project.output / "schedule.json").read_text())
    assert set(document["pools"]) == set(project.config.pools)
