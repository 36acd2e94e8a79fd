"""The simulated fleet: the engine of a replay, held to the clock, with replicas that have names and counters.

A pool advances in steps as the clock passes them, by the queue, startups and draining of `scaling.replay`. What its
replicas would export is written to a file each step, for the exporter; the replicas that it shall have are what was
last asked for.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.closed_loop.clock import Clock
from benchmarks.closed_loop.scenario import STEP_S, Workload, pools
from scaling.capacity import Ints
from scaling.replay.conditions import Conditions
from scaling.replay.engine import Engine
from scaling.replay.fleet import Scaled
from scaling.replay.result import ReplayResult
from scaling.replay.traffic import Traffic, work

SECONDS_PER_TOKEN = 0.03
TTFT_BUCKETS_S = (0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0)
ITL_BUCKETS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
"""A part of vLLM's own. Latencies are in simulated seconds: targets of the overlay, where set, are too."""


@dataclass
class Replica:
    """Counters since its start."""

    name: str
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    requests: float = 0.0
    ttft: list[float] = field(default_factory=lambda: [0.0] * (len(TTFT_BUCKETS_S) + 1))
    ttft_sum: float = 0.0
    itl_sum: float = 0.0


class StoppedError(Exception):
    """The run ends early."""


class LivePool:
    """One pool in a thread of its own, at first with what its first five minutes need. `wanted` is set by who scales
    it."""

    def __init__(self, workload: Workload, folder: Path, *, traffic: Traffic, stop: threading.Event) -> None:
        self.workload, self.pool = workload, pools()[workload.pool]
        self.traffic = traffic
        self._file, self._stop = folder / f"{workload.pool}.json", stop
        rng = np.random.default_rng(len(workload.workload_class))
        spread = np.log(workload.startup_p90_s / workload.startup_p50_s) / 1.2816
        startups = np.clip(rng.lognormal(np.log(workload.startup_p50_s), spread, 200), 30, 3 * workload.startup_p90_s)
        self.conditions = Conditions(
            startup_s=startups,
            seconds_per_token=SECONDS_PER_TOKEN,
            kv_tokens=4 * workload.capacity_out * SECONDS_PER_TOKEN * (workload.tokens_in + workload.tokens_out),
            drain_timeout_s=60.0,
            tick_s=STEP_S,
        )
        first = work(traffic.streams[0], self.pool, STEP_S)[: round(300 / STEP_S)].mean() / STEP_S
        ready = self.wanted = int(np.ceil(first / self.pool.capacity.target_utilization))
        self._fleet = Scaled(
            np.array([ready]), startup_s=startups, longest_drain_s=60.0, step_s=STEP_S, seed=len(workload.pool)
        )
        self._engine = Engine(self.traffic, self.pool, self.conditions, self._fleet, lanes=1, seed=1)
        self._serial = count()
        self._ready = [self._new() for _ in range(ready)]
        self._starting: list[Replica] = []
        self._draining: list[Replica] = []
        self.result: ReplayResult | None = None
        self.asked: list[int] = []
        self._export(0)
        self.thread = threading.Thread(target=self._live, name=workload.pool, daemon=True)

    def start(self, clock: Clock) -> None:
        self._clock = clock
        self.thread.start()

    def _live(self) -> None:
        try:
            run = self._engine.run(self._decide)
        except StoppedError:
            return
        self.result = ReplayResult((self.workload.pool,), self.traffic, self.pool, self.conditions, run)

    def _decide(self, step: int) -> Ints:
        """The replicas to have from this step on, when the clock has come to it."""
        self._export(step)
        if self._clock.wait(step * STEP_S / 60, self._stop):
            raise StoppedError
        self.asked.append(self.wanted)
        return np.array([self.wanted])

    def _new(self) -> Replica:
        return Replica(f"{self.workload.pool}-7c9f8d6b5-{next(self._serial):05d}")

    def _rename(self) -> None:
        """Names follow the counts: the oldest that starts becomes ready, the newest ready one drains."""
        ready, starting, draining = (
            int(one[0]) for one in (self._fleet.ready, self._fleet.starting, self._fleet.draining)
        )
        while len(self._ready) < ready:
            self._ready.append(self._starting.pop(0) if self._starting else self._new())
        while len(self._ready) > ready:
            self._draining.append(self._ready.pop())
        while len(self._starting) < starting:
            self._starting.append(self._new())
        del self._starting[starting:], self._draining[: max(len(self._draining) - draining, 0)]

    def _export(self, edge: int) -> None:
        queue, stream = self._engine.queues[0], self.traffic.streams[0]
        at = max(edge - 1, 0)
        work = max(float(queue.work[at]), 1e-12)
        mix = [float(one[at]) / work for one in (stream.requests, stream.tokens_in, stream.tokens_out)]
        served = float(queue.served[edge, 0] - queue.served[at, 0])
        waiting = float(queue.arrived[edge, 0] - queue.done[edge, 0])
        held = float(queue.in_flight(edge)[0])
        self._count(served, waiting, mix)
        self._rename()
        number = max(len(self._ready), 1)
        kv = min(float(self._engine.kv_used(edge)[0]) / (number * self.conditions.kv_tokens), 1.0)
        gauges = {"running": held * mix[0] / number, "waiting": waiting * mix[0] / number, "kv": kv}
        document = {
            "pool": self.workload.pool,
            "wanted": self.wanted,
            "gauges": gauges,
            "ready": [vars(one) for one in self._ready],
            "starting": [one.name for one in self._starting],
            "draining": [vars(one) for one in self._draining],
        }
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(self._file)

    def _count(self, served: float, waiting: float, mix: list[float]) -> None:
        """Share what was served in a step among the replicas that were ready in it."""
        number = len(self._ready)
        if not number or not served:
            return
        requests, tokens_in, tokens_out = (served * each / number for each in mix)
        knee = self.conditions.knee
        ttft_s = waiting / (number * knee.most) + float(
            np.interp(served / (number * STEP_S), knee.utilization, knee.ttft_s)
        )
        place = int(np.searchsorted(TTFT_BUCKETS_S, ttft_s))
        for replica in self._ready:
            replica.tokens_in += tokens_in
            replica.tokens_out += tokens_out
            replica.requests += requests
            replica.ttft[place] += requests
            replica.ttft_sum += requests * ttft_s
            replica.itl_sum += tokens_out * SECONDS_PER_TOKEN
