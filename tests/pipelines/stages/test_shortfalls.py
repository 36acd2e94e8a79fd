"""A span that is short is told by its worst step, all of one instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from floorcast.columns import FLOORS, conform
from floorcast.types import Adjustment, Admission, Reason
from pipelines.stages.plan import shortfalls

T0, STEP = datetime(2026, 11, 30, 8, 50, tzinfo=UTC), timedelta(minutes=5)


def reason(missing, rule, share):
    return Reason(
        binding="tokens_out",
        needed_by=T0,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=0,
        tokens_out_per_s=0,
        median_tokens_per_s=0,
        demand_tokens_per_s=0,
        required_replicas=0,
        adjustments=(Adjustment(rule=rule, before=5 + missing, after=5),),
        shortfall_replicas=missing,
        admission={"chat": Admission(share=share, tokens_in_per_s=1, tokens_out_per_s=1)},
    ).model_dump_json()


def test_number_rule_and_admission_are_those_of_the_step_short_by_most():
    """Short by 1 for a ceiling, by 4 for a quota, by 2 for a ceiling again, which serves chat least of all."""
    said = [(1, "ceiling", 0.9), (4, "quota", 0.5), (2, "ceiling", 0.3)]
    rows = [("main", T0 + k * STEP, T0 + (k + 1) * STEP, 5, 0.0, "fresh", reason(*one)) for k, one in enumerate(said)]
    [one] = shortfalls(conform(pl.DataFrame(rows, schema=list(FLOORS), orient="row"), FLOORS))
    assert (one.start, one.worst_at, one.end) == (T0, T0 + STEP, T0 + 3 * STEP)
    assert one.text == "main short by 4 (quota) at 11-30 08:55 UTC: chat served 50 % at peak"
