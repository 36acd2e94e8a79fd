"""Prefect flows: they sequence calls and hold no logic. The only module that imports Prefect.

Import it after `pipelines.prefect_settings.prepare`, since Prefect reads its settings on import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prefect import flow, task
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from pipelines.project import Project, load_project
from pipelines.stages.runner import CYCLE, ESSENTIAL, StageRun, run_stage


@dataclass(frozen=True)
class CycleRun:
    """The stages that ran, and the error of each that failed."""

    runs: tuple[StageRun, ...]
    failed: dict[str, str]


def _run(name: str, file: Path, now: datetime) -> StageRun:
    return run_stage(name, CYCLE[name], _project(file), now)


def _project(file: Path) -> Project:
    return load_project(file, environment=os.environ)


@task(name="ingest", persist_result=False)
def ingest(file: Path, now: datetime) -> StageRun:
    """Sources into stored demand."""
    return _run("ingest", file, now)


@task(name="fit", persist_result=False)
def fit(file: Path, now: datetime) -> StageRun:
    """Models for the series whose fit is stale."""
    return _run("fit", file, now)


@task(name="forecast", persist_result=False)
def forecast(file: Path, now: datetime) -> StageRun:
    """Quantiles from the stored fits."""
    return _run("forecast", file, now)


@task(name="plan", persist_result=False)
def plan(file: Path, now: datetime) -> StageRun:
    """Floors from the newest forecasts."""
    return _run("plan", file, now)


@task(name="publish", persist_result=False)
def publish(file: Path, now: datetime) -> StageRun:
    """Files, manifests and the record of them."""
    return _run("publish", file, now)


@task(name="evaluate", persist_result=False)
def evaluate(file: Path, now: datetime) -> StageRun:
    """Stored forecasts against what came."""
    return _run("evaluate", file, now)


@task(name="dashboard", persist_result=False)
def dashboard(file: Path, now: datetime) -> StageRun:
    """The static site."""
    return _run("dashboard", file, now)


STAGE_TASKS = (ingest, fit, forecast, plan, publish, evaluate, dashboard)


@flow(name="cycle", validate_parameters=False, persist_result=False)
def cycle(file: Path, now: datetime) -> CycleRun:
    """Every stage in order. Returns what ran and what failed; raises where a floor could not be published."""
    runs: list[StageRun] = []
    failed: dict[str, str] = {}
    for stage in STAGE_TASKS:
        try:
            runs.append(stage(file, now))
        except Exception as error:
            if stage.name in ESSENTIAL:
                raise
            failed[stage.name] = str(error)
    return CycleRun(tuple(runs), failed)


def run_cycle(file: Path, now: datetime) -> CycleRun:
    """Run the flow in this process, on a Prefect server if one is configured, else on one of its own."""
    # The heartbeat's thread takes a second to join, and nobody watches an in-process run.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        return cycle(file, now)
