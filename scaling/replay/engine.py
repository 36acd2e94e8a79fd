"""The loop of a replay: step by step, many lanes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from floorcast.errors import ConfigError
from floorcast.pool import Pool
from scaling.capacity import Floats, Ints
from scaling.replay.conditions import Conditions
from scaling.replay.fleet import Fleet, Scaled
from scaling.replay.queue import Queue
from scaling.replay.traffic import Stream, Traffic, work

Decide = Callable[[int], Ints]
"""The replicas desired at a step, [lanes]."""


@dataclass(frozen=True)
class Run:
    """What happened. `ready`, `starting`, `draining` and `desired` are replicas, [steps, lanes]; the rest [lanes]."""

    queues: tuple[Queue, ...]
    ready: Ints
    starting: Ints
    draining: Ints
    desired: Ints
    crashed: Ints


class Engine:
    """A pool's queues and replicas. `decide` sees it between steps."""

    def __init__(
        self, traffic: Traffic, pool: Pool, conditions: Conditions, fleet: Fleet, *, lanes: int, seed: int
    ) -> None:
        self.traffic, self.pool, self.conditions, self.fleet = traffic, pool, conditions, fleet
        may_fail = conditions.crashes_per_hour > 0 or conditions.seconds_per_token > 0
        self.queues = tuple(
            Queue(
                stream,
                work(stream, pool, traffic.step_s),
                lanes=lanes,
                step_s=traffic.step_s,
                hold_steps=np.ceil(hold_s(stream, conditions) / traffic.step_s).astype(np.int64),
                retry_share=conditions.retry_share,
                retry_delay_s=conditions.retry_delay_s,
                may_fail=may_fail,
            )
            for stream in traffic.streams
        )
        self._kv_per_work = [kv_per_work(queue).tolist() for queue in self.queues]
        self._kv_limited = np.isfinite(conditions.kv_tokens)
        self._crashes = _crashes(traffic, conditions, most=pool.bounds.max, seed=seed)
        self._drain_s = drain_s(traffic, conditions)
        shape = (traffic.steps, lanes)
        self.ready, self.starting, self.draining, self.desired = (np.zeros(shape, dtype=np.int64) for _ in range(4))
        self.crashed = np.zeros(lanes, dtype=np.int64)

    def run(self, decide: Decide | None) -> Run:
        """All steps; without `decide` the replicas are what the fleet gives."""
        step_s, fleet = self.traffic.step_s, self.fleet
        every = tick_steps(self.traffic, self.conditions)
        full = self.conditions.knee.most * step_s
        desired = fleet.ready + fleet.starting
        for step in range(self.traffic.steps):
            fleet.advance(step)
            if step in self._crashes and isinstance(fleet, Scaled):
                self._crash(fleet, step)
            if decide is not None and step % every == 0:
                desired = decide(step)
                if isinstance(fleet, Scaled):
                    self._scale(fleet, desired, step)
            self.ready[step], self.starting[step], self.draining[step] = fleet.ready, fleet.starting, fleet.draining
            self.desired[step] = desired
            self._serve(step, np.multiply(full, fleet.ready))
        return Run(self.queues, self.ready, self.starting, self.draining, self.desired, self.crashed)

    def kv_used(self, edge: int) -> Floats:
        """KV cache that requests in flight hold at an edge, in tokens, [lanes]."""
        used: Floats = np.sum(
            [
                queue.in_flight(edge) * kv[max(edge - 1, 0)]
                for queue, kv in zip(self.queues, self._kv_per_work, strict=True)
            ],
            axis=0,
        )
        return used

    def _serve(self, step: int, capacity: Floats) -> None:
        cache = self.fleet.ready * self.conditions.kv_tokens if self._kv_limited else None
        last = self.queues[-1]
        for queue, kv_per_work in zip(self.queues, self._kv_per_work, strict=True):
            kv = kv_per_work[step]
            used = queue.serve(step, capacity, cache / kv if cache is not None and kv else None)
            if queue is not last:
                capacity = capacity - used
                if cache is not None:
                    cache = np.maximum(cache - queue.in_flight(step + 1) * kv, 0.0)

    def _scale(self, fleet: Scaled, desired: Ints, step: int) -> None:
        serving, drain_s = fleet.ready.copy(), float(self._drain_s[step])
        drained = fleet.ask(desired, step=step, drain_s=drain_s, step_s=self.traffic.step_s)
        if np.count_nonzero(drained):
            drain_steps = round(drain_s / self.traffic.step_s)
            for queue in self.queues:
                # Of a draining replica's requests those fail that began too late to end within the timeout.
                unfinished = queue.hold_steps[step] - drain_steps
                if unfinished > 0:
                    queue.fail(
                        step, _share(drained, serving, queue.served[step] - queue.served[max(step - unfinished, 0)])
                    )

    def _crash(self, fleet: Scaled, step: int) -> None:
        serving = fleet.ready.copy()
        failed = fleet.crash(self._crashes[step], step)
        if failed.any():
            self.crashed += failed
            for queue in self.queues:
                queue.fail(step, _share(failed, serving, queue.in_flight(step)))


