"""The cheapest replicas that keep the promise when demand is known: what every policy is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from floorcast.errors import DataError
from floorcast.pool import Pool
from scaling.capacity import Floats, Ints
from scaling.replay.conditions import Conditions, Knee
from scaling.replay.engine import drain_s
from scaling.replay.replay import replay_paths
from scaling.replay.result import ReplayResult
from scaling.replay.taut import taut_string
from scaling.replay.traffic import Stream, Traffic, work

CLAIRVOYANT = "clairvoyant"
_CANDIDATES = 16
_HIGHER = 4
_LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""In startups."""
_ROUNDING = 1e-9


class _Tried(NamedTuple):
    """What a path is made from: needs cut at `cap` replicas, waits in whole steps or not, and the shortest interval (in
    steps) that a replica beyond the lasting ones is started for."""

    cap: int
    whole: bool
    shortest: int


@dataclass(frozen=True)
class _Candidate:
    """Replicas in each step, [steps] each."""

    ready: Ints
    starting: Ints
    draining: Ints

    @property
    def paid(self) -> int:
        return int((self.ready + self.starting + self.draining).sum())


def clairvoyant(
    traffic: Traffic, *, pool: Pool, conditions: Conditions, on_time: float, min_uptime_s: float = 0.0
) -> ReplayResult:
    """One lane, `clairvoyant`: replicas that serve at least `on_time` of the tokens on time, as its replay shows.

    It knows demand, not magic: every start is paid for over the mean of the measured startups before it serves, every
    replica drains, and is up for `min_uptime_s` at least. It is nowhere told of crashes and has none.

    1. Work must be done between two curves: what has arrived, and what arrived a permitted wait ago. For each stream
       with those more urgent, whose work comes first. The straightest curve between the two (`taut_string`) needs the
       lowest peaks; its slope, over what a replica can give and still answer in time, is rounded up to whole replicas.
    2. Of those, the first replica, the second and so on are each needed over some intervals. One is kept through a gap
       that costs no more than draining and starting again, else released: the optimum for given needs.
    3. Where some tokens may be late, needs are cut at a number of replicas, and what is over it served as soon as that
       many can; then intervals too short to be worth a start are left out. Of up to 16 numbers, and from the best of
       them on of some lengths, the cheapest path is taken whose replay is on time.

    The path is feasible, so that the true optimum is no dearer. Raises DataError where no path within the pool's bounds
    is on time.
    """
    uncut = _needs(traffic, pool, conditions.knee, cap=None, whole=True)
    most = max(int(min(uncut.max(), pool.bounds.max)), 1)
    least = min(max(int(uncut.mean()), 1), most)
    number = min(_CANDIDATES, most - least + 1) if on_time < 1 else 1
    caps = np.unique(np.linspace(most, least, number).round().astype(np.int64)).tolist()
    startup = _startup_steps(traffic, conditions)

    @cache
    def needs(cap: int, whole: bool) -> Ints:
        return _needs(traffic, pool, conditions.knee, cap=cap, whole=whole)

    def best(tried: list[_Tried]) -> tuple[_Tried, ReplayResult]:
        paths = [
            _path(needs(cap, whole), traffic, pool, conditions, uptime_s=min_uptime_s, shortest=shortest)
            for cap, whole, shortest in tried
        ]
        result = _replayed(traffic, paths, pool, conditions)
        shares = result.figures["on_time_share"].to_list()
        on_time_paid = [
            (path.paid, place)
            for place, (path, share) in enumerate(zip(paths, shares, strict=True))
            if share >= on_time - _ROUNDING
        ]
        if not on_time_paid:
            raise DataError(
                f"at most {max(shares):.2%} of the tokens can be on time with {most} replicas, not {on_time:.2%}",
                where=CLAIRVOYANT,
                remedy="raise bounds.max or slo.max_wait, or lower slo.on_time",
            )
        _, chosen = min(on_time_paid)
        return tried[chosen], _replayed(traffic, [paths[chosen]], pool, conditions)

    first, found = best([_Tried(cap, whole, 0) for cap in caps for whole in (True, False)])
    if on_time == 1:
        return found
    lengths = [0, *sorted({max(round(startup * factor), 1) for factor in _LENGTHS})]
    higher = [cap for cap in caps if cap >= first.cap][:_HIGHER]
    return best([_Tried(cap, first.whole, shortest) for cap in higher for shortest in lengths])[1]


def _replayed(traffic: Traffic, paths: list[_Candidate], pool: Pool, conditions: Conditions) -> ReplayResult:
    return replay_paths(
        traffic,
        (CLAIRVOYANT,) * len(paths),
        np.stack([path.ready for path in paths], axis=1),
        pool=pool,
        conditions=conditions,
        starting=np.stack([path.starting for path in paths], axis=1),
        draining=np.stack([path.draining for path in paths], axis=1),
    )


