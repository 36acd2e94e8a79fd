"""One class: settings tuned on the first ten days, judged on the last four."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.decisions.data import MINUTES_PER_DAY
from benchmarks.decisions.policies import DRAINS_S, LEVELS, LOOKAHEADS, Lane, Task, Variant, others_floors, run
from floorcast.errors import DataError
from scaling.replay.clairvoyant import CLAIRVOYANT, clairvoyant
from scaling.replay.front import cost_at

ON_TIME = 0.99
OVERLAY, FLOORCAST = "overlay", "floorcast"
OTHERS = ("last_value", "seasonal_naive", "managed")
IN_WINDOWS_S = (300.0, 600.0, 900.0)
TUNED_DAYS, JUDGED_DAYS = 5, 4
PAYS = 0.98
"""The gate opens where tuning found floorcast at this share of the overlay's cost or less."""
_COARSE, _FINALISTS, _BETWEEN, _FINE = 9, 4, 6, 36
_UTILIZATIONS = {OVERLAY: (0.15, 1.3), FLOORCAST: (0.3, 1.6)}
_MARGINS = np.linspace(-0.9, 1.5, 9)


@dataclass(frozen=True)
class Judged:
    """`row` is the class's outcome, `figures` one row per lane of the judged days, `paths` their decisions."""

    row: dict[str, Any]
    figures: pl.DataFrame
    paths: pl.DataFrame


def judge(task: Task) -> Judged:
    """Tune both on the days before the last four, then sweep each one's utilization over those."""
    judged = len(task.load) - JUDGED_DAYS * MINUTES_PER_DAY
    tuned_from = max(judged - TUNED_DAYS * MINUTES_PER_DAY, MINUTES_PER_DAY)
    tuned = {policy: _tune(task, policy, first=tuned_from, last=judged) for policy in (OVERLAY, FLOORCAST)}
    best = {policy: found["gpu_hours"] for policy, found in tuned.items()}
    opened = best[FLOORCAST] is not None and (best[OVERLAY] is None or best[FLOORCAST] <= PAYS * best[OVERLAY])
    lanes = [
        Lane(policy, tuned[policy]["variant"], utilization)
        for policy in (OVERLAY, FLOORCAST)
        for utilization in np.geomspace(*_UTILIZATIONS[policy], _FINE).tolist()
    ]
    lanes += _others(task, tuned[OVERLAY])
    result = run(task, lanes, first=judged, last=len(task.load))
    figures = _with_lanes(result.figures, lanes)
    paths = _named(result.paths(), lanes, task)
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
    return Judged(_row(task, costs, tuned, opened), figures, paths)


def _tune(task: Task, policy: str, *, first: int, last: int) -> dict[str, Any]:
    """The variant cheapest at the promise in the tuned days, its cost and its utilization then: all variants at a few
    utilizations, then the best few between the two around the promise."""
    drains = DRAINS_S if task.max_wait_s > DRAINS_S[0] else DRAINS_S[:1]
    variants = [Variant(window_s, drain_s) for window_s in IN_WINDOWS_S for drain_s in drains]
    if policy == FLOORCAST:
        variants = [
            one._replace(lookahead=name, level=level)
            for one in variants[: 2 * len(drains)]
            for name in LOOKAHEADS
            for level in LEVELS
        ]
    coarse = np.geomspace(*_UTILIZATIONS[policy], _COARSE).tolist()
    rough = _swept(task, policy, [(variant, coarse) for variant in variants], first=first, last=last)
    ranked = sorted(variants, key=lambda variant: _cost(rough, variant) or np.inf)[:_FINALISTS]
    finer = [(variant, _around(rough, variant, coarse)) for variant in ranked]
    figures = pl.concat([rough, _swept(task, policy, finer, first=first, last=last)])
    best = min(ranked, key=lambda variant: _cost(figures, variant) or np.inf)
    own = figures.filter(pl.col("variant") == str(tuple(best)))
    kept = own.filter(pl.col("on_time_share") >= ON_TIME).sort("gpu_hours")
    return {
        "variant": best,
        "gpu_hours": _cost(figures, best),
        "utilization": kept["utilization"][0] if kept.height else own["utilization"].min(),
    }


def _swept(
    task: Task, policy: str, settings: list[tuple[Variant, list[float]]], *, first: int, last: int
) -> pl.DataFrame:
    lanes = [Lane(policy, variant, one) for variant, utilizations in settings for one in utilizations]
    return _with_lanes(run(task, lanes, first=first, last=last).figures, lanes)


def _cost(figures: pl.DataFrame, variant: Variant) -> float | None:
    own = figures.filter(pl.col("variant") == str(tuple(variant)))
    found: float | None = cost_at(own, ON_TIME)["gpu_hours"][0]
    return found


def _around(figures: pl.DataFrame, variant: Variant, utilizations: list[float]) -> list[float]:
    """Between the highest utilization tried that keeps the promise and the next."""
    own = figures.filter(pl.col("variant") == str(tuple(variant)), pl.col("on_time_share") >= ON_TIME)
    place = utilizations.index(own["utilization"].max()) if own.height else 0  # type: ignore[arg-type]
    low, high = utilizations[place], utilizations[min(place + 1, len(utilizations) - 1)]
    between: list[float] = np.geomspace(low, high, _BETWEEN + 2)[1:-1].tolist()
    return between


def _others(task: Task, overlay: dict[str, Any]) -> list[Lane]:
    """Others' floors under the overlay as it was tuned, with their margin swept."""
    utilization = overlay["utilization"]
    lanes = []
    for margin in _MARGINS.tolist():
        floors = others_floors(task, utilization=utilization, margin=margin)
        lanes += [Lane(name, overlay["variant"], min(1.3, 1.5 * utilization), floors[name], margin) for name in OTHERS]
    return lanes


def _with_lanes(figures: pl.DataFrame, lanes: list[Lane]) -> pl.DataFrame:
    return figures.with_columns(
        policy=pl.Series([lane.policy for lane in lanes]),
        variant=pl.Series([str(tuple(lane.variant)) for lane in lanes]),
        utilization=pl.Series([lane.utilization for lane in lanes]),
        setting=pl.Series([lane.setting for lane in lanes]),
    )


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


def _row(task: Task, costs: dict[str, float | None], tuned: dict[str, dict[str, Any]], opened: bool) -> dict[str, Any]:
    perfect, overlay, ours = costs[CLAIRVOYANT], costs[OVERLAY], costs[FLOORCAST]
    feasible = perfect is not None and overlay is not None
    chosen = ours if opened else overlay
    row: dict[str, Any] = {
        "class": task.name,
        "max_wait_s": task.max_wait_s,
        "startup_s": task.startup_s,
        "gate": "open" if opened else "closed",
        "feasible": feasible,
        "clairvoyant_gpu_hours": perfect,
        **{
            name: cost / perfect if (cost := costs[name]) is not None and perfect else None
            for name in (OVERLAY, FLOORCAST, *OTHERS)
        },
        "gap_closed": None,
        "cost_ratio": None,
    }
    if feasible and chosen is not None and overlay > perfect:  # type: ignore[operator]
        row["gap_closed"] = (overlay - chosen) / (overlay - perfect)  # type: ignore[operator]
        row["cost_ratio"] = chosen / overlay  # type: ignore[operator]
    return row | {
        f"tuned_{policy}": f"{tuple(found['variant'])} U {found['utilization']:.3f}" for policy, found in tuned.items()
    }
