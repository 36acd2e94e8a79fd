"""Whether forecasts were worth having: figures of rolled ones beside those of naive ones, and a verdict in words."""

from __future__ import annotations

from typing import Literal

import numpy as np

from floorcast.columns import Metric
from floorcast.types import Frozen
from forecasting import accuracy
from forecasting.coverage import NEXT_TO_NOTHING, share_covered
from forecasting.lead import NOTHING_GAINED
from forecasting.models.base import DAY
from forecasting.rolling import Rolled, Span
from forecasting.series import FloatArray, Series

OURS = "floorcast"

Worth = Literal["pays", "unclear", "even", "does_not_pay", "untold"]

LOST = 1 / NOTHING_GAINED
MOST_DAYS = 2 / 3
"""What loses less in sum, but on fewer of the days, may have been lucky on one; and what loses more, unlucky."""

FEW_DAYS = 3
OFF = 0.02
"""Points of coverage beside the quantile that are told."""


class Figures(Frozen):
    """`wape`, `mase` and `bias` are of the point forecast (of floorcast the median), None where the actuals sum to 0 or
    never changed; `pinball` in tokens/s and `covered`, the share at or under it, of the quantile. `margin` is the kind
    that lost least, chosen in hindsight in favour of the naive."""

    method: str
    margin: str | None
    wape: float | None
    mase: float | None
    bias: float | None
    pinball: float
    covered: float


class Judged(Frozen):
    """One class, metric and span. `targets` are the rates judged, `unforecast` those left out because nothing could be
    forecast; on `days_better` of `days` floorcast lost less than `best`, the naive forecast that lost least.
    `ratio` is of the pinball losses, None where that of `best` is 0."""

    workload_class: str
    metric: str
    span: Span
    quantile: float
    targets: int
    unforecast: int
    days: int
    days_better: int
    best: str | None
    ratio: float | None
    figures: tuple[Figures, ...]
    worth: Worth
    why: str


def judge_rolled(series: Series, rolled: Rolled, *, quantile: float) -> Judged:
    """Judge all methods on the same targets: those that came and that all of them had forecast."""
    place, median = rolled.levels.index(quantile), rolled.levels.index(0.5)
    known = np.isfinite(rolled.actual)
    for one in rolled.naive.values():
        known &= np.isfinite(one.point)
    forecast = np.isfinite(rolled.quantiles).all(axis=-1)
    unforecast = int((known & ~forecast).sum())
    known &= forecast
    actual = rolled.actual[known]
    training = series.values[: int(rolled.origins[0])]
    silent = NEXT_TO_NOTHING * float(np.nanmean(series.values)) if np.isfinite(series.values).any() else 0.0

    def figures(method: str, margin: str | None, point: FloatArray, quantiles: FloatArray) -> Figures:
        return Figures(
            method=method,
            margin=margin,
            wape=accuracy.or_none(accuracy.wape(actual=actual, forecast=point)),
            mase=accuracy.or_none(
                accuracy.mase(actual=actual, forecast=point, training=training, season=DAY // series.step)
            ),
            bias=accuracy.or_none(accuracy.bias(actual=actual, forecast=point)),
            pinball=accuracy.pinball(actual=actual, forecast=quantiles[:, place], quantile=quantile),
            covered=share_covered(actual, quantiles, levels=rolled.levels, level=quantile, silent=silent),
        )

    told = {"workload_class": series.workload_class, "metric": str(Metric(series.metric)), "span": rolled.span}
    counts = {"quantile": quantile, "targets": len(actual), "unforecast": unforecast}
    if not len(actual):
        why = "no forecast could be made" if unforecast else "nothing was observed that could be judged"
        untold = {"days": 0, "days_better": 0, "best": None, "ratio": None, "figures": (), "worth": "untold"}
        return Judged(**told, **counts, **untold, why=why)
    ours = rolled.quantiles[known]
    rows = [figures(OURS, None, ours[:, median], ours)]
    naive = {}
    for name, one in rolled.naive.items():
        made = [figures(name, kind, one.point[known], values[known]) for kind, values in one.quantiles.items()]
        naive[name] = min(made, key=lambda each: each.pinball)
    best = min(naive.values(), key=lambda each: each.pinball)
    bound = rolled.naive[best.method].quantiles[best.margin][known][:, place]  # type: ignore[index]
    lost = [accuracy.pinball_losses(actual=actual, forecast=one, quantile=quantile) for one in (ours[:, place], bound)]
    day_of = np.broadcast_to((rolled.origins - rolled.origins[0])[:, None] // (DAY // series.step), known.shape)[known]
    losses = np.stack([np.bincount(day_of, weights=one) for one in lost])
    days = np.bincount(day_of) > 0
    better = int((losses[0] < losses[1])[days].sum())
    ratio = rows[0].pinball / best.pinball if best.pinball > 0 else None
    worth, why = _verdict(ratio, better, int(days.sum()), best.method, rows[0], quantile)
    if unforecast:
        why += f"; {unforecast:,} more had no forecast"
    return Judged(
        **told,
        **counts,
        days=int(days.sum()),
        days_better=better,
        best=best.method,
        ratio=ratio,
        figures=(*rows, *naive.values()),
        worth=worth,
        why=why,
    )


def _verdict(
    ratio: float | None, better: int, days: int, best: str, ours: Figures, quantile: float
) -> tuple[Worth, str]:
    against = best.replace("_", " ")
    if ratio is None and ours.pinball > 0:
        return "does_not_pay", f"does not pay: {against} was always right"
    if ratio is None:
        return "even", f"{against} was always right"
    loses = f"loses {ratio:.2f} of what {against} loses"
    on = f"less on {better} of {days} days"
    gained, lost = ratio <= NOTHING_GAINED, ratio > LOST
    agree = days >= FEW_DAYS and (better if gained else days - better) >= MOST_DAYS * days
    worth: Worth
    if not gained and not lost:
        worth, why = "even", f"no better than {against}: {loses}"
    elif not agree:
        worth, why = "unclear", f"not clear: {loses}, and {on}"
    elif gained:
        worth, why = "pays", f"pays: {loses}, and {on}"
    else:
        worth, why = "does_not_pay", f"does not pay: {loses}, and {on}"
    if abs(ours.covered - quantile) > OFF:
        side = "too low: it covers" if ours.covered < quantile else "higher than it need be: it covers"
        why += f"; quantile {quantile:g} is {side} {ours.covered:.1%}"
    return worth, why