def _needs(traffic: Traffic, pool: Pool, knee: Knee, *, cap: int | None, whole: bool) -> Ints:
    """[steps] replicas that serve every stream within its wait, or, with a cap, as soon as so many can. With `whole`
    the wait counts as whole steps; else it is interpolated, which may break it within a step."""
    needs = np.zeros(traffic.steps, dtype=np.int64)
    before = np.zeros(traffic.steps + 1)
    for stream in traffic.streams:
        rate, wait_steps = _usable(stream, knee, traffic.step_s)
        wait_steps = np.floor(wait_steps) if whole else wait_steps
        arrived = np.concatenate([[0.0], np.cumsum(work(stream, pool, traffic.step_s))])
        edges = np.arange(traffic.steps + 1)
        due = before + np.interp(edges - wait_steps, edges, arrived, left=0.0)
        upper = before + arrived
        if cap is not None:
            due = np.minimum(due, _served(upper, cap * rate * traffic.step_s))
        per_replica = rate * traffic.step_s
        slope = np.diff(taut_string(due, upper)) / per_replica
        needs = np.maximum(needs, np.ceil(slope - _ROUNDING * np.maximum(slope, 1)).astype(np.int64))
        before = upper
    return needs


def _usable(stream: Stream, knee: Knee, step_s: float) -> tuple[float, float]:
    """The throughput (multiple of C) at which a replica's own time to first token leaves some of the wait, and the
    steps that are left: at the most it can give, or else where its time is half of the wait."""
    rate, ttft_s = knee.most, knee.ttft_s[-1]
    if ttft_s >= stream.max_wait_s:
        rate = float(np.interp(stream.max_wait_s / 2, knee.ttft_s, knee.utilization))
        ttft_s = stream.max_wait_s / 2
    return rate, max(stream.max_wait_s - ttft_s, 0.0) / step_s


def _served(arrived: Floats, per_step: float) -> Floats:
    """[edges] how far a queue has come that serves so much a step: P(t) = min over s <= t of A(s) + (t - s) per_step
    (Reich's formula)."""
    drift = per_step * np.arange(len(arrived))
    # Sums of many steps differ by their noise; nothing is served before it arrives.
    served: Floats = np.minimum(np.minimum.accumulate(arrived - drift) + drift, arrived)
    return served


def _startup_steps(traffic: Traffic, conditions: Conditions) -> int:
    return max(1, int(np.ceil(conditions.startup_s.mean() / traffic.step_s)))


def _path(
    needs: Ints, traffic: Traffic, pool: Pool, conditions: Conditions, *, uptime_s: float, shortest: int
) -> _Candidate:
    """The cheapest replicas that are never fewer than the needs (or `bounds.min`), but for intervals shorter than
    `shortest` steps."""
    steps, step_s = traffic.steps, traffic.step_s
    needs = np.maximum(needs, pool.bounds.min)
    startup = _startup_steps(traffic, conditions)
    drains = np.maximum(np.ceil(drain_s(traffic, conditions) / step_s).astype(np.int64), 1)
    uptime = int(np.ceil(uptime_s / step_s))
    ready, starting, draining = (np.zeros(steps + 1, dtype=np.int64) for _ in range(3))
    for level in range(1, int(needs.max(initial=0)) + 1):
        begin, end = _kept(needs >= level, startup, drains, uptime)
        worth = (end - begin >= shortest) | (begin == 0)
        begin, end = begin[worth], end[worth]
        for at, sign in ((begin, 1), (end, -1)):
            np.add.at(ready, at, sign)
        np.add.at(starting, np.maximum(begin - startup, 0), np.where(begin > 0, 1, 0))
        np.add.at(starting, begin, np.where(begin > 0, -1, 0))
        released = end[end < steps]
        np.add.at(draining, released, 1)
        np.add.at(draining, np.minimum(released + drains[np.minimum(released, steps - 1)], steps), -1)
    return _Candidate(*(np.cumsum(changes)[:steps] for changes in (ready, starting, draining)))


def _kept(needed: npt.NDArray[np.bool_], startup: int, drains: Ints, uptime: int) -> tuple[Ints, Ints]:
    """Begin and end (excluded) of the intervals over which a replica is ready that is needed at these steps."""
    change = np.diff(np.concatenate([[False], needed, [False]]).astype(np.int8))
    begin, end = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
    end = np.minimum(np.maximum(end, begin + uptime), len(needed))
    end = np.maximum.accumulate(end)
    # A gap is bridged where being ready through it is no dearer than draining and starting once more.
    apart = begin[1:] - end[:-1] > startup + drains[np.minimum(end[:-1], len(drains) - 1)]
    return begin[np.concatenate([[True], apart])], end[np.concatenate([apart, [True]])]
