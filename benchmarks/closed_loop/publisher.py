"""The cycles of a run: `python -m benchmarks.closed_loop.publisher FOLDER prepare|run`.

In FOLDER/plan each cycle ingests, forecasts, plans and publishes in simulated time, as `floorcast cycle` does. Its
floors are then put on the real clock and published into FOLDER/disk/published by the same code, for the service.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.closed_loop.clock import Clock
from benchmarks.closed_loop.scenario import INTERVAL, START, VALID_FOR
from floorcast.errors import FloorcastError
from pipelines.project import Project, load_project
from pipelines.publishers.schedule import build_schedule, read_schedule, write_schedule
from pipelines.stages.common import run_id
from pipelines.stages.runner import STAGES, run_stage
from store.connection import open_store
from store.floors import read_floors

EARLY = 3
"""Cycles before the run begins, at most: there is a publication when the service starts."""


def cycle(project: Project, now: datetime, clock: Clock, published: Path) -> int:
    """One cycle at a simulated time; returns the version published."""
    for name in ("ingest", "forecast", "plan", "publish"):
        run_stage(name, STAGES[name], project, now)
    with open_store(project.store_path) as store:
        floors = read_floors(store, run_id("plan", now))
    planned = read_schedule(project.output / "schedule.json")
    edges = [
        pl.col(name).map_elements(clock.moment, return_dtype=pl.Datetime("us", "UTC"))
        for name in ("window_start", "window_end")
    ]
    reason = pl.col("reason").map_elements(lambda text: _moved(text, clock), return_dtype=pl.String)
    moved = floors.with_columns(*edges, reason=reason)
    schedule = build_schedule(
        mode="advisory",
        version=planned.version,
        issued_at=clock.moment(now),
        valid_until=clock.moment(now + VALID_FOR),
        floors=moved,
        rungs={name: pool.rung for name, pool in planned.pools.items()},
        settings={name: pool.settings for name, pool in project.config.pools.items()},
    )
    write_schedule(schedule, published)
    return schedule.version


def _moved(reason: str, clock: Clock) -> str:
    """A reason whose times are on the real clock."""
    document: dict[str, Any] = json.loads(reason)
    document["needed_by"] = clock.moment(datetime.fromisoformat(document["needed_by"])).isoformat()
    for each in document.get("classes", {}).values():
        if each.get("deadline"):
            each["deadline"]["done_by"] = clock.moment(datetime.fromisoformat(each["deadline"]["done_by"])).isoformat()
    return json.dumps(document)


def run(folder: Path, project: Project, clock: Clock) -> None:
    """Publish at every interval of the run, and keep what was published when, beside its copy."""
    stop, published, every_min = threading.Event(), folder / "disk" / "published", INTERVAL / timedelta(minutes=1)
    number = max(int(clock.minute // every_min), -EARLY)
    while True:
        now = START + number * INTERVAL
        began = time.time()
        told: dict[str, Any] = {"minute": number * every_min}
        try:
            version = cycle(project, now, clock, published)
        except FloorcastError as error:
            told |= {"fault": str(error)}
        else:
            kept = folder / "kept" / f"v{version:06d}.json"
            shutil.copy(published / "schedules" / kept.name, kept)
            told |= {"version": version}
        with (folder / "cycles.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps({**told, "began": began, "ended": time.time()}) + "\n")
        # What could not be done in time is left out: the next cycle sees all that it would have seen.
        number = max(number + 1, int(clock.minute // every_min))
        clock.wait(number * every_min, stop)


def main() -> None:
    folder, task = Path(sys.argv[1]), sys.argv[2]
    project = load_project(folder / "plan" / "floorcast.yaml", environment=os.environ)
    if task == "prepare":
        for name in ("ingest", "fit"):
            run_stage(name, STAGES[name], project, START - EARLY * INTERVAL)
    else:
        run(folder, project, Clock.load(folder / "clock.json"))


if __name__ == "__main__":
    main()