def tick_steps(traffic: Traffic, conditions: Conditions) -> int:
    """Steps between decisions. Raises ConfigError where they are not whole."""
    steps = round(conditions.tick_s / traffic.step_s)
    if steps < 1 or abs(steps * traffic.step_s - conditions.tick_s) > 1e-9:
        raise ConfigError(
            f"a tick of {conditions.tick_s:g} s is not a whole number of steps of {traffic.step_s:g} s",
            where="replay conditions",
            remedy="decide every few whole steps",
        )
    return steps


def hold_s(stream: Stream, conditions: Conditions) -> Floats:
    """[steps] how long the requests that arrive in a step are in flight: tokens out of one, times the time of each."""
    each = stream.tokens_out / np.maximum(stream.requests, 1e-12)
    held: Floats = np.where(stream.requests > 0, each, 0.0) * conditions.seconds_per_token
    return carried(held, stream.requests > 0)


def drain_s(traffic: Traffic, conditions: Conditions) -> Floats:
    """[steps] how long a replica drains that begins to in a step: as long as its longest requests, or the timeout."""
    longest: Floats = np.max([hold_s(stream, conditions) for stream in traffic.streams], axis=0)
    return np.minimum(longest, conditions.drain_timeout_s)


def kv_per_work(queue: Queue) -> Floats:
    """[steps] KV cache (tokens) that a replica-second of work in flight holds: its prompt, and half of its output,
    which grows from nothing."""
    stream = queue.stream
    tokens = stream.tokens_in + stream.tokens_out / 2
    known = queue.work > 0
    return carried(np.where(known, tokens / np.where(known, queue.work, 1.0), 0.0), known)


def carried(values: Floats, known: np.typing.NDArray[np.bool_]) -> Floats:
    """Steps without a value have that of the step before; those before the first have none, 0."""
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1))
    carried: Floats = np.where(last >= 0, values[np.maximum(last, 0)], 0.0)
    return carried


def _share(part: Ints, whole: Ints, work: Floats) -> Floats:
    share: Floats = work * part / np.maximum(whole, 1)
    return share


def _crashes(traffic: Traffic, conditions: Conditions, *, most: int, seed: int) -> dict[int, Ints]:
    """By step the slots that fail in it: a Poisson process for each of a pool's `most` slots. A lane is hit where it
    has a replica in that slot, so that it sees failures in proportion to its replicas, at the same times as others."""
    hours = traffic.steps * traffic.step_s / 3600
    rng = np.random.default_rng([seed, 1])
    expected = conditions.crashes_per_hour * hours
    number = rng.poisson(expected * most) if expected else 0
    steps, slots = rng.integers(traffic.steps, size=number), rng.integers(most, size=number)
    at: dict[int, list[int]] = {}
    for step, slot in zip(steps.tolist(), slots.tolist(), strict=True):
        at.setdefault(step, []).append(slot)
    return {step: np.unique(one) for step, one in at.items()}
