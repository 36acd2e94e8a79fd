"""What a replay assumes of replicas, clients and metrics, beside the pool's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Literal

import numpy as np

from floorcast.errors import ConfigError
from floorcast.pool import Pool
from scaling.capacity import Floats


@dataclass(frozen=True)
class Knee:
    """Continuous batching's knee: time to first token (s) of a replica by its throughput as a multiple of C.

    Linear between the points. The last is all that a replica can give, which it does where work is waiting: more
    tokens than C, and slowly. The default is what was measured of a 70B model on two H100 (0.83 s at the concurrency
    that sustains the SLO; twice that gave 13 % more throughput and 8.0 s), with 0.2 s unloaded as an assumption.
    """

    utilization: tuple[float, ...] = (0.0, 1.0, 1.13)
    ttft_s: tuple[float, ...] = (0.2, 0.83, 8.0)

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in pairwise(self.utilization))
        slower = all(low <= high for low, high in pairwise(self.ttft_s))
        if not (rising and slower and len(self.utilization) == len(self.ttft_s) and self.ttft_s[0] >= 0):
            raise ConfigError(
                "the points of the knee do not rise",
                where="knee",
                remedy="give as many times as utilizations, both from the smallest to the largest",
            )

    @property
    def most(self) -> float:
        """The greatest throughput, as a multiple of C."""
        return self.utilization[-1]


NO_KNEE = Knee((0.0, 1.0), (0.0, 0.0))
"""Replicas that give C at most and answer at once: the fluid queue of the textbooks."""


@dataclass(frozen=True)
class Conditions:
    """All times in seconds. What is drawn is drawn from the replay's seed.

    - startup_s: measured startups, from asked for to serving; each start draws one of them.
    - seconds_per_token: how long a request in flight takes for one token out. A request takes up its replica's KV cache
      for as long, and a draining replica waits for it. 0: requests end as they begin.
    - kv_tokens: what the KV cache of one replica holds. No request begins where it is full.
    - drain_timeout_s: a draining replica is ended after that, and the client sees what was in flight fail.
    - retry_share, retry_delay_s: of the requests that timed out or failed, so many come again after so long.
    - crashes_per_hour: of one replica. It is started anew.
    - metric_age_s: how old live metrics are when they are read, drawn evenly from between the two at every tick.
    - tick_s: how often the policy decides.
    - counted: whether token rates count tokens as they arrive (a gateway) or as they are served (an engine).
    """

    startup_s: Floats
    knee: Knee = field(default=Knee())
    seconds_per_token: float = 0.0
    kv_tokens: float = inf
    drain_timeout_s: float = 300.0
    retry_share: float = 0.0
    retry_delay_s: float = 10.0
    crashes_per_hour: float = 0.0
    metric_age_s: tuple[float, float] = (15.0, 60.0)
    tick_s: float = 30.0
    counted: Literal["arrived", "served"] = "served"

    def __post_init__(self) -> None:
        bad = {
            "startup_s": not (
                len(self.startup_s) and np.isfinite(self.startup_s).all() and (self.startup_s >= 0).all()
            ),
            "seconds_per_token": not 0 <= self.seconds_per_token < inf,
            "kv_tokens": not self.kv_tokens > 0,
            "drain_timeout_s": not 0 <= self.drain_timeout_s < inf,
            "retry_share": not 0 <= self.retry_share <= 1,
            "retry_delay_s": not 0 < self.retry_delay_s < inf,
            "crashes_per_hour": not 0 <= self.crashes_per_hour < inf,
            "metric_age_s": not 0 <= self.metric_age_s[0] <= self.metric_age_s[1] < inf,
            "tick_s": not 0 < self.tick_s < inf,
        }
        if any(bad.values()):
            raise ConfigError(
                f"{', '.join(name for name, is_bad in bad.items() if is_bad)}: out of range",
                where="replay conditions",
                remedy="give at least one startup, times that are not negative, and shares from 0 to 1",
            )


def conditions_of(pool: Pool) -> Conditions:
    """What the configuration says: every startup takes the pool's p90."""
    return Conditions(
        startup_s=np.array([pool.startup.p90.total_seconds()]),
        drain_timeout_s=pool.overlay.drain_timeout.total_seconds(),
    )
