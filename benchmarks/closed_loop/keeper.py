"""Who scales the fleet: reads the service as KEDA's metrics-api does and asks for what it says; keeps what it read.

While the service does not answer, the fleet keeps the replicas it has, as KEDA and HPA keep them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import httpx

from benchmarks.closed_loop.fleet import LivePool
from benchmarks.closed_loop.paths import Sample


class Keeper:
    """Reads every `every_s` seconds in a thread of its own."""

    def __init__(self, url: str, fleet: Mapping[str, LivePool], *, every_s: float, stop: threading.Event) -> None:
        self._url, self._fleet, self._every_s, self._stop = url, fleet, every_s, stop
        self.samples: list[Sample] = []
        self.thread = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def _keep(self) -> None:
        with httpx.Client(base_url=self._url, timeout=2.0, trust_env=False) as client:
            due = time.monotonic()
            while not self._stop.is_set():
                self.samples.append(self._read(client))
                due = max(due + self._every_s, time.monotonic())
                self._stop.wait(due - time.monotonic())

    def _read(self, client: httpx.Client) -> Sample:
        began = time.time()
        try:
            decisions = client.get("/v1/decisions").raise_for_status().json()
            floors = client.get("/v1/floors").raise_for_status().json()
            ready = client.get("/readyz").json()
        except (httpx.HTTPError, ValueError) as error:
            return Sample(began, time.time(), f"{type(error).__name__}: {error}", {}, {}, "", (), ())
        for name, one in decisions["decisions"].items():
            self._fleet[name].wanted = int(one["desired"])
        return Sample(
            began,
            time.time(),
            None,
            floors["floors"],
            decisions["decisions"],
            decisions["validity"],
            tuple(ready.get("not_ok", ())),
            tuple(ready.get("faults", ())),
        )
