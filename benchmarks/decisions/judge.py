"""One class: settings and gate from the days before the last four, judged on those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.decisions.data import MINUTES_PER_DAY
from benchmarks.decisions.policies import Lane, Task, Variant, others_floors, run
from benchmarks.decisions.tuned import ON_TIME, Gate, Tuned, gate, tune
from floorcast.errors import DataError
from scaling.replay.clairvoyant import CLAIRVOYANT, clairvoyant
from scaling.replay.front import cost_at

OVERLAY, FORECAST, FLOORCAST = "overlay", "forecast", "floorcast"
"""The overlay alone, led by the forecast whether or not that pays, and whichever of the two the gate picks."""
OTHERS = ("last_value", "seasonal_naive", "managed")
TUNED_DAYS, JUDGED_DAYS = 8, 4
MISSED = -1.0
"""The gap closed where the overlay keeps the promise and what the gate picked does not, at no setting."""
_FINE = 42
_UTILIZATIONS = {OVERLAY: (0.08, 1.3), FORECAST: (0.2, 1.6)}
"""Swept alike at every startup. Bursts from next to nothing leave an overlay alone no other way to keep a promise than
to idle at a few per cent."""
_MARGINS = np.linspace(-0.9, 1.5, 9)


@dataclass(frozen=True)
class Judged:
    """`row` is the class's outcome, `figures` one row per lane of the judged days, `paths` their decisions."""

    row: dict[str, Any]
    figures: pl.DataFrame
    paths: pl.DataFrame


def judge(task: Task) -> Judged:
    """Tune both on the days before the last four, then sweep each one's utilization over those. What is shorter than
    eight days is judged on its second half."""
    judged = max(len(task.load) - JUDGED_DAYS * MINUTES_PER_DAY, len(task.load) // 2)
    # A forecast needs a day, and one more to have something to go by.
    begin = max(judged - TUNED_DAYS * MINUTES_PER_DAY, 2 * MINUTES_PER_DAY)
    sweeps = {policy == FORECAST: utilizations for policy, utilizations in _UTILIZATIONS.items()}
    found = tune(task, utilizations=sweeps, first=begin if begin < judged else 0, last=judged)
    tuned = {OVERLAY: found[False], FORECAST: found[True]}
    told = gate(tuned[FORECAST], tuned[OVERLAY], np.random.default_rng(0))
    lanes = [
        Lane(policy, tuned[policy].variant, utilization)
        for policy, utilizations in _UTILIZATIONS.items()
        for utilization in np.geomspace(*utilizations, _FINE).tolist()
    ]
    lanes += _others(task, tuned[OVERLAY])
    result = run(task, lanes, first=judged, last=len(task.load))
    picked = FORECAST if told.opened else OVERLAY
    figures = with_pick(result.figures.with_columns(policy=pl.Series([lane.policy for lane in lanes])), picked)
    paths = with_pick(_named(result.paths(), lanes, task), picked)
    costs = dict(cost_at(figures, ON_TIME).iter_rows())
    try:
        perfect = clairvoyant(
            task.traffic(judged, len(task.load)), pool=task.pool, conditions=task.conditions, on_time=ON_TIME
        )
        costs[CLAIRVOYANT] = perfect.figures["gpu_hours"][0]
        only = [Lane(CLAIRVOYANT, Variant(0.0), 1.0)]
        paths = pl.concat([paths, _named(perfect.paths(), only, task)])
    except DataError:
        costs[CLAIRVOYANT] = None
    return Judged(_row(task, costs, tuned, told), figures, paths)


def _others(task: Task, overlay: Tuned) -> list[Lane]:
    """Others' floors under the overlay as it was tuned, with their margin swept."""
    lanes = []
    for margin in _MARGINS.tolist():
        floors = others_floors(task, utilization=overlay.utilization, margin=margin)
        aim = min(1.3, 1.5 * overlay.utilization)
        lanes += [Lane(name, overlay.variant, aim, floors[name], margin) for name in OTHERS]
    return lanes


def with_pick(rows: pl.DataFrame, picked: str) -> pl.DataFrame:
    """What the gate picked once more, as floorcast's own."""
    return pl.concat([rows, rows.filter(policy=picked).with_columns(policy=pl.lit(FLOORCAST))])


def _named(paths: pl.DataFrame, lanes: list[Lane], task: Task) -> pl.DataFrame:
    """The rows of a replay's paths, minute by minute, under the names of their lanes."""
    each = paths.height // len(lanes)
    return paths.select(
        pl.lit(task.name).alias("class"),
        policy=pl.Series(np.repeat([lane.policy for lane in lanes], each)),
        setting=pl.Series(np.repeat([lane.setting for lane in lanes], each)),
        time="time",
        demand_replicas="demand_replicas",
        requested_replicas="desired",
        ready_replicas="ready",
    )


def _row(task: Task, costs: dict[str, float | None], tuned: dict[str, Tuned], told: Gate) -> dict[str, Any]:
    perfect, overlay, ours = costs[CLAIRVOYANT], costs[OVERLAY], costs[FLOORCAST]
    row: dict[str, Any] = {
        "class": task.name,
        "max_wait_s": task.max_wait_s,
        "startup_s": task.startup_s,
        "gate": "open" if told.opened else "closed",
        "gate_ratio": _finite(told.ratio),
        "gate_high": _finite(told.high),
        "feasible": perfect is not None and overlay is not None,
        "clairvoyant_gpu_hours": perfect,
        **{
            name: cost / perfect if (cost := costs[name]) is not None and perfect else None
            for name in (OVERLAY, FORECAST, FLOORCAST, *OTHERS)
        },
        "gap_closed": None,
        "cost_ratio": None,
    }
    if perfect is not None and overlay is not None and overlay > perfect:
        gap = overlay - perfect
        chosen = overlay - MISSED * gap if ours is None else ours
        row |= {"gap_closed": (overlay - chosen) / gap, "cost_ratio": chosen / overlay}
    return row | {
        f"tuned_{policy}": f"{tuple(found.variant)} U {found.utilization:.3f}" for policy, found in tuned.items()
    }


def _finite(ratio: float) -> float | None:
    return ratio if np.isfinite(ratio) else None
