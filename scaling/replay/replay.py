"""Run candidate settings, or given paths of replicas, over recorded demand."""

from __future__ import annotations

import numpy as np

from floorcast.errors import DataError
from floorcast.pool import Pool
from scaling.capacity import Ints
from scaling.replay.conditions import Conditions
from scaling.replay.engine import Engine
from scaling.replay.fleet import Given, Scaled
from scaling.replay.lanes import Lanes, Policy
from scaling.replay.observe import Observer
from scaling.replay.result import ReplayResult
from scaling.replay.traffic import Traffic, work

_FIRST_S = 300.0


def replay(
    traffic: Traffic,
    lanes: Lanes,
    *,
    pool: Pool,
    conditions: Conditions,
    policy: Policy | None = None,
    seed: int = 0,
    initial: Ints | None = None,
) -> ReplayResult:
    """All lanes at once, deterministic under `seed`; a lane's outcome does not depend on the other lanes.

    At every tick a lane asks for what `policy` says where it has the overlay and else for its floor, within its floor
    and the pool's bounds. It begins with `initial` [lanes] ready replicas; unless given, those that the first five
    minutes take at the target utilization, or its first floor if that is more.

    Raises DataError where a lane has the overlay and there is no policy.
    """
    if policy is None and lanes.overlay.any():
        raise DataError("lanes have an overlay, and there is no policy", where="replay", remedy="give a policy")
    bounds = pool.bounds
    ready = _first_replicas(traffic, pool, lanes) if initial is None else np.asarray(initial, dtype=np.int64)
    longest_drain_s = conditions.drain_timeout_s
    fleet = Scaled(
        ready, startup_s=conditions.startup_s, longest_drain_s=longest_drain_s, step_s=traffic.step_s, seed=seed
    )
    engine = Engine(traffic, pool, conditions, fleet, lanes=lanes.count, seed=seed)
    observer = Observer(engine, lanes, seed=seed)

    def decide(step: int) -> Ints:
        floor = lanes.floors[lanes.window_at(step, traffic.step_s)]
        desired = floor
        if policy is not None:
            wanted = np.asarray(policy(observer.signals(step), step * traffic.step_s)).astype(np.int64)
            desired = np.where(lanes.overlay, np.maximum(wanted, floor), floor)
        limited: Ints = np.minimum(np.maximum(desired, bounds.min), bounds.max)
        return limited

    return ReplayResult(lanes.names, traffic, pool, conditions, engine.run(decide))


def replay_paths(
    traffic: Traffic,
    names: tuple[str, ...],
    ready: Ints,
    *,
    pool: Pool,
    conditions: Conditions,
    starting: Ints,
    draining: Ints,
) -> ReplayResult:
    """Given replicas, [steps, lanes] each, in place of a policy's: the proof that a path does what it is said to."""
    engine = Engine(traffic, pool, conditions, Given(ready, starting, draining), lanes=len(names), seed=0)
    return ReplayResult(names, traffic, pool, conditions, engine.run(None))


def _first_replicas(traffic: Traffic, pool: Pool, lanes: Lanes) -> Ints:
    steps = max(round(_FIRST_S / traffic.step_s), 1)
    load = sum(work(stream, pool, traffic.step_s)[:steps].sum() for stream in traffic.streams)
    replicas = np.ceil(load / (steps * traffic.step_s) / pool.capacity.target_utilization)
    first: Ints = np.clip(np.maximum(int(replicas), lanes.floors[0]), pool.bounds.min, pool.bounds.max)
    return first
