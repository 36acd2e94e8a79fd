"""Policies side by side on one pool's demand: what each costs at the pool's promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import polars as pl

from floorcast.errors import DataError
from floorcast.overlay import Policy as PolicyName
from floorcast.pool import Pool
from scaling.capacity import Floats, Ints
from scaling.overlay.growth import loads_ahead
from scaling.overlay.lanes import concatenate
from scaling.overlay.settings import settings_of
from scaling.replay.baselines import last_value, managed, seasonal_naive, static_mean, static_peak, whole
from scaling.replay.clairvoyant import clairvoyant
from scaling.replay.conditions import Conditions
from scaling.replay.front import front
from scaling.replay.lanes import Lanes, overlay_policy
from scaling.replay.replay import replay
from scaling.replay.traffic import Traffic

MARGINS = (-0.25, -0.1, 0.0, 0.15, 0.3, 0.5, 0.8)
_DAY_S = 86400.0
_NEEDS_CALENDAR = "scheduled"


@dataclass(frozen=True)
class Comparison:
    """`figures` are those of `ReplayResult`, one row per policy and margin, with policy, margin (null where a policy
    has none) and `on_front`, ordered by policy and cost. `best` is the clairvoyant's row; where nothing can keep the
    promise within the pool's bounds it is None, and `impossible` says so.
    """

    figures: pl.DataFrame
    best: dict[str, float] | None
    impossible: str

    def at_promise(self, on_time: float) -> pl.DataFrame:
        """One row per policy: the cheapest margin tried that kept the promise, else the one that was on time most, with
        `kept` and `over_clairvoyant` (null without one). Those that kept it first, cheapest first."""
        kept = self.figures.with_columns(kept=pl.col("on_time_share") >= on_time - 1e-9)
        order = ["kept", pl.when("kept").then("gpu_hours").otherwise(-pl.col("on_time_share")), "gpu_hours"]
        chosen = kept.sort(order, descending=[True, False, False]).group_by("policy", maintain_order=True).first()
        best = None if self.best is None else self.best["gpu_hours"]
        return chosen.with_columns(over_clairvoyant=pl.col("gpu_hours") / pl.lit(best, pl.Float64))


@dataclass(frozen=True)
class _Candidate:
    policy: str
    margin: float | None
    floors: Ints
    pool: Pool | None
    """With the overlay that acts above the floors; None for none."""


def compare(
    traffic: Traffic,
    *,
    pool: Pool,
    conditions: Conditions,
    required: Floats,
    window_s: float,
    floors: Mapping[str, Ints],
    seed: int = 0,
    margins: Sequence[float] = MARGINS,
) -> Comparison:
    """Replay static replicas, every overlay policy alone, and the overlay above others' floors and `floors` [windows].

    `required` [windows] are the replicas that each window took at the target utilization; it ends with the traffic and
    may begin long before it, so that floors from past days have some. What a margin means depends on the policy: floors
    are so much higher, and an overlay without floors aims at a utilization so much lower. Raises DataError where
    `required` does not reach back to the start of the traffic.
    """
    windows = -(-round(traffic.steps * traffic.step_s) // round(window_s))
    before = len(required) - windows
    if before < 0:
        raise DataError(
            f"demand of {len(required)} windows for {windows} of traffic",
            where="replay",
            remedy="give the windows that the traffic is made of, and those before them",
        )
    lowest = np.full(windows, pool.bounds.min)
    candidates = [
        _Candidate("static_peak", None, static_peak(required[before:]), None),
        _Candidate("static_mean", None, static_mean(required[before:]), None),
    ]
    for name in get_args(PolicyName):
        if name != _NEEDS_CALENDAR:
            overlay = pool.overlay.model_copy(update={"policy": name, "also": ()})
            candidates += [
                _Candidate(name, margin, lowest, _aiming_lower(pool.model_copy(update={"overlay": overlay}), margin))
                for margin in margins
            ]
    ahead = int(np.ceil(pool.startup.p90.total_seconds() / window_s)) + 1
    season = round(_DAY_S / window_s)
    for margin in margins:
        others = {
            "last_value": last_value(required, margin=margin),
            "seasonal_naive": seasonal_naive(required, season=season, ahead=ahead, margin=margin),
            "managed": managed(required, window_s=window_s, margin=margin),
        }
        ours = {name: whole(one.astype(np.float64) * (1 + margin)) for name, one in floors.items()}
        both = {name: one[before:] for name, one in others.items()} | ours
        candidates += [_Candidate(name, margin, one, pool) for name, one in both.items()]
    expected = _expected(required, pool, before=before, window_s=window_s)
    figures = _replayed(traffic, candidates, pool, conditions, expected, window_s=window_s, seed=seed)
    try:
        found = clairvoyant(traffic, pool=pool, conditions=conditions, on_time=pool.slo.on_time)
    except DataError as error:
        return Comparison(figures, None, error.what)
    return Comparison(figures, found.figures.row(0, named=True), "")


def _aiming_lower(pool: Pool, margin: float) -> Pool:
    target = (pool.overlay.target_utilization or pool.capacity.target_utilization) / (1 + margin)
    return pool.model_copy(update={"overlay": pool.overlay.model_copy(update={"target_utilization": min(target, 1.0)})})


def _expected(required: Floats, pool: Pool, *, before: int, window_s: float) -> Floats:
    """[windows] of the traffic."""
    load, ahead_s = required * pool.capacity.target_utilization, pool.startup.p90.total_seconds()
    at = np.arange(before, len(load))
    lookahead = pool.overlay.lookahead
    levels = (lookahead.quantile,)
    found: Floats = loads_ahead(load, at=at, step_s=window_s, ahead_s=ahead_s, lookahead=lookahead, levels=levels)[0]
    return found


def _replayed(
    traffic: Traffic,
    candidates: list[_Candidate],
    pool: Pool,
    conditions: Conditions,
    expected: Floats,
    *,
    window_s: float,
    seed: int,
) -> pl.DataFrame:
    lanes = Lanes(
        names=tuple(f"{one.policy} {one.margin:+.0%}" if one.margin is not None else one.policy for one in candidates),
        floors=np.stack([one.floors for one in candidates], axis=1),
        window_s=window_s,
        overlay=np.array([one.pool is not None for one in candidates]),
        ahead=np.repeat(expected[:, None], len(candidates), axis=1),
    )
    settings = concatenate([settings_of([one.pool or pool]) for one in candidates])
    done = replay(traffic, lanes, pool=pool, conditions=conditions, policy=overlay_policy(settings), seed=seed)
    return front(
        done.figures.with_columns(
            policy=pl.Series([one.policy for one in candidates], dtype=pl.String),
            margin=pl.Series([one.margin for one in candidates], dtype=pl.Float64),
        )
    )
