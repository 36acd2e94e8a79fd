"""The reason of every window, as the JSON of `floorcast.types.Reason`. Plain dictionaries, since there are many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic_core import to_json

from floorcast.columns import Metric
from floorcast.pool import Pool
from floorcast.types import Rung
from floorcast.workload import WorkloadClass
from scaling.admission import admitted, class_rates
from scaling.buffers import ToZero
from scaling.capacity import Floats
from scaling.demand import DECIMALS
from scaling.ladder import Waiting
from scaling.pool_floors import PoolFloors
from scaling.quotas import Use

_LIMITS = ("min_replicas", "max_replicas", "ceiling", "quota")
_DECIMALS = 4
"""Of the numbers that `scaling.recompute` derives anew; demand is given as it was planned with."""


def reasons(
    made: PoolFloors,
    pool: Pool,
    *,
    times: list[str],
    lead: dict[str, Any],
    labels: tuple[str, ...],
    waiting: Mapping[str, Waiting],
    cached: Mapping[str, float],
    uses: Sequence[Use],
    specs: Sequence[WorkloadClass],
    placed: Floats | None = None,
) -> list[str]:
    """One JSON object for each window of the pool.

    `times` are the starts of the grid's steps and its end, `lead` what reasons say of the pool's lead, `labels` those
    that `made.class_label` counts in, `waiting` the classes planned by their deadlines, `cached` the shares of prompt
    tokens left out, `uses` of the quotas that cover the pool, `specs` the classes of `made.classes`, and `placed`
    [classes, steps] the share of each that is placed on this pool, all of it unless given.
    """
    binding = np.where(made.on_fallback, Rung.FALLBACK.value, made.binding)
    counts = np.stack(
        [binding != Metric.TOKENS_OUT.value, binding != Metric.TOKENS_IN.value] * ~made.on_fallback, dtype=np.float64
    )
    adjustments = list(_adjustments(made))
    descended = next(move.after for move in made.moves if move.rule == "step_down")
    columns: dict[str, list[Any]] = {
        "binding": binding.tolist(),
        "needed_by": [times[step] for step in made.deciding.tolist()],
        "tokens_in_per_s": made.demand[0].tolist(),
        "tokens_out_per_s": made.demand[1].tolist(),
        "share_in": made.share[0].tolist(),
        "share_out": made.share[1].tolist(),
        "peak_in": made.peak[0].tolist(),
        "peak_out": made.peak[1].tolist(),
        "median_tokens_per_s": (made.median * counts).sum(axis=0).round(_DECIMALS).tolist(),
        "demand_tokens_per_s": (made.demand * counts).sum(axis=0).round(_DECIMALS).tolist(),
        "required_replicas": made.required.round(_DECIMALS).tolist(),
        "buffers": list(_buffers(made, pool)),
        "adjustments": adjustments,
        "published_replicas": made.before[1:].tolist(),
        "previous_replicas": [int(made.before[0]), *descended[:-1].tolist()],
        "classes": list(_classes(made, labels, _deadlines(made, waiting, times), cached, placed)),
        "clamped": [clamped_by(move["rule"] for move in moves) for moves in adjustments],
        "shortfall_replicas": made.shortfall.tolist(),
        "quotas": list(_quotas(uses, len(binding))),
        "admission": list(_admission(made, pool, specs, cached)),
    }
    if made.taken:
        columns["takes_over"] = list(_taken(made))
    if placed is not None:
        columns["placed"] = list(_placed(made, specs, placed))
    constants = {**lead, "quantile": pool.margin.quantile}
    return [
        to_json({**dict(zip(columns, values, strict=True)), **constants}).decode()
        for values in zip(*columns.values(), strict=True)
    ]


def clamped_by(rules: Iterable[str]) -> str | None:
    """The last limit among the rules that moved a floor."""
    return next((rule for rule in reversed(list(rules)) if rule in _LIMITS), None)


def _buffers(made: PoolFloors, pool: Pool) -> Iterator[list[dict[str, Any]]]:
    """The buffers that apply: fallback replicas have none, and where none is needed that is all."""
    to_zero = (
        [{"name": ToZero.name, "value": zero.below_tokens_per_s, "replicas": 0.0}]
        if (zero := pool.scale_to_zero)
        else []
    )
    steps = zip(*(after.round(_DECIMALS).tolist() for after in made.buffered), strict=True)
    for on_fallback, idle, numbers in zip(made.on_fallback.tolist(), made.idle.tolist(), steps, strict=True):
        if on_fallback or idle:
            yield [] if on_fallback else to_zero
            continue
        yield [
            {"name": buffer.name, "value": buffer.value, "replicas": after}
            for buffer, after in zip(made.buffers, numbers, strict=True)
        ]


def _adjustments(made: PoolFloors) -> Iterator[list[dict[str, Any]]]:
    """The rules that moved the number, with the number before and after."""
    numbers = zip(*(move.after.tolist() for move in made.moves), strict=True)
    for window, (wanted, after_each) in enumerate(zip(made.wanted.tolist(), numbers, strict=True)):
        yield [
            {"rule": move.rule, "before": before, "after": after} | ({"name": move.names[window]} if move.names else {})
            for move, (before, after) in zip(made.moves, pairwise((wanted, *after_each)), strict=True)
            if after != before
        ]


def _deadlines(
    made: PoolFloors, waiting: Mapping[str, Waiting], times: list[str]
) -> dict[str, list[dict[str, Any] | None]]:
    """By class one entry a window: what `floorcast.types.Deadline` holds, None where what arrives is not known."""
    found: dict[str, list[dict[str, Any] | None]] = {}
    for name in (name for name in made.classes if name in waiting):
        one = waiting[name]
        arriving = one.arriving[:, made.deciding].round(DECIMALS).T.tolist()
        done = one.finished[made.deciding].tolist()
        found[name] = [
            None
            if math.isnan(tokens_in + tokens_out)
            else {
                "wait_s": one.wait.total_seconds(),
                "arriving_in_per_s": tokens_in,
                "arriving_out_per_s": tokens_out,
                "done_by": times[last + 1],
            }
            for (tokens_in, tokens_out), last in zip(arriving, done, strict=True)
        ]
    return found


def _classes(
    made: PoolFloors,
    labels: tuple[str, ...],
    deadlines: Mapping[str, list[dict[str, Any] | None]],
    cached: Mapping[str, float],
    placed: Floats | None,
) -> Iterator[dict[str, dict[str, Any]]]:
    """Each class's figures at the deciding step; one not known is 0 and its model `missing`."""
    rates = np.nan_to_num(made.class_quantile).transpose(2, 0, 1).tolist()
    medians = np.nan_to_num(made.class_median).transpose(2, 0, 1).tolist()
    models = made.class_label.transpose(2, 0, 1).tolist()
    shares = np.ones((len(models), len(made.classes))) if placed is None else placed[:, made.deciding].T
    for window, (window_rates, window_medians, window_models, window_shares) in enumerate(
        zip(rates, medians, models, shares.tolist(), strict=True)
    ):
        yield {
            name: {
                "tokens_in_per_s": rate[0],
                "tokens_out_per_s": rate[1],
                "median_in_per_s": median[0],
                "median_out_per_s": median[1],
                "model_in": labels[model[0]],
                "model_out": labels[model[1]],
                **({"deadline": deadlines[name][window]} if name in deadlines else {}),
                **(_cached(rate[0], cached[name]) if name in cached else {}),
                "share": share,
            }
            for name, rate, median, model, share in zip(
                made.classes, window_rates, window_medians, window_models, window_shares, strict=True
            )
        }


