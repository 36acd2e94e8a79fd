"""Simulated time on the real clock."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.closed_loop.scenario import START


@dataclass(frozen=True)
class Clock:
    """`epoch` is the real time, seconds since 1970, at which the run begins."""

    epoch: float
    speed: float

    @property
    def minute(self) -> float:
        """Simulated minutes since the run began."""
        return (time.time() - self.epoch) * self.speed / 60

    def real(self, minute: float) -> float:
        """Seconds since 1970 of a simulated minute of the run."""
        return self.epoch + minute * 60 / self.speed

    def moment(self, simulated: datetime) -> datetime:
        """When on the real clock that is."""
        offset: timedelta = (simulated - START) / self.speed
        return datetime.fromtimestamp(self.epoch, UTC) + offset

    def wait(self, minute: float, stop: threading.Event) -> bool:
        """Sleep until then; returns whether `stop` came first."""
        return stop.wait(max(self.real(minute) - time.time(), 0.0))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Clock:
        return Clock(**json.loads(path.read_text(encoding="utf-8")))
