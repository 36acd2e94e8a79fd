"""Runs stages by name, and keeps a record of each run in the store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pipelines.project import Project
from pipelines.stages.common import StageResult, run_id
from pipelines.stages.dashboard import dashboard
from pipelines.stages.evaluate import evaluate
from pipelines.stages.fit import fit
from pipelines.stages.forecast import forecast
from pipelines.stages.ingest import ingest
from pipelines.stages.plan import plan
from pipelines.stages.publish import publish
from pipelines.stages.tune import tune
from pipelines.stages.tuned import in_force
from store.connection import open_store, patient
from store.runs import finish_run, start_run

Stage = Callable[[Project, datetime], StageResult]

CYCLE: dict[str, Stage] = {
    "ingest": ingest,
    "fit": partial(fit, only_stale=True),
    "forecast": forecast,
    "plan": plan,
    "publish": publish,
    "evaluate": evaluate,
    "dashboard": dashboard,
    "tune": partial(tune, only_due=True),
}
"""The stages of a cycle, in order."""

ESSENTIAL = ("plan", "publish")
"""A cycle ends where one of these fails. Any other may fail: floors are then made from what is stored, by the
fallback ladder, and the cycle says so."""

STAGES: dict[str, Stage] = {**CYCLE, "fit": fit, "tune": tune}
"""What a single command runs: `fit` alone fits every series anew, and `tune` tunes every pool."""


@dataclass(frozen=True)
class StageRun:
    name: str
    seconds: float
    result: StageResult


def run_stage(name: str, stage: Stage, project: Project, now: datetime) -> StageRun:
    """Run a stage and record when it began, how it ended and what it said.

    A failure is recorded and raised again; what earlier stages stored and published stays as it is. A process that
    holds the database is waited for as long as `store.wait` says.
    """
    with patient(project.config.store.wait.total_seconds()):
        return _run_stage(name, stage, project, now)


def _run_stage(name: str, stage: Stage, project: Project, now: datetime) -> StageRun:
    as_of = project.as_of(now)
    identity = run_id(name, as_of)
    with open_store(project.store_path) as store:
        start_run(store, run_id=identity, kind=name, started_at=datetime.now(UTC), as_of=as_of)
    began = time.perf_counter()
    try:
        result = stage(in_force(project, as_of), now)
    except Exception as error:
        _finish(project, identity, status="failed", detail=json.dumps({"error": str(error)}))
        raise
    _finish(project, identity, status="succeeded", detail=result.model_dump_json())
    return StageRun(name, time.perf_counter() - began, result)


def _finish(project: Project, identity: str, *, status: str, detail: str) -> None:
    with open_store(project.store_path) as store:
        finish_run(store, identity, finished_at=datetime.now(UTC), status=status, detail=detail)
