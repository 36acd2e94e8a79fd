"""What the policy is shown of a replay: late, and only what metrics can tell."""

from __future__ import annotations

import numpy as np

from scaling.capacity import Floats
from scaling.overlay.signals import Kind, Signals
from scaling.overlay.state import QUEUES
from scaling.replay.engine import Engine, carried, tick_steps
from scaling.replay.lanes import Lanes
from scaling.replay.queue import Queue

_RATES = slice(Kind.TOKENS_IN_PER_S, Kind.TOKENS_OUT_PER_S + 1)


class Observer:
    """Signals of an engine at a step, as old as the conditions say.

    Rates are means over the last tick before they were read. Replica counts are fresh: the cluster knows them. TTFT is
    that of a request arriving then: the first stream's queue over the throughput, and the knee's time at that load.
    """

    def __init__(self, engine: Engine, lanes: Lanes, *, seed: int) -> None:
        self._engine, self._lanes = engine, lanes
        self._ticks = tick_steps(engine.traffic, engine.conditions)
        number = -(-engine.traffic.steps // self._ticks)
        low, high = engine.conditions.metric_age_s
        self._age_steps = np.round(np.random.default_rng([seed, 2]).uniform(low, high, number) / engine.traffic.step_s)
        self._per_work = [_per_work(queue) for queue in engine.queues]
        ahead = lanes.floors if lanes.floors_ahead is None else lanes.floors_ahead
        self._floors, self._ahead = lanes.floors.astype(np.float64), ahead.astype(np.float64)
        self._expected = np.full(lanes.floors.shape, np.nan) if lanes.ahead is None else lanes.ahead
        self._ceiling = np.full(lanes.count, float(engine.pool.bounds.max))
        self._unscheduled = np.full(lanes.count, np.nan)
        self._live = np.full((len(Kind), lanes.count), np.nan)

    def signals(self, step: int) -> Signals:
        """What is known at the beginning of a step. Nothing is, of the time before the first."""
        engine, lanes = self._engine, self._lanes
        age = int(self._age_steps[step // self._ticks])
        live = self._live.copy()
        if step - age > 0:
            self._fill(live, step - age)
        fleet, window = engine.fleet, lanes.window_at(step, engine.traffic.step_s)
        ready, starting = fleet.ready.astype(np.float64), fleet.starting.astype(np.float64)
        return Signals(
            live=live,
            age_s=np.full(live.shape, age * engine.traffic.step_s),
            ready=ready,
            starting=starting,
            draining=fleet.draining.astype(np.float64),
            requested=ready + starting,
            floor=self._floors[window],
            ceiling=self._ceiling,
            floor_ahead=self._ahead[window],
            ahead=self._expected[window],
            scheduled=self._unscheduled,
        )

    def _fill(self, live: Floats, edge: int) -> None:
        """The live signals at an edge, in place."""
        engine, conditions = self._engine, self._engine.conditions
        at, since = edge - 1, max(edge - self._ticks, 0)
        per_s = 1 / ((edge - since) * engine.traffic.step_s)
        live[: Kind.WAITING_TOKENS_OUT + 1] = 0.0
        served = np.zeros(self._lanes.count)
        for queue, per_work in zip(engine.queues, self._per_work, strict=True):
            done = queue.served[edge] - queue.served[since]
            counted = done if conditions.counted == "served" else queue.arrived[edge] - queue.arrived[since]
            waits = queue.arrived[edge] - queue.done[edge]
            live[_RATES] += counted * (per_work[at, 1:] * per_s)
            live[QUEUES] += waits * per_work[at]
            served += done
        # Without a ready replica, what only replicas tell is missing.
        ready = np.where(engine.ready[at] > 0, engine.ready[at], np.nan)
        utilization, knee = served * per_s / ready, conditions.knee
        first = engine.queues[0]
        queued_s = (first.arrived[edge] - first.done[edge]) / (ready * knee.most)
        ttft_s = queued_s + np.interp(utilization, knee.utilization, knee.ttft_s)
        live[Kind.TTFT_P95_S] = ttft_s
        requests, prompts, _ = self._per_work[0][at, :, 0].tolist()
        if prompts > 0:
            live[Kind.TTFT_P95_S_PER_1K_PROMPT] = ttft_s * (1000 * requests / prompts)
        live[Kind.GPU_UTILIZATION] = np.minimum(utilization, 1.0)
        if np.isfinite(conditions.kv_tokens):
            live[Kind.KV_CACHE_USAGE] = np.minimum(engine.kv_used(edge) / (ready * conditions.kv_tokens), 1.0)
        if conditions.seconds_per_token > 0:
            live[Kind.ITL_P95_S] = conditions.seconds_per_token


def _per_work(queue: Queue) -> Floats:
    """[steps, 3, 1] requests, tokens in and tokens out of a replica-second of work; as last known where none came."""
    stream, known = queue.stream, queue.work > 0
    each = np.where(known, queue.work, 1.0)
    ratios = [carried(one / each, known) for one in (stream.requests, stream.tokens_in, stream.tokens_out)]
    return np.stack(ratios, axis=1)[..., None]
