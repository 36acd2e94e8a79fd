"""Live signals of all pools, from the Prometheus sources: what can be had within a deadline, with its age."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from floorcast.errors import FloorcastError
from floorcast.units import format_duration
from pipelines.project import Project
from pipelines.service.answers import Gathered, Heard, Lengths, signals_of
from pipelines.service.board import SourceHealth
from pipelines.service.questions import Asked, Question, ask_of, pods_of
from pipelines.sources.prometheus.client import Point, PrometheusClient
from scaling.overlay.settings import Trigger, settings_of
from scaling.overlay.signals import Signals

_LONGEST = timedelta(seconds=10)
_SHARE_OF_TICK = 0.6
_LATENCIES = [Trigger.TTFT, Trigger.TTFT_PER_1K_PROMPT, Trigger.ITL, Trigger.SCORE]


@dataclass(frozen=True)
class LiveReading:
    """Signals without floors, ceilings and calendar, a lane for each pool of the configuration."""

    signals: Signals
    sources: tuple[SourceHealth, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass
class _Source:
    asked: Asked
    heard: Heard
    executor: ThreadPoolExecutor
    client: PrometheusClient | None = None
    last_success_at: datetime | None = None
    running: dict[Question, Future[list[Point]]] = field(default_factory=dict)


class LiveReader:
    """Asks all sources at once, each all its questions. What does not answer within the deadline is missing, never
    zero; a source whose last answers are still to come is not asked again before they are.

    Raises ConfigError where labels of the configuration cannot be used.
    """

    def __init__(self, project: Project, *, wall: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        config = project.config
        self._wall = wall
        self._lanes = len(config.pools)
        self._applied = config.mode == "apply"
        self._pods = pods_of(config)
        self._deadline = min(_SHARE_OF_TICK * config.service.tick, _LONGEST)
        enabled = settings_of(tuple(config.pools.values())).enabled
        asked, untold = ask_of(config, latencies=bool(enabled[_LATENCIES].any()))
        self._faults = tuple(map(str, untold))
        self._shares = _shares(asked, self._lanes)
        self._lengths = Lengths(*np.full((2, self._lanes), np.nan))
        self._sources = [
            _Source(
                replace(one, source=one.source.model_copy(update={"timeout": min(one.source.timeout, self._deadline)})),
                Heard(len(one.components)),
                ThreadPoolExecutor(one.source.concurrency, thread_name_prefix=f"live {one.source.name}"),
            )
            for one in asked
        ]

    def close(self) -> None:
        """Let go of the connections; requests under way end by themselves, within the deadline."""
        for source in self._sources:
            source.executor.shutdown(wait=False, cancel_futures=True)
            if source.client is not None:
                source.client.close()

    def read(self) -> LiveReading:
        """What the sources say now."""
        began = time.monotonic()
        for source in self._sources:
            self._ask(source)
        everything = [future for source in self._sources for future in source.running.values()]
        wait(everything, timeout=self._deadline.total_seconds())
        gathered = Gathered(self._lanes)
        health = tuple(self._gather(source, gathered, began) for source in self._sources)
        signals = signals_of(gathered, self._lengths, shares=self._shares, pods=self._pods, applied=self._applied)
        return LiveReading(signals, health, self._faults)

    def _ask(self, source: _Source) -> None:
        if source.running:
            return
        try:
            # Made when it is needed, so that a token or certificate that is not there yet is only a fault of this tick.
            source.client = source.client or PrometheusClient(source.asked.source, attempts=1)
        except FloorcastError as error:
            failed: Future[list[Point]] = Future()
            failed.set_exception(error)
            source.running = dict.fromkeys(source.asked.questions, failed)
            return
        ask = source.client.instant
        source.running = {one: source.executor.submit(ask, one.promql) for one in source.asked.questions}

    def _gather(self, source: _Source, gathered: Gathered, began: float) -> SourceHealth:
        answers: dict[Question, list[Point] | None] = {}
        fault = None
        for question, future in source.running.items():
            answers[question] = None
            if not future.done():
                fault = fault or f"no answer within {format_duration(self._deadline)}"
            elif (error := future.exception()) is None:
                answers[question] = future.result()
            else:
                what = error.what if isinstance(error, FloorcastError) else f"{type(error).__name__}: {error}"
                fault = fault or f"{question.signal}: {what}"
        if all(future.done() for future in source.running.values()):
            source.running = {}
        gathered.add(source.asked, answers, source.heard)
        if fault is None:
            source.last_success_at = self._wall()
        return SourceHealth(
            name=source.asked.source.name,
            last_success_at=source.last_success_at,
            fault=fault,
            seconds=time.monotonic() - began,
        )


def _shares(asked: list[Asked], lanes: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """[lanes] share of the prompt tokens in the prefix cache, where all of a pool's classes are given the same; NaN for
    what counters tell."""
    found: list[set[float | None]] = [set() for _ in range(lanes)]
    for one in asked:
        for component in one.components:
            found[component.lane].add(component.cached_share)
    shares = [one.pop() if len(one) == 1 else None for one in found]
    return np.array([np.nan if share is None else share for share in shares], dtype=np.float64)
