"""Live signals of all pools, from the Prometheus sources: what can be had within a deadline, with its age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pipelines.project import Project
from pipelines.service.board import SourceHealth
from scaling.overlay.signals import Signals, snapshot


@dataclass(frozen=True)
class LiveReading:
    """Signals without floors, ceilings and calendar, a lane for each pool of the configuration."""

    signals: Signals
    sources: tuple[SourceHealth, ...] = ()
    faults: tuple[str, ...] = ()


class LiveReader:
    """Asks all sources at once. What does not answer is missing, never zero."""

    def __init__(self, project: Project) -> None:
        self._lanes = len(project.config.pools)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""

    def read(self) -> LiveReading:
        return LiveReading(snapshot(self._lanes))
