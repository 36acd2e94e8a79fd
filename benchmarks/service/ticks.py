"""How long a tick takes: pure, from floors, live signals and memory to decisions."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from floorcast.pool import Pool
from pipelines.service.clock import advance
from pipelines.service.decisions import Decisions
from pipelines.service.floors import FloorGrid
from pipelines.service.memory import fresh
from pipelines.service.tick import Calendars, fleet_of, tick
from scaling.overlay.signals import snapshot

_WINDOWS, _WINDOW_S, _TICK_S = 576, 300.0, 15.0
_AT = datetime(2026, 11, 30, 8, tzinfo=UTC)


def tick_ms(pools: int, *, ticks: int = 40) -> float:
    """The median tick over so many pools with all signals of `hybrid`, whose loads change all the time. Reading the
    signals and writing the state, which wait for others, are left out."""
    pool = Pool.model_validate(
        {
            "gpu": {"type": "H100"},
            "capacity": {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600},
            "startup": {"p90": "4m"},
            "bounds": {"min": 1, "max": 40},
        }
    )
    rng = np.random.default_rng(7)
    fleet = fleet_of({f"pool-{number}": pool for number in range(pools)})
    floors = rng.integers(1, 20, (_WINDOWS, pools)).astype(np.float64)
    grid = FloorGrid(_AT.timestamp(), _WINDOW_S, floors)
    nothing = np.full(pools, np.nan)
    memory, taken = fresh(fleet.pools, wall_s=_AT.timestamp()), []
    for number in range(ticks):
        now, mono_s = _AT + timedelta(seconds=_TICK_S * number), _TICK_S * number
        live = snapshot(
            pools,
            age_s=5.0,
            tokens_in_per_s=rng.uniform(0, 80_000, pools),
            tokens_out_per_s=rng.uniform(0, 30_000, pools),
            waiting_requests=rng.integers(0, 50, pools),
            waiting_tokens_in=rng.uniform(0, 50_000, pools),
            waiting_tokens_out=rng.uniform(0, 9_000, pools),
            kv_cache_usage=rng.uniform(0, 1, pools),
            ready=rng.integers(1, 20, pools),
        )
        began = time.perf_counter()
        clock = advance(memory.clock, wall_s=now.timestamp(), mono_s=mono_s, tick_s=_TICK_S)
        calendars = Calendars(nothing, nothing)
        ticked = tick(fleet, grid, "valid", live, calendars, replace(memory, clock=clock), now)
        Decisions(ticked, None)
        taken.append(1000 * (time.perf_counter() - began))
        memory = ticked.memory
    return float(np.median(taken))
