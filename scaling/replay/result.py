"""What a replay reports: cost, service, scaling, for every lane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from floorcast.pool import Pool
from scaling.capacity import Floats, Ints
from scaling.replay.conditions import Conditions
from scaling.replay.elasticity import elasticity
from scaling.replay.engine import Run
from scaling.replay.queue import Queue
from scaling.replay.traffic import Traffic
from scaling.replay.waits import Waits, quantiles, waits

LEVELS = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class ReplayResult:
    """A run with what it was run on. Lanes keep their order."""

    names: tuple[str, ...]
    traffic: Traffic
    pool: Pool
    conditions: Conditions
    run: Run

    @cached_property
    def figures(self) -> pl.DataFrame:
        """One row per lane, in order:

        lane; gpu_hours (of starting, ready and draining replicas), usd (null without a price), replicas_mean,
        replicas_max (paid for); tokens, on_time, late, given_up, waiting (tokens of first tries; they add up),
        on_time_share (of what no longer waits at the end, less what failed with its replica); wait_p50_s, wait_p95_s,
        wait_p99_s; retries (as a share of the work of first tries), failed (the same, of work lost in flight),
        crashes; scale_outs, scale_ins (decisions that changed the replicas desired); and SPEC's elasticity in percent:
        theta_u, theta_o, tau_u, tau_o, instability.
        """
        return pl.DataFrame([self._row(lane) for lane in range(len(self.names))])

    @cached_property
    def streams(self) -> pl.DataFrame:
        """One row per lane and stream: lane, stream, and the columns of `figures` from tokens to wait_p99_s."""
        rows = []
        for lane, name in enumerate(self.names):
            for queue, part in zip(self.run.queues, self.waits_of(lane), strict=True):
                rows.append(
                    {"lane": name, "stream": queue.stream.name, **_service([part], [queue], lane, self._longest_s)}
                )
        return pl.DataFrame(rows)

    def paths(self, *, every_s: float = 60.0) -> pl.DataFrame:
        """Columns lane, time, demand_replicas (work that arrived, as replicas at full capacity), desired, ready,
        starting, draining, as they were at the start of each interval; demand is its mean."""
        step_s, stride = self.traffic.step_s, max(round(every_s / self.traffic.step_s), 1)
        picked = slice(None, None, stride)
        times = pl.datetime_range(
            self.traffic.start,
            interval=f"{round(stride * step_s * 1e6)}us",
            end=self.traffic.start + pl.duration(microseconds=round((self.traffic.steps - 1) * step_s * 1e6)),
            time_zone="UTC",
            time_unit="us",
            eager=True,
        )
        demand = _mean(self._load, stride)
        columns = {
            name: getattr(self.run, name)[picked].T.ravel() for name in ("desired", "ready", "starting", "draining")
        }
        lanes = len(self.names)
        return pl.DataFrame(
            {
                "lane": np.repeat(np.array(self.names), len(times)),
                "time": pl.concat([times] * lanes),
                "demand_replicas": np.tile(demand, lanes),
                **columns,
            }
        )

    @property
    def _load(self) -> Floats:
        """[steps] replicas at full capacity that the arrivals of each step take."""
        load: Floats = np.sum([queue.work for queue in self.run.queues], axis=0) / self.traffic.step_s
        return load

    @property
    def _longest_s(self) -> float:
        """The longest wait told: until the last stream gives up, else until the end."""
        patience = max(stream.timeout_s for stream in self.traffic.streams)
        return min(patience, self.traffic.steps * self.traffic.step_s)

    def waits_of(self, lane: int) -> list[Waits]:
        """By stream, what its tokens waited in the lane at this position."""
        step_s, knee = self.traffic.step_s, self.conditions.knee
        served = np.sum([np.diff(queue.served[:, lane]) for queue in self.run.queues], axis=0)
        full = self.run.ready[:, lane] * step_s
        ttft_s = np.interp(served / np.maximum(full, step_s), knee.utilization, knee.ttft_s)
        return [
            waits(queue, lane, ttft_s=ttft_s, step_s=step_s, tokens=_tokens(queue, self.pool))
            for queue in self.run.queues
        ]

    def _row(self, lane: int) -> dict[str, object]:
        run, hours = self.run, self.traffic.step_s / 3600
        paid = run.ready[:, lane] + run.starting[:, lane] + run.draining[:, lane]
        gpu_hours = float(paid.sum()) * hours * self.pool.gpu.per_replica
        price = self.pool.gpu.usd_per_gpu_hour
        change = np.diff(run.desired[:, lane])
        first_tries = sum(float(queue.work.sum()) for queue in run.queues)
        return {
            "lane": self.names[lane],
            "gpu_hours": gpu_hours,
            "usd": gpu_hours * price if price else None,
            "replicas_mean": float(paid.mean()),
            "replicas_max": int(paid.max()),
            **_service(self.waits_of(lane), list(run.queues), lane, self._longest_s),
            "retries": sum(float(queue.retried[lane]) for queue in run.queues) / max(first_tries, 1e-12),
            "failed": sum(float(queue.failed[lane]) for queue in run.queues) / max(first_tries, 1e-12),
            "crashes": int(run.crashed[lane]),
            "scale_outs": int((change > 0).sum()),
            "scale_ins": int((change < 0).sum()),
            **self._elasticity(run.ready[:, lane]),
        }

    def _elasticity(self, ready: Ints) -> dict[str, float]:
        """Of minutes: replicas at full capacity that each minute's arrivals take, whole, against those ready."""
        stride = max(round(60 / self.traffic.step_s), 1)
        demand = np.ceil(_mean(self._load, stride) - 1e-9)
        return elasticity(demand=demand, supply=_mean(ready.astype(np.float64), stride))._asdict()


def _tokens(queue: Queue, pool: Pool) -> Floats:
    """[steps] tokens that this pool serves of a stream."""
    stream = queue.stream
    if pool.role == "prefill":
        return stream.tokens_in
    if pool.role == "decode":
        return stream.tokens_out
    return stream.tokens_in + stream.tokens_out


def _service(parts: list[Waits], queues: list[Queue], lane: int, longest_s: float) -> dict[str, float]:
    sums = {
        name: sum(float(getattr(part, name).sum()) for part in parts)
        for name in ("tokens", "on_time", "late", "given_up", "waiting")
    }
    lost = sum(
        float(queue.failed[lane]) / max(float(queue.work.sum()), 1e-12) * float(part.tokens.sum())
        for part, queue in zip(parts, queues, strict=True)
    )
    settled = sums["tokens"] - sums["waiting"]
    p50, p95, p99 = quantiles(parts, LEVELS, longest_s=longest_s)
    share = max(sums["on_time"] - lost, 0.0) / settled if settled > 0 else 1.0
    return {**sums, "on_time_share": share, "wait_p50_s": p50, "wait_p95_s": p95, "wait_p99_s": p99}


def _mean(values: Floats, stride: int) -> Floats:
    """Means of so many in a row; the last may be of fewer."""
    starts = np.arange(0, len(values), stride)
    means: Floats = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return means
