"""Each of `trials.TRIED` beside the product's own candidates, and these one by one left out: losses and weights.

Lead window: the experts of one fit, made before the newest six days, weighed over those days as a fit does and judged
on the last four, once without and once with the candidate. Outlook: its point forecasts, fitted four days before the
end and judged hourly on the rest with the margins of that fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from time import perf_counter

import numpy as np

from benchmarks.forecast.judge import EVALUATED, HOUR, Row
from benchmarks.forecast.ours import FLOOR_QUANTILE, LONGEST_LEAD
from benchmarks.forecast.summary import FLOOR_LEVELS
from benchmarks.forecast.trials import LEAD_TOO, TRIED, Once
from floorcast.columns import QUANTILE_LEVELS
from forecasting import accuracy, backtest
from forecasting.lead import fit_lead
from forecasting.margins import Margins
from forecasting.mixture import EXPERTS, Panel, assemble, first_origin
from forecasting.mixture.mixture import JUDGED
from forecasting.mixture.online import SPREADS, Input, advance
from forecasting.models import CANDIDATES, Model, Parameters
from forecasting.models.base import DAY
from forecasting.outlook import fit_outlook
from forecasting.series import FloatArray, Series, View
from forecasting.verdict import Target

_LEVELS = [QUANTILE_LEVELS.index(level) for level in FLOOR_LEVELS]


def try_series(series: Series) -> list[Row]:
    """A row for each window and candidate, and one `says` with what a fit of all its data says of the lead window.

    `own`, `last_value`, `without` and `with` are losses at the floor levels over the series' mean rate: of the
    candidate, of last value, and of the mixture without and with it. A candidate that cannot be fitted or fails has
    only `why`.
    """
    key: Row = {"workload_class": series.workload_class, "metric": str(series.metric)}
    kept = {model.name: Once(model) for model in (*CANDIDATES, *TRIED)}
    rows = [*_try_lead(series, kept), *_try_outlook(series, kept)]
    target = Target(FLOOR_QUANTILE, LONGEST_LEAD, LONGEST_LEAD)
    fit, _ = fit_lead(series.view(series.end), {}, target=target, timer=perf_counter)
    said: Row = {"window": "says", "candidate": "", "why": str(fit["reason"])}
    return [key | row for row in [*rows, said]]


def _try_lead(series: Series, kept: dict[str, Once]) -> list[Row]:
    view = series.view(series.end)
    first = first_origin(view)
    before, origins = view.first(first), np.arange(first, len(view.values) + 1)
    then = {
        expert.name: expert.fit(before) if expert.fit else {}
        for expert in EXPERTS
        if len(before.values) * view.step >= expert.needs
    }
    panel = assemble(view, then=then, now=then, lead_steps=LONGEST_LEAD)
    points, rows = [], []
    for model in (*TRIED, *LEAD_TOO):
        row: Row = {"window": "lead", "candidate": model.name}
        one = kept[model.name]
        made, why = _paths(one, before, view, origins, LONGEST_LEAD)
        points.append(panel.points[:, 0] if made is None else made.max(axis=1))
        rows.append(row | ({"why": why} if why else {"seconds": one.seconds.get(first, 0.0)}))
    usable = ["why" not in row for row in rows]
    losses, own, earned = _mixtures(panel, points, usable=usable)
    scale = float(np.nanmean(view.values[-EVALUATED:]))
    for lane, row in enumerate(rows, start=1):
        if usable[lane - 1]:
            row |= {"own": own[lane, -1] / scale, "last_value": own[0, 0] / scale, "weight": earned[lane, -1]}
            row |= {"without": losses[0] / scale, "with": losses[lane] / scale}
    for place, expert in enumerate(EXPERTS):
        if panel.usable[place]:
            row = {"window": "lead", "candidate": expert.name, "left_out": 1.0, "weight": earned[0, place]}
            row |= {"own": own[0, place] / scale, "last_value": own[0, 0] / scale}
            rows.append(row | {"without": losses[1 + len(points) + place] / scale, "with": losses[0] / scale})
    return rows


def _paths(
    model: Model, before: View, view: View, origins: np.ndarray, horizon: int
) -> tuple[FloatArray | None, str | None]:
    lack = model.lacks(before)
    if lack:
        return None, lack
    try:
        paths = model.paths(model.fit(before), view, origins, horizon)
        return backtest.checked(paths, (len(origins), horizon)), None
    except Exception as error:  # noqa: BLE001 - as in the product, whatever is raised disqualifies its candidate
        return None, f"{type(error).__name__}: {error}"


def _mixtures(panel: Panel, points: Sequence[FloatArray], *, usable: Sequence[bool]) -> tuple[FloatArray, ...]:
    """Lanes of a mixture each: the product's experts alone, with each of `points` (origins,), and without each of them.

    Of every lane: losses of the mixture (lanes,), of every expert, and the greatest mean weight that each earned at a
    floor level (lanes, experts + 1); the further expert stands last.
    """
    ours = panel.points.shape[1]
    last = ours - panel.direct.shape[1]
    nothing = panel.points[:, 0]
    of_lane = [np.insert(panel.points, last, each, axis=1) for each in (nothing, *points, *[nothing] * ours)]
    without = [np.where(np.arange(ours) == place, False, panel.usable) for place in range(ours)]
    allowed = [np.insert(panel.usable, last, each) for each in (False, *usable)]
    allowed += [np.insert(each, last, False) for each in without]
    lanes = len(of_lane)

    def repeated(array: FloatArray) -> FloatArray:
        return np.repeat(array[:, None], lanes, axis=1)

    given = Input(
        points=np.stack(of_lane, axis=1),
        direct=repeated(panel.direct),
        actual=repeated(panel.actual),
        mean=repeated(panel.mean),
        highest=repeated(panel.highest),
        usable=np.stack(allowed),
        delay=panel.overlap,
        step=panel.apart,
    )
    outcome = advance(given, judged_from=len(panel.points) - JUDGED // panel.apart)
    shape = (lanes, ours + 1, len(SPREADS), len(QUANTILE_LEVELS))
    own = outcome.losses.reshape(shape).min(axis=2)[..., _LEVELS].sum(axis=-1)
    earned = outcome.earned.reshape(shape).sum(axis=2)[..., _LEVELS].max(axis=-1)
    order = [*range(last), *range(last + 1, ours + 1), last]
    return outcome.mixture_losses[:, _LEVELS].sum(axis=1), own[:, order], earned[:, order]


def _try_outlook(series: Series, kept: dict[str, Once]) -> list[Row]:
    known = len(series.values) - EVALUATED
    scale = float(np.nanmean(series.values[known:]))
    product = [kept[model.name] for model in CANDIDATES]
    base, weights, _ = _held_out(series, known, product)
    last, _, _ = _held_out(series, known, product[:1])
    rows: list[Row] = []
    for name, one in kept.items():
        ours = one in product
        row: Row = {"window": "outlook", "candidate": name, "last_value": last / scale}
        if ours and name not in weights:
            continue
        own, _, why = _held_out(series, known, [one])
        if why:
            rows.append({"window": "outlook", "candidate": name, "why": why})
            continue
        others = [each for each in product if each is not one]
        other, shares, _ = _held_out(series, known, others if ours else [*product, one])
        row |= {"own": own / scale, "seconds": one.seconds[known]}
        if ours:
            row |= {"left_out": 1.0, "weight": weights[name], "without": other / scale, "with": base / scale}
        else:
            row |= {"weight": shares.get(name, 0.0), "without": base / scale, "with": other / scale}
        rows.append(row)
    return rows


def _held_out(series: Series, known: int, candidates: Sequence[Once]) -> tuple[float, dict[str, float], str | None]:
    """Loss at the floor levels, weights by candidate, and why there are none; fitted on the first `known` steps."""
    day, view = DAY // series.step, series.view(series.end)
    target = Target(FLOOR_QUANTILE, LONGEST_LEAD, day)
    fit, scores = fit_outlook(view.first(known), {}, target=target, timer=perf_counter, candidates=candidates)
    stored = json.loads(str(fit["parameters"]))
    if not stored:
        return math.nan, {}, "; ".join(str(score["error"]) for score in scores)
    model: Parameters = stored["model"]
    origins = np.arange(known, len(view.values) - 1, HOUR)
    by_name = {one.name: one for one in candidates}
    path = np.sum(
        [
            weight * by_name[name].paths(by_name[name].fit(view.first(known)), view, origins, day)
            for name, weight in model["weights"].items()
        ],
        axis=0,
    )
    pairs = backtest.pairs_of(view, origins, path)
    quantiles = Margins.model_validate_json(str(fit["margins"])).apply(pairs.path, pairs.targets, pairs.day)
    ahead = slice(LONGEST_LEAD, None)
    loss = sum(
        accuracy.pinball(actual=pairs.actual[:, ahead], forecast=quantiles[:, ahead, place], quantile=level)
        for place, level in zip(_LEVELS, FLOOR_LEVELS, strict=True)
    )
    return loss, model["weights"], None
