"""The reason of every window, as the JSON of `floorcast.types.Reason`. Plain dictionaries, since there are many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic_core import to_json

from floorcast.columns import Metric
from floorcast.pool import Pool
from floorcast.types import Rung
from scaling.pool_floors import PoolFloors

_DECIMALS = 4
"""Of the numbers that `scaling.explain.recompute` derives anew; demand is given as it was planned with."""


def reasons(made: PoolFloors, pool: Pool, *, times: list[str], lead_s: float, labels: tuple[str, ...]) -> list[str]:
    """One JSON object for each window of the pool.

    `times` are the starts of the grid's steps, `labels` those that `made.class_label` counts in.
    """
    binding = np.where(made.on_fallback, Rung.FALLBACK.value, made.binding)
    counts = np.stack(
        [binding != Metric.TOKENS_OUT.value, binding != Metric.TOKENS_IN.value] * ~made.on_fallback, dtype=np.float64
    )
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
        "adjustments": list(_adjustments(made)),
        "classes": list(_classes(made, labels)),
        "clamped": [
            "min_replicas" if after > before else "max_replicas" if after < before else None
            for before, after in zip(made.wanted.tolist(), made.clamped.tolist(), strict=True)
        ],
        "shortfall_replicas": np.maximum(made.wanted - made.clamped, 0).tolist(),
    }
    constants = {"lead_s": lead_s, "quantile": pool.margin.quantile}
    return [
        to_json({**dict(zip(columns, values, strict=True)), **constants}).decode()
        for values in zip(*columns.values(), strict=True)
    ]


def _buffers(made: PoolFloors, pool: Pool) -> Iterator[list[dict[str, Any]]]:
    """The margins that apply: fallback replicas have none, and a margin of nothing is left out."""
    margin, margins = pool.margin, made.margins
    rows = zip(
        made.on_fallback.tolist(),
        margins.minimum.round(_DECIMALS).tolist(),
        margins.rounded.tolist(),
        margins.warm.tolist(),
        strict=True,
    )
    for on_fallback, minimum, rounded, warm in rows:
        if on_fallback:
            yield []
            continue
        buffers = [{"name": "round_up", "value": 1, "replicas": rounded}]
        if margin.minimum:
            buffers.insert(0, {"name": "minimum_margin", "value": margin.minimum, "replicas": minimum})
        if margin.warm:
            buffers.append({"name": "warm", "value": margin.warm, "replicas": warm})
        yield buffers


def _adjustments(made: PoolFloors) -> Iterator[list[dict[str, Any]]]:
    stages = (made.wanted, made.clamped, made.kept, made.held, made.floors)
    for wanted, *numbers in zip(*(stage.tolist() for stage in stages), strict=True):
        bound = "min_replicas" if numbers[0] > wanted else "max_replicas"
        before, adjustments = wanted, []
        for rule, after in zip((bound, "already_published", "dwell", "step_down"), numbers, strict=True):
            if after != before:
                adjustments.append({"rule": rule, "before": before, "after": after})
            before = after
        yield adjustments


def _classes(made: PoolFloors, labels: tuple[str, ...]) -> Iterator[dict[str, dict[str, Any]]]:
    """Each class's figures at the deciding step; one not known is 0 and its model `missing`."""
    rates = np.nan_to_num(made.class_quantile).transpose(2, 0, 1).tolist()
    medians = np.nan_to_num(made.class_median).transpose(2, 0, 1).tolist()
    models = made.class_label.transpose(2, 0, 1).tolist()
    for window_rates, window_medians, window_models in zip(rates, medians, models, strict=True):
        yield {
            name: {
                "tokens_in_per_s": rate[0],
                "tokens_out_per_s": rate[1],
                "median_in_per_s": median[0],
                "median_out_per_s": median[1],
                "model_in": labels[model[0]],
                "model_out": labels[model[1]],
            }
            for name, rate, median, model in zip(made.classes, window_rates, window_medians, window_models, strict=True)
        }
