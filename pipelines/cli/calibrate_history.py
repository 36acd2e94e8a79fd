"""`floorcast calibrate --from-history`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

import polars as pl

from floorcast.pool import Pool
from floorcast.units import format_duration, format_time
from pipelines.cli.calibrate import snippet_of, sustained
from pipelines.cli.output import say, say_json, say_table
from pipelines.project import Project
from pipelines.stages.load import contradicted, history_of
from scaling.calibration.history import HistoryCalibration, QueueEdge, calibrate_history
from scaling.calibration.loaded import load_of


def from_production(
    project: Project, name: str, now: datetime, *, combine: Literal["max", "sum"] | None, as_json: bool
) -> None:
    """Print what one replica of a pool sustains, from its history up to `now`."""
    as_of, step = project.as_of(now), project.config.step
    steps = history_of(project, name, as_of)
    pool = project.config.pools[name]
    done = calibrate_history(steps, pool, step=step, combine=combine)
    against = contradicted(project.config, name, steps)
    snippet = snippet_of(done.fitted, name)
    if as_json:
        say_json(_document(steps, done, against, snippet))
        return
    first, last = steps["step_start"].min(), steps["step_start"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        say(
            f"pool {name}: {format_duration(done.steps * step)} known of {format_time(first)} to "
            f"{format_time(last + step)}, {format_duration(done.queued * step)} of them with requests waiting"
        )
    say_table(
        ("tokens out per in", "tokens in/s", "tokens out/s", "queues begun", "quartiles", "of the configured capacity"),
        (_row(edge, pool) for edge in done.edges),
    )
    say(sustained(done.fitted, at_least=done.at_least))
    say(f"  configured: {_configured(pool)}")
    for one in against:
        say(f"  contradicted: {one['says']}")
    for note in done.notes:
        say(f"  note: {note}")
    say(f"\n{snippet}")


def _row(edge: QueueEdge, pool: Pool) -> tuple[str, ...]:
    rates = pl.DataFrame({"in": [edge.tokens_in_per_s], "out": [edge.tokens_out_per_s]}).to_numpy()
    load = float(load_of(rates, pool)[0][0])
    return (
        f"{edge.tokens_out_per_s / edge.tokens_in_per_s:.3g}" if edge.tokens_in_per_s else "-",
        f"{edge.tokens_in_per_s:,.0f}",
        f"{edge.tokens_out_per_s:,.0f}",
        f"{edge.onsets}" if edge.onsets else "none",
        f"{edge.low:.0%} to {edge.high:.0%}" if edge.onsets else "-",
        f"{load:.0%}",
    )


def _configured(pool: Pool) -> str:
    of = {"tokens_in": pool.capacity.prefill_tokens_per_s, "tokens_out": pool.capacity.decode_tokens_per_s}
    words = " and ".join(f"{of[metric]:,.10g} {metric.replace('_', ' ')}" for metric in pool.metrics)
    how = f" ({pool.capacity.combine})" if len(pool.metrics) == 2 else ""
    return f"{words} per s{how}"


def _document(
    steps: pl.DataFrame, done: HistoryCalibration, against: list[dict[str, Any]], snippet: str
) -> dict[str, Any]:
    fitted = done.fitted
    return {
        "capacity": {
            "prefill_tokens_per_s": fitted.prefill_tokens_per_s,
            "decode_tokens_per_s": fitted.decode_tokens_per_s,
            "combine": fitted.combine,
            "at_least": done.at_least,
            "separated": fitted.separated,
            "misfit": fitted.misfit,
        },
        "edges": [asdict(edge) for edge in done.edges],
        "steps": done.steps,
        "queued_steps": done.queued,
        "first": steps["step_start"].min(),
        "last": steps["step_start"].max(),
        "contradictions": against,
        "notes": list(done.notes),
        "snippet": snippet,
    }
