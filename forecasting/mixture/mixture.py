"""From a series and the experts' parameters to quantiles of the greatest rate within the lead window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from floorcast.columns import QUANTILE_LEVELS
from floorcast.errors import LeakageError
from forecasting.mixture.experts import EXPERTS, Expert
from forecasting.mixture.online import SPREADS, BoolArray, Input, Outcome, advance
from forecasting.mixture.past import Past, greatest
from forecasting.models.base import DAY, Parameters
from forecasting.series import FloatArray, View

MEMORY = timedelta(days=6)
"""How far back the origins reach from which offsets and weights are learned."""

SPACING = timedelta(minutes=10)
"""Between origins, where steps are shorter: neighbours see nearly the same, and would cost as much as any."""

JUDGED = timedelta(days=4)
"""The newest origins, over which losses and weights are told."""

MEMORY_SHARE = 2 / 3
"""Of a short history; the rest is what the first origin knows."""

_MEDIAN = QUANTILE_LEVELS.index(0.5)

Fitted = Mapping[str, Parameters]
"""Parameters by expert; those of `EXPERTS` not in it are left out."""


@dataclass(frozen=True)
class Panel:
    """One series, ready to be combined: `points` (origins, experts) forecasts of the greatest rate within the lead
    window, `direct` (origins, those experts, levels) the quantiles of those that give their own, `actual` (origins,)
    what came, NaN where a step of it is missing or still ahead, `mean` and `highest` (origins,) of the rates before,
    `live` (experts, lead steps) the paths from the cutoff, `failed` why experts are not usable that were fitted. The
    last origin is the cutoff itself, each other one `spacing` steps before the next."""

    step: timedelta
    spacing: int
    lead_steps: int
    points: FloatArray
    direct: FloatArray
    actual: FloatArray
    mean: FloatArray
    highest: FloatArray
    live: FloatArray
    usable: BoolArray
    failed: tuple[str, ...] = ()

    @property
    def apart(self) -> timedelta:
        """The time between two origins."""
        return self.spacing * self.step

    @property
    def overlap(self) -> int:
        """Origins until what came after one is known, and whose lead windows overlap."""
        return -(-self.lead_steps // self.spacing)


@dataclass(frozen=True)
class Combined:
    """`quantiles` (lead steps, levels) hold together: the greatest of a level is that level's quantile of the greatest
    rate within the window; `past` (origins, levels) are those of the greatest rate as forecast at every origin, the
    cutoff's last. `weights` (experts, levels) add to 1 over experts. Over the judged origins, NaN where there were
    none: `earned` (experts, levels) are the mean weights, `losses` (experts, levels), each with the better of its
    spreads, and `mixture_losses` (levels,) mean pinball losses in tokens/s."""

    quantiles: FloatArray
    past: FloatArray
    weights: FloatArray
    earned: FloatArray
    losses: FloatArray
    mixture_losses: FloatArray


def first_origin(view: View) -> int:
    """Steps from the view's start to the first origin that is learned from."""
    count = len(view.values)
    return max(count - min(view.steps_in(MEMORY), int(count * MEMORY_SHARE)), 1)


