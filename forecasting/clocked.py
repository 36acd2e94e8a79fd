"""The outlook of a class that is on and off by the clock: schedules beside the mixture of point forecasts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.errors import LeakageError
from forecasting import accuracy
from forecasting.backtest import checked
from forecasting.margins import Pairs
from forecasting.models import Parameters
from forecasting.models.base import IntArray
from forecasting.models.schedule import SCHEDULES, Schedule
from forecasting.rows import Row, score_row
from forecasting.series import FloatArray, View
from forecasting.verdict import Target, Verdict, at_level, losses_by_origin

_BY_NAME = {schedule.name: schedule for schedule in SCHEDULES}


@dataclass(frozen=True)
class Judged:
    """Bounds at the target's quantile and points of the steps after the lead window, both (origins, steps), and what
    they lose: `losses` (origins,) in tokens/s."""

    bound: FloatArray
    point: FloatArray
    losses: FloatArray

    @property
    def score(self) -> float:
        return float(np.nanmean(self.losses))


@dataclass(frozen=True)
class Tried:
    """What became of one schedule: how it did in the backtest, and what is kept of it, or the reason why not."""

    schedule: Schedule
    seconds: float = 0.0
    judged: Judged | None = None
    parameters: Parameters | None = None
    error: str | None = None


def of_points(verdict: Verdict, pairs: Pairs, target: Target) -> Judged:
    return Judged(verdict.bound, pairs.path[:, target.lead_steps :], verdict.losses)


def try_schedules(
    view: View, origins: IntArray, pairs: Pairs, *, target: Target, timer: Callable[[], float]
) -> list[Tried]:
    """Each schedule fitted on what came before the first origin and judged on the backtest that made `pairs`, then
    fitted on all. One that fails is disqualified with the error recorded."""
    return [_try(schedule, view, origins, pairs, target, timer) for schedule in SCHEDULES]


def blended(parts: Mapping[str, Judged], shares: Mapping[str, float], pairs: Pairs, target: Target) -> Judged:
    """The parts by their shares, which add to 1."""
    bound: FloatArray = np.sum([share * parts[name].bound for name, share in shares.items()], axis=0)
    point: FloatArray = np.sum([share * parts[name].point for name, share in shares.items()], axis=0)
    return Judged(bound, point, losses_by_origin(pairs.actual[:, target.lead_steps :], bound, target))


def errors_of(judged: Judged, pairs: Pairs, target: Target) -> dict[str, float | None]:
    """`wape` and `bias` of the points, None where the actuals sum to 0."""
    both = {"actual": pairs.actual[:, target.lead_steps :], "forecast": judged.point}
    return {name: accuracy.or_none(of(**both)) for name, of in (("wape", accuracy.wape), ("bias", accuracy.bias))}


def scored(at: Row, tried: Tried, weight: float, pairs: Pairs, target: Target) -> Row:
    """A row of `floorcast.columns.SCORES`."""
    judged = tried.judged
    return score_row(
        at,
        tried.schedule.name,
        weight=weight,
        chosen=weight > 0,
        origins=int(np.isfinite(judged.losses).sum()) if judged else 0,
        pinball=judged.score if judged else None,
        **(errors_of(judged, pairs, target) if judged else {"wape": None, "bias": None}),
        seconds=tried.seconds,
        error=tried.error,
    )


def with_schedules(
    quantiles: FloatArray, stored: Mapping[str, Parameters], view: View
) -> tuple[FloatArray, dict[str, float], list[str]]:
    """Quantiles (steps, levels) of the steps from the cutoff on, with the stored schedules' by their shares; those
    shares; and of those that failed, which leave theirs to the others, why."""
    places = len(view.values) + np.arange(len(quantiles))
    own: dict[str, FloatArray] = {}
    failed: list[str] = []
    for name, kept in stored.items():
        try:
            own[name] = checked(_BY_NAME[name].quantiles(kept, view, places), quantiles.shape)
        except LeakageError:
            raise
        except Exception as error:  # noqa: BLE001 - its weight goes to the others, on record
            failed.append(f"{name}: {type(error).__name__}: {error}")
    points = 1.0 - sum(stored[name]["share"] for name in stored)
    total = points + sum(stored[name]["share"] for name in own)
    if total <= 0:
        return quantiles, {}, failed
    shares = {name: stored[name]["share"] / total for name in own}
    mixed = quantiles * (points / total) + sum(share * own[name] for name, share in shares.items())
    return mixed, shares, failed


def _try(
    schedule: Schedule,
    view: View,
    origins: IntArray,
    pairs: Pairs,
    target: Target,
    timer: Callable[[], float],
) -> Tried:
    before = view.first(origins[0])
    tried = Tried(schedule)
    lack = schedule.lacks(before)
    if lack is not None:
        return replace(tried, error=lack)
    began = timer()
    try:
        places = pairs.targets - view.first_index
        own = checked(schedule.quantiles(schedule.fit(before), view, places), (*places.shape, len(QUANTILE_LEVELS)))
        parameters = schedule.fit(view)
        json.dumps(parameters, allow_nan=False)
    except LeakageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever fails disqualifies its candidate, on record
        return replace(tried, seconds=timer() - began, error=f"{type(error).__name__}: {error}")
    after = own[:, target.lead_steps :]
    bound = at_level(after, target.quantile)
    losses = losses_by_origin(pairs.actual[:, target.lead_steps :], bound, target)
    judged = Judged(bound, at_level(after, 0.5), losses)
    return replace(tried, seconds=timer() - began, judged=judged, parameters=parameters)
