"""One run: the parts started, the fleet let loose, faults at their times, all that was seen kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.closed_loop.clock import Clock
from benchmarks.closed_loop.faults import Fault
from benchmarks.closed_loop.fleet import LivePool
from benchmarks.closed_loop.keeper import Keeper
from benchmarks.closed_loop.parts import Parts
from benchmarks.closed_loop.paths import Path as PoolPath
from benchmarks.closed_loop.paths import Seen, Span
from benchmarks.closed_loop.scenario import TICK, WORKLOADS, faster_pool
from floorcast.errors import ConfigError
from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import read_schedule
from scaling.replay.traffic import Traffic

LEAD_IN_S = 25.0
Tell = Callable[[str], None]


def run(
    parts: Parts, faults: Sequence[Fault], *, traffics: Mapping[str, Traffic], tell: Tell, lead_in_s: float = LEAD_IN_S
) -> Seen:
    """The whole run, with what arrives at each pool; the parts' folder is left behind.

    `lead_in_s` are real seconds for the first publication, before the run begins. Raises ConfigError where a part does
    not start.
    """
    stop, speed, folder = threading.Event(), parts.speed, parts.folder
    try:
        pools = {one.pool: LivePool(one, folder / "fleet", traffic=traffics[one.pool], stop=stop) for one in WORKLOADS}
        for part in (parts.exporter, parts.prometheus, parts.service):
            part.start()
            part.answers()
        clock = Clock(time.time() + lead_in_s, speed)
        parts.begin(clock)
        parts.publisher.start()
        parts.service.answers("/readyz")
        if (late_s := time.time() - clock.epoch) > 0:
            tell(f"the first publication took {late_s:.0f} s longer than expected")
        keeper = Keeper(parts.url("service"), pools, every_s=TICK.total_seconds() / speed, stop=stop)
        keeper.thread.start()
        for pool in pools.values():
            pool.start(clock)
        told = [_break(parts, fault, clock, stop, tell) for fault in faults]
        for pool in pools.values():
            pool.thread.join()
        stop.set()
        keeper.thread.join()
        exit_code = parts.service.terminate()
    finally:
        stop.set()
        parts.end()
    with (folder / "readings.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(asdict(one)) + "\n" for one in keeper.samples)
    cycles = [json.loads(line) for line in (folder / "cycles.jsonl").read_text(encoding="utf-8").splitlines()]
    return Seen(
        epoch=clock.epoch,
        speed=speed,
        minutes=round(max(one.steps * one.step_s for one in traffics.values()) / 60),
        paths={name: _path(pool, speed) for name, pool in pools.items()},
        samples=tuple(keeper.samples),
        spans=tuple(told),
        publications=tuple(_kept(folder / "kept", cycles)),
        cycles=tuple(cycles),
        exit_code=exit_code,
    )


def _path(pool: LivePool, speed: float) -> PoolPath:
    if pool.result is None:
        raise ConfigError("did not live to the end", where=f"pool {pool.workload.pool}", remedy="see the error above")
    pace = faster_pool(pool.pool, speed)["overlay"]
    return PoolPath.of(
        pool.result, rise_per_minute=pace["scale_out"]["per_minute"], fall_per_minute=pace["scale_in"]["per_minute"]
    )


def _break(parts: Parts, fault: Fault, clock: Clock, stop: threading.Event, tell: Tell) -> Span:
    clock.wait(fault.begin_min, stop)
    tell(f"minute {fault.begin_min:g}: {fault.what}")
    began = time.time()
    fault.begin(parts)
    clock.wait(fault.end_min, stop)
    ended = time.time()
    fault.end(parts)
    return Span(fault.name, fault.what, began, ended, fault.expects)


def _kept(folder: Path, cycles: Sequence[dict[str, Any]]) -> list[tuple[float, FloorSchedule]]:
    written = {one["version"]: one["ended"] for one in reversed(cycles) if "version" in one}
    return [(at, read_schedule(folder / f"v{version:06d}.json")) for version, at in sorted(written.items())]
