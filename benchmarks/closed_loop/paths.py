"""What a run left, as figures: the types that are judged and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.closed_loop.scenario import STEP_S
from floorcast.types import FloorSchedule
from scaling.capacity import Floats
from scaling.replay.result import ReplayResult


@dataclass(frozen=True)
class Sample:
    """One reading of the service, at real seconds since 1970. Where it did not answer there is a `fault` alone."""

    at: float
    until: float
    """When the answers were in."""
    fault: str | None
    floors: Mapping[str, int]
    """What `/v1/floors` said."""
    decisions: Mapping[str, Mapping[str, Any]]
    """What `/v1/decisions` said."""
    validity: str
    not_ok: tuple[str, ...]
    """Why it is not ready."""
    told: tuple[str, ...]
    """What else it says is wrong."""


@dataclass(frozen=True)
class Span:
    """A fault as it was: from `began` to `ended` in seconds since 1970. `expects` is a word of what must be told."""

    name: str
    what: str
    began: float
    ended: float
    expects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Path:
    """A pool over the run. Arrays are [steps] of `scenario.STEP_S` simulated seconds."""

    demand: Floats
    """Replicas at full capacity that arrivals take."""
    ready: Floats
    starting: Floats
    tokens: Floats
    late: Floats
    """Tokens of those that arrived in each step that waited too long, or were never served."""
    rise_per_minute: int
    """The pace configured, of a real minute."""
    fall_per_minute: int

    @staticmethod
    def of(result: ReplayResult, *, rise_per_minute: int, fall_per_minute: int) -> Path:
        [waits] = result.waits_of(0)
        work = np.sum([queue.work for queue in result.run.queues], axis=0)
        return Path(
            demand=work / STEP_S,
            ready=result.run.ready[:, 0].astype(np.float64),
            starting=result.run.starting[:, 0].astype(np.float64),
            tokens=waits.tokens,
            late=waits.late + waits.given_up + waits.waiting,
            rise_per_minute=rise_per_minute,
            fall_per_minute=fall_per_minute,
        )


@dataclass(frozen=True)
class Seen:
    """All of a run. `publications` are the good ones with the time at which each was there; `cycles` what each cycle
    said of itself; `exit_code` the service's, at the end."""

    epoch: float
    speed: float
    minutes: int
    paths: Mapping[str, Path]
    samples: tuple[Sample, ...]
    spans: tuple[Span, ...]
    publications: tuple[tuple[float, FloorSchedule], ...]
    cycles: tuple[Mapping[str, Any], ...]
    exit_code: int | None

    def minute(self, at: float) -> float:
        """Simulated minute of the run."""
        return (at - self.epoch) * self.speed / 60

    def step(self, at: float) -> int:
        return int(max(self.minute(at), 0.0) * 60 / STEP_S)
