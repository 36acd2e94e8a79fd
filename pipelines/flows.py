"""Prefect flows: they sequence calls and hold no logic. The only module that imports Prefect.

Import it after `pipelines.prefect_settings.prepare`, since Prefect reads its settings on import.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from prefect import flow, task
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from pipelines.project import load_project
from pipelines.stages.runner import CYCLE, ESSENTIAL, StageRun, run_stage


@dataclass(frozen=True)
class CycleRun:
    """The stages that ran, and the error of each that failed. `without_prefect` says why Prefect kept no record."""

    runs: tuple[StageRun, ...]
    failed: dict[str, str]
    without_prefect: str | None = None


def _run(name: str, file: Path, now: datetime) -> StageRun:
    return run_stage(name, CYCLE[name], load_project(file, environment=os.environ), now)


STAGE_TASKS = {name: task(name=name, persist_result=False)(_run) for name in CYCLE}
"""One task a stage; what a stage does is in `pipelines/stages`."""


def _in_order(call: Callable[[str], StageRun]) -> CycleRun:
    """Every stage in order. Raises where a floor could not be published."""
    runs: list[StageRun] = []
    failed: dict[str, str] = {}
    for name in CYCLE:
        try:
            runs.append(call(name))
        except Exception as error:
            if name in ESSENTIAL:
                raise
            failed[name] = str(error)
    return CycleRun(tuple(runs), failed)


@flow(name="cycle", validate_parameters=False, persist_result=False)
def cycle(file: Path, now: datetime, begun: list[bool]) -> CycleRun:
    """The stages as tasks. `begun` is told that Prefect works."""
    begun.append(True)
    return _in_order(lambda name: STAGE_TASKS[name](name, file, now))


def run_cycle(file: Path, now: datetime) -> CycleRun:
    """Run the flow in this process, on a Prefect server if one is configured, else on one of its own.

    Where Prefect cannot begin, the stages run without it: floors must not wait for an orchestrator.
    """
    begun: list[bool] = []
    # The heartbeat's thread takes a second to join, and nobody watches an in-process run.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        try:
            return cycle(file, now, begun)
        except Exception as error:
            if begun:
                raise
            done = _in_order(lambda name: _run(name, file, now))
            return CycleRun(done.runs, done.failed, without_prefect=f"{type(error).__name__}: {error}")