def _placed(made: PoolFloors, specs: Sequence[WorkloadClass], placed: Floats) -> Iterator[dict[str, float]]:
    """By class of several pools the share that is placed on this one in the window itself."""
    several = [place for place, spec in enumerate(specs) if len(spec.pools) > 1]
    names = [made.classes[place] for place in several]
    for shares in placed[several, : len(made.wanted)].T.tolist():
        yield dict(zip(names, shares, strict=True))


def _quotas(uses: Sequence[Use], windows: int) -> Iterator[list[dict[str, Any]]]:
    about = [{"gpu": use.quota.gpu, "region": use.quota.region, "gpus": use.quota.gpus} for use in uses]
    for used in np.array([use.gpus for use in uses]).reshape(-1, windows).T.tolist():
        yield [{**one, "used": gpus} for one, gpus in zip(about, used, strict=True)]


def _admission(
    made: PoolFloors, pool: Pool, specs: Sequence[WorkloadClass], cached: Mapping[str, float]
) -> Iterator[dict[str, dict[str, Any]]]:
    """By class with demand where the pool is short. Fallback replicas rest on no demand to serve a share of."""
    short = (made.shortfall > 0) & ~made.on_fallback
    rates = class_rates(made.class_quantile[:, :, short], made.own[:, short])
    shares, budgets = admitted(rates, made.floors[short], specs, capacity=pool.capacity, role=pool.role)
    # A gateway sees whole prompts.
    budgets[:, 0] /= 1 - np.array([cached.get(name, 0.0) for name in made.classes])[:, None]
    of_window = iter(zip(shares.T.round(_DECIMALS).tolist(), _down(budgets).transpose(2, 0, 1).tolist(), strict=True))
    asking = iter((rates.sum(axis=1) > 0).T.tolist())
    for is_short in short.tolist():
        if not is_short:
            yield {}
            continue
        served, budget = next(of_window)
        yield {
            name: {"share": share, "tokens_in_per_s": rate_in, "tokens_out_per_s": rate_out}
            for name, share, (rate_in, rate_out), asks in zip(made.classes, served, budget, next(asking), strict=True)
            if asks
        }


def _down(budgets: Floats) -> Floats:
    """To one digit, downwards, so that rounding lets nothing through."""
    lower: Floats = np.floor(budgets * 10 + 10**-_DECIMALS) / 10
    return lower


def _cached(tokens_in_per_s: float, share: float) -> dict[str, float]:
    return {"cached_share": share, "prompt_in_per_s": round(tokens_in_per_s / (1 - share), DECIMALS)}


def _taken(made: PoolFloors) -> Iterator[dict[str, dict[str, float]]]:
    """What is taken over from each other pool at the deciding step."""
    for window in range(len(made.wanted)):
        yield {
            name: {
                "share": share,
                "tokens_in_per_s": float(demand[0, window]),
                "tokens_out_per_s": float(demand[1, window]),
            }
            for name, (share, demand) in made.taken.items()
        }
