"""What settings would have cost and kept, day by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from floorcast.pool import Pool
from floorcast.tuning import TunedSettings
from scaling.capacity import Floats, Ints
from scaling.ladder import Grid
from scaling.moves import Limits
from scaling.overlay.growth import loads_ahead
from scaling.overlay.lanes import concatenate
from scaling.overlay.settings import settings_of as overlay_settings
from scaling.replay.conditions import Conditions
from scaling.replay.lanes import Lanes, overlay_policy
from scaling.replay.replay import replay
from scaling.replay.result import ReplayResult
from scaling.replay.traffic import Traffic
from scaling.tuning.candidates import with_settings
from scaling.tuning.floors import past_floors, plain_minimums

DAY_S = 86_400.0
_AT_ONCE = 160
"""Settings replayed together: more take memory, fewer take time."""


@dataclass(frozen=True)
class Outcome:
    """[days] each: GPU-hours with those of starting and draining replicas, and tokens on time of those settled."""

    gpu_hours: Floats
    on_time: Floats
    settled: Floats


@dataclass(frozen=True)
class Past:
    """A pool's past, of whole days. `traffic` is what came on the grid's steps; `rates` [metrics, steps, levels] what
    was forecast of the lead window's busiest minutes at the beginning of each, and `mean_rates` of its steps' means;
    `limits` what the calendar said then; and `load` what each step took, in replicas at full use, from before the grid
    on and up to its end.
    `conditions` are without crashes and failures."""

    pool: Pool
    traffic: Traffic
    conditions: Conditions
    grid: Grid
    rates: Floats
    mean_rates: Floats
    limits: Limits
    load: Floats
    seed: int = 0
    _expected: dict[float, Floats] = field(default_factory=dict)

    @property
    def days(self) -> int:
        return round(self.traffic.steps * self.traffic.step_s / DAY_S)

    def floors(self, pool: Pool) -> Ints:
        """[steps] those that were due under other settings of the pool."""
        return past_floors(pool, self.rates if pool.margin.peak else self.mean_rates, self.grid, self.limits)

    def ahead_at(self, level: float) -> Floats:
        """[steps] the load that `lookahead` saw coming at the beginning of each step."""
        if level not in self._expected:
            before = len(self.load) - self.grid.count
            [self._expected[level]] = loads_ahead(
                self.load,
                at=np.arange(before, len(self.load)),
                step_s=self.grid.step.total_seconds(),
                ahead_s=self.pool.startup.p90.total_seconds(),
                lookahead=self.pool.overlay.lookahead,
                levels=(level,),
            )
        return self._expected[level]


def outcomes(past: Past, settings: Sequence[TunedSettings]) -> list[Outcome]:
    """One replay for all settings, as lanes that do not see each other."""
    done: list[Outcome] = []
    for begin in range(0, len(settings), _AT_ONCE):
        done += _replayed(past, settings[begin : begin + _AT_ONCE])
    return done


def outcome_of(result: ReplayResult, lane: int) -> Outcome:
    """By day of a replay that begins with one."""
    run, traffic = result.run, result.traffic
    paid = (run.ready[:, lane] + run.starting[:, lane] + run.draining[:, lane]).astype(np.float64)
    waits = result.waits_of(lane)
    on_time = np.sum([one.on_time for one in waits], axis=0)
    settled = np.sum([one.tokens - one.waiting for one in waits], axis=0)
    starts = np.arange(0, traffic.steps, round(DAY_S / traffic.step_s))
    return Outcome(
        gpu_hours=np.add.reduceat(paid, starts) * traffic.step_s / 3600 * result.pool.gpu.per_replica,
        on_time=np.add.reduceat(on_time, starts),
        settled=np.add.reduceat(settled, starts),
    )


def _replayed(past: Past, settings: Sequence[TunedSettings]) -> list[Outcome]:
    pools = [with_settings(past.pool, one) for one in settings]
    plain = plain_minimums(past.pool, past.rates, past.grid, past.limits)
    floors = [plain if one.quantile is None else past.floors(pool) for one, pool in zip(settings, pools, strict=True)]
    lanes = Lanes(
        names=tuple(str(place) for place in range(len(settings))),
        floors=np.stack(floors, axis=1),
        window_s=past.grid.step.total_seconds(),
        overlay=np.ones(len(settings), dtype=np.bool_),
        ahead=np.stack(
            [
                past.ahead_at(one.lookahead_quantile) if one.policy == "lookahead" else np.full(past.grid.count, np.nan)
                for one in settings
            ],
            axis=1,
        ),
    )
    result = replay(
        past.traffic,
        lanes,
        pool=past.pool,
        conditions=past.conditions,
        policy=overlay_policy(concatenate([overlay_settings([pool]) for pool in pools])),
        seed=past.seed,
    )
    return [outcome_of(result, lane) for lane in range(len(settings))]
