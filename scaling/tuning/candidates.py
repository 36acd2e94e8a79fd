"""The settings that tuning tries: a coarse grid, then what is near the best of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import numpy as np

from floorcast.overlay import Overlay, Policy
from floorcast.pool import Pool
from floorcast.tuning import TunedSettings

POLICIES: tuple[Policy, ...] = ("hybrid", "target_tracking", "lookahead")
LEVEL = 0.9
QUANTILES = (0.5, 0.6, 0.75, 0.85, 0.9, 0.95, 0.975, 0.99)
MARGINS = (0.0, 0.1, 0.25)
LEVELS = (0.7, 0.8, 0.9, 0.95, 0.98)
IN_WINDOWS_S = (300.0, 600.0, 900.0)
WARM = (0, 1)
DWELLS_S = (0.0, 900.0)
STEPS_DOWN = (0.1, 0.25, 0.5, 0.9)
OVERLAY_UNDER_FLOORS = 1.0
"""Utilization of an overlay that only adds what floors missed, and has no margin of its own."""
_COARSE_QUANTILES = (0.5, 0.75, 0.95)
_AIMS = (None, 0.85, OVERLAY_UNDER_FLOORS)
_LEAN: dict[str, object] = {"minimum_margin": 0.0, "peak": False, "warm": 0, "dwell_s": 0.0, "step_down": 0.5}
"""Floors with the quantile and the utilization as their only margins; rounds near the best add to them what pays."""
_ALONE = tuple(round(float(one), 3) for one in np.geomspace(0.3, 1.0, 9))
_WITH_FLOORS = tuple(round(float(one), 3) for one in np.geomspace(0.4, 1.0, 6))
_FACTORS = (0.86, 0.93, 1.075, 1.16)
_LEAST_UTILIZATION = 0.2

_T = TypeVar("_T", float | None, int | None, Policy)


def settings_of(pool: Pool, *, floors: bool) -> TunedSettings:
    """What a pool is set to now, with its floors or without."""
    overlay = pool.overlay
    return TunedSettings(
        quantile=pool.margin.quantile if floors else None,
        minimum_margin=pool.margin.minimum,
        target_utilization=pool.capacity.target_utilization,
        overlay_utilization=overlay.target_utilization,
        policy=overlay.policy,
        scale_in_window_s=overlay.scale_in.stabilization.total_seconds(),
        lookahead_quantile=overlay.lookahead.quantile,
        peak=pool.margin.peak if floors else None,
        warm=pool.margin.warm if floors else None,
        dwell_s=pool.shape.dwell.total_seconds() if floors else None,
        step_down=pool.shape.step_down if floors else None,
    )


def with_settings(pool: Pool, settings: TunedSettings) -> Pool:
    """The pool as tuned. What is not tuned stays: the margins of the overlay alone, and further policies that raise."""
    overlay = pool.overlay
    tuned: Overlay = overlay.model_copy(
        update={
            "policy": settings.policy,
            "target_utilization": settings.overlay_utilization,
            "lookahead": overlay.lookahead.model_copy(update={"quantile": settings.lookahead_quantile}),
            "scale_in": overlay.scale_in.model_copy(
                update={"stabilization": timedelta(seconds=settings.scale_in_window_s)}
            ),
        }
    )
    capacity = pool.capacity.model_copy(update={"target_utilization": settings.target_utilization})
    changed: dict[str, object] = {"overlay": tuned, "capacity": capacity}
    if settings.quantile is not None:
        dwell = None if settings.dwell_s is None else timedelta(seconds=settings.dwell_s)
        changed["margin"] = pool.margin.model_copy(
            update={
                "quantile": settings.quantile,
                "minimum": settings.minimum_margin,
                **_given(peak=settings.peak, warm=settings.warm),
            }
        )
        changed["shape"] = pool.shape.model_copy(update=_given(dwell=dwell, step_down=settings.step_down))
    return pool.model_copy(update=changed)


def coarse(pool: Pool, *, floors: bool) -> list[TunedSettings]:
    """The first round: what the pool is set to, then every policy at a range of utilizations; with floors at some
    quantiles and lean, once with the overlay at the same utilization and once with one that only adds to them."""
    base = settings_of(pool, floors=floors)
    fixed = base.model_copy(update={"lookahead_quantile": LEVEL, **(_LEAN if floors else {})})
    grid = [
        fixed.model_copy(
            update={
                "quantile": quantile,
                "target_utilization": utilization,
                "overlay_utilization": aim,
                "policy": policy,
            }
        )
        for policy in POLICIES
        for quantile in (_COARSE_QUANTILES if floors else (None,))
        for aim in ((None, OVERLAY_UNDER_FLOORS) if floors else (None,))
        for utilization in (_WITH_FLOORS if floors else _ALONE)
    ]
    return list(dict.fromkeys([base, *grid]))


def neighbours(settings: TunedSettings) -> list[TunedSettings]:
    """What differs from the settings in one respect, and not by much."""
    changes: list[dict[str, object]] = []
    for factor in _FACTORS:
        utilization = round(min(max(settings.target_utilization * factor, _LEAST_UTILIZATION), 1.0), 3)
        follows = {"overlay_utilization": None} if settings.quantile is None else {}
        changes.append({"target_utilization": utilization, **follows})
    changes += [{"policy": one} for one in _others(POLICIES, settings.policy)]
    changes += [{"scale_in_window_s": one} for one in _others(IN_WINDOWS_S, settings.scale_in_window_s)]
    if settings.policy == "lookahead":
        changes += [{"lookahead_quantile": one} for one in _others(LEVELS, settings.lookahead_quantile)]
    if settings.quantile is not None:
        nearest = int(np.argmin([abs(one - settings.quantile) for one in QUANTILES]))
        near = QUANTILES[max(nearest - 1, 0) : nearest + 2]
        changes += [{"quantile": one} for one in _others(near, settings.quantile)]
        changes += [{"minimum_margin": one} for one in _others(MARGINS, settings.minimum_margin)]
        changes += [{"overlay_utilization": one} for one in _others(_AIMS, settings.overlay_utilization)]
        changes += [{"peak": not settings.peak}]
        changes += [{"warm": one} for one in _others(WARM, settings.warm)]
        changes += [{"dwell_s": one} for one in _others(DWELLS_S, settings.dwell_s)]
        changes += [{"step_down": one} for one in _others(STEPS_DOWN, settings.step_down)]
    made = [settings.model_copy(update=change) for change in changes]
    return [one for one in dict.fromkeys(made) if one != settings]


def _given(**settings: object) -> dict[str, object]:
    return {name: value for name, value in settings.items() if value is not None}


def _others(choices: tuple[_T, ...], own: _T) -> Iterator[_T]:
    return (one for one in choices if one != own)