def assemble(view: View, *, then: Fitted, now: Fitted, lead_steps: int) -> Panel:
    """What a view's origins and the experts make of the lead window.

    `then` are parameters from before the first origin, which none of the judged origins shaped; `now` those that the
    live forecast uses. An expert that is not in both is not used, nor one that fails or returns something that is no
    forecast: the others go on without it.
    """
    first = first_origin(view)
    past, latest = Past(view, first, lead_steps), Past(view, len(view.values), lead_steps)
    spacing = max(SPACING // view.step, 1)
    kept = slice((past.origins - 1) % spacing, None, spacing)
    fallback, live_fallback = EXPERTS[0].paths(past, {})[kept], EXPERTS[0].paths(latest, {})[0]
    blind = ~np.isfinite(fallback[:, 0])  # nothing had been observed yet
    used = np.zeros(len(EXPERTS), dtype=bool)
    failed: list[str] = []
    points, direct, live = [], [], []
    for place, expert in enumerate(EXPERTS):
        paths, ahead = fallback, live_fallback
        own = _at_all_levels(fallback.max(axis=1))
        if expert.name in then and expert.name in now:
            try:
                if expert.quantiles:
                    own = checked_quantiles(expert, past, spacing)
                    paths = own[:, [_MEDIAN]]
                    ahead = np.repeat(own[-1, _MEDIAN], lead_steps)
                else:
                    every, ahead = checked_paths(expert, past, latest, then=then[expert.name], now=now[expert.name])
                    paths = every[kept]
                used[place] = True
            except LeakageError:
                raise
            except Exception as error:  # noqa: BLE001 - its weight goes to the others, on record
                failed.append(f"{expert.name}: {type(error).__name__}: {error}")
        points.append(paths.max(axis=1))
        live.append(ahead)
        if expert.quantiles:
            direct.append(np.where(blind[:, None], 0.0, own))
    stacked = np.stack(points, axis=1)
    stacked[-1] = np.stack(live).max(axis=1)
    stacked[blind] = 0.0
    return Panel(
        step=view.step,
        spacing=spacing,
        lead_steps=lead_steps,
        points=stacked,
        direct=np.stack(direct, axis=1) if direct else np.empty((len(stacked), 0, len(QUANTILE_LEVELS))),
        actual=np.where(blind, np.nan, greatest(view.values, lead_steps)[first:][kept]),
        mean=past.mean()[kept],
        highest=np.nan_to_num(past.highest())[kept],
        live=np.stack(live),
        usable=used,
        failed=tuple(failed),
    )


def checked_paths(
    expert: Expert, past: Past, latest: Past, *, then: Parameters, now: Parameters
) -> tuple[FloatArray, FloatArray]:
    """An expert's paths at all origins, and at the cutoff: (origins, lead steps) and (lead steps,).

    Raises ValueError where they are no forecast, and what the expert raises.
    """
    paths, ahead = expert.paths(past, then), expert.paths(latest, now)[0]
    if paths.shape != (past.origins, past.lead_steps) or ahead.shape != (past.lead_steps,):
        raise ValueError(f"{expert.name} returned forecasts of shape {paths.shape}")
    blind = ~np.isfinite(past.back(1))  # nothing had been observed yet
    unusable = ~(np.isfinite(paths) & (paths >= 0)) & ~blind[:, None]
    if unusable.any() or not (np.isfinite(ahead) & (ahead >= 0)).all():
        raise ValueError(f"{expert.name} returned {int(unusable.sum())} values that are negative or not finite")
    return paths, ahead


def checked_quantiles(expert: Expert, past: Past, every: int) -> FloatArray:
    """The quantiles of an expert that gives its own, (every `every`-th origin, levels). Raises as `checked_paths`."""
    own = expert.quantiles(past, every) if expert.quantiles else _at_all_levels(np.zeros(0))
    kept = slice((past.origins - 1) % every, None, every)
    blind = ~np.isfinite(past.back(1)[kept])
    if own.shape != (len(blind), len(QUANTILE_LEVELS)):
        raise ValueError(f"{expert.name} returned quantiles of shape {own.shape}")
    unusable = ~(np.isfinite(own) & (own >= 0)) & ~blind[:, None]
    if unusable.any() or (np.diff(own[~blind]) < 0).any():
        raise ValueError(f"{expert.name} returned quantiles that are negative, not finite, or crossed")
    return own


def combine(panels: Sequence[Panel]) -> list[Combined]:
    """Combine the experts of several series at once, which must share step and lead window."""
    longest = max(len(panel.points) for panel in panels)
    given = Input(
        points=_stack([panel.points for panel in panels], longest),
        direct=_stack([panel.direct for panel in panels], longest),
        actual=_stack([panel.actual for panel in panels], longest, blank=True),
        mean=_stack([panel.mean for panel in panels], longest),
        highest=_stack([panel.highest for panel in panels], longest),
        usable=np.stack([panel.usable for panel in panels]),
        delay=panels[0].overlap,
        step=panels[0].apart,
    )
    outcome = advance(given, judged_from=longest - JUDGED // given.step)
    return [_combined(panel, outcome, place) for place, panel in enumerate(panels)]


def replay(view: View, *, lead_steps: int, first_origin: int) -> FloatArray:
    """What would have been forecast at every origin from `first_origin` steps after the view's start up to the step
    before its cutoff: (origins, levels) quantiles of the greatest rate within the lead window.

    Every expert is fitted anew each day, on what was known then; origin by origin, nothing later is looked at.
    """
    day = view.steps_in(DAY)
    first = min(first_origin, max(day, 1))
    past = Past(view, first, lead_steps)
    fallback = EXPERTS[0].paths(past, {})
    points = np.repeat(fallback.max(axis=1)[:, None], len(EXPERTS), axis=1)
    own = [place for place, expert in enumerate(EXPERTS) if expert.quantiles]
    direct = np.repeat(points[:, own, None], len(QUANTILE_LEVELS), axis=2)
    for begin in range(first, len(view.values), day):
        known = view.first(begin)
        rows = slice(begin - first, begin - first + day)
        seen = Past(view.first(min(begin + day - 1, len(view.values))), begin, lead_steps)
        for place, expert in enumerate(EXPERTS):
            if begin * view.step < expert.needs:
                continue
            if expert.quantiles:
                direct[rows, own.index(place)] = made = expert.quantiles(seen, 1)
                points[rows, place] = made[:, _MEDIAN]
            else:
                paths = expert.paths(seen, expert.fit(known) if expert.fit else {})
                points[rows, place] = paths.max(axis=1)
    blind = ~np.isfinite(points).all(axis=1, keepdims=True)
    given = Input(
        points=np.where(blind, 0.0, points)[:, None],
        direct=np.where(blind[:, None], 0.0, direct)[:, None],
        actual=np.where(blind, np.nan, greatest(view.values, lead_steps)[first:, None]),
        mean=past.mean()[:, None],
        highest=np.nan_to_num(past.highest())[:, None],
        usable=np.ones((1, len(EXPERTS)), dtype=bool),
        delay=lead_steps,
        step=view.step,
    )
    outcome = advance(given, judged_from=len(points))
    return outcome.quantiles[first_origin - first : -1, 0]


def _at_all_levels(points: FloatArray) -> FloatArray:
    return np.repeat(points[:, None], len(QUANTILE_LEVELS), axis=1)


def _stack(arrays: Sequence[FloatArray], longest: int, *, blank: bool = False) -> FloatArray:
    """Arrays of unequal length, aligned at their ends: (longest, series, ...). In front of a shorter one stands its
    first row, or NaN where `blank`, so that nothing is learned there."""
    return np.stack(
        [
            np.concatenate([np.repeat(array[:1] * (np.nan if blank else 1.0), longest - len(array), axis=0), array])
            for array in arrays
        ],
        axis=1,
    )


def _combined(panel: Panel, outcome: Outcome, place: int) -> Combined:
    weights, offsets, scales = outcome.weights[place], outcome.offsets[place], outcome.scales[place]
    own = panel.direct.shape[1]
    paths = np.repeat(panel.live[..., None], len(QUANTILE_LEVELS), axis=2)
    paths[len(paths) - own :] = panel.direct[-1][:, None]
    bounds = np.maximum(np.repeat(paths, len(SPREADS), axis=0) + offsets[:, None] * scales[:, None, None], 0.0)
    steps = np.maximum((weights[:, None] * bounds).sum(axis=0) + outcome.correction[place], 0.0)
    # Experts peak at different steps of the window, so that their mean peaks lower than the mean of their peaks.
    lifted = np.sort(np.maximum(steps + outcome.quantiles[-1, place] - steps.max(axis=0), 0.0), axis=1)
    by_expert = (len(EXPERTS), len(SPREADS), len(QUANTILE_LEVELS))
    return Combined(
        quantiles=lifted,
        past=outcome.quantiles[-len(panel.points) :, place],
        earned=outcome.earned[place].reshape(by_expert).sum(axis=1),
        weights=weights.reshape(by_expert).sum(axis=1),
        losses=outcome.losses[place].reshape(by_expert).min(axis=1),
        mixture_losses=outcome.mixture_losses[place],
    )
