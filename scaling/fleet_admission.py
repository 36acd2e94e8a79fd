"""What a class can be served by all its pools together, where one of them is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import polars as pl

from floorcast.config import Config
from floorcast.types import Admission, AdmissionWindow, Reason


class _Served(NamedTuple):
    """A step of a class: its budget, and the floors of its pools."""

    start: datetime
    end: datetime
    budget: Admission
    floors: tuple[int, ...]


def fleet_admission(config: Config, floors: pl.DataFrame) -> dict[str, tuple[AdmissionWindow, ...]]:
    """The budgets of a FLOORS frame by class, of the times in which its pools cannot serve all of it.

    A prefill and a decode pool serve the same requests: the budget is the least of those of the two that are short. Of
    a class on several unified pools the budgets add up; one that is not short serves what is placed on it. Where one of
    the pools is on fallback replicas, the demand is not known, and nothing is said. Neighbouring steps with the same
    floors of all its pools are one window, which has the least of each.
    """
    missing = pl.col("reason").str.json_path_match("$.shortfall_replicas").cast(pl.Int64)
    short = floors.filter(missing > 0)
    found = {}
    for name, spec in sorted(config.classes.items()):
        at = short.filter(pl.col("pool").is_in(spec.pools))["window_start"].unique()
        own = floors.filter(pl.col("pool").is_in(spec.pools), pl.col("window_start").is_in(at.implode()))
        unified = config.pools[spec.pools[0]].role == "unified"
        if windows := tuple(_windows(_steps(own, name, unified=unified))):
            found[name] = windows
    return found


def _steps(floors: pl.DataFrame, name: str, *, unified: bool) -> Iterator[_Served]:
    for rows in floors.sort("window_start", "pool").partition_by("window_start", maintain_order=True):
        reasons = [Reason.model_validate_json(text) for text in rows["reason"]]
        if any(reason.binding == "fallback_replicas" for reason in reasons):
            continue
        limits = [reason.admission[name] for reason in reasons if name in reason.admission]
        budget = _added(reasons, name) if unified else _least(limits) if limits else None
        if budget is not None and budget.share < 1:
            first = rows.row(0, named=True)
            yield _Served(first["window_start"], first["window_end"], budget, tuple(rows["min_replicas"]))


def _least(budgets: Sequence[Admission]) -> Admission:
    """The least of each figure."""
    return Admission(
        share=min(one.share for one in budgets),
        tokens_in_per_s=min(one.tokens_in_per_s for one in budgets),
        tokens_out_per_s=min(one.tokens_out_per_s for one in budgets),
    )


def _added(reasons: Sequence[Reason], name: str) -> Admission | None:
    """The share is of all of the class that is placed somewhere."""
    placed = served = tokens_in = tokens_out = 0.0
    for reason in reasons:
        demand = reason.classes[name]
        whole = demand.tokens_in_per_s if demand.prompt_in_per_s is None else demand.prompt_in_per_s
        budget = Admission(share=1, tokens_in_per_s=whole, tokens_out_per_s=demand.tokens_out_per_s)
        budget = reason.admission.get(name, budget)
        placed += demand.share
        served += demand.share * budget.share
        tokens_in += budget.tokens_in_per_s
        tokens_out += budget.tokens_out_per_s
    if not placed:
        return None
    share = min(round(served / placed, 4), 1.0)
    return Admission(share=share, tokens_in_per_s=round(tokens_in, 1), tokens_out_per_s=round(tokens_out, 1))


def _windows(steps: Iterator[_Served]) -> Iterator[AdmissionWindow]:
    run: list[_Served] = []
    for one in steps:
        if run and (one.start != run[-1].end or one.floors != run[-1].floors):
            yield _window(run)
            run = []
        run.append(one)
    if run:
        yield _window(run)


def _window(run: list[_Served]) -> AdmissionWindow:
    least = _least([one.budget for one in run])
    return AdmissionWindow(start=run[0].start, end=run[-1].end, **least.model_dump())
