"""GPU-hours at equal service: the overlay alone, floorcast behind its gate, others' floors, the clairvoyant."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from benchmarks.decisions.data import demo_minutes, is_on_off, pool_of, read_minutes, read_trace
from benchmarks.decisions.judge import Judged, judge
from benchmarks.decisions.policies import Task, task_of
from benchmarks.decisions.table import DEMO, PAIRS, TRACE, WAITING, render
from benchmarks.forecast.__main__ import pairs_of
from benchmarks.forecast.data import START
from benchmarks.report import parser, peak_memory_gib, write
from pipelines.progress import track

INTERACTIVE_S, BATCH_S = 10.0, 900.0
STARTUP_S = 600.0
DEMO_DAYS = 14


def judge_all(tasks: list[Task]) -> list[Judged]:
    """One process a core."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=threadpool_limits, initargs=(1,)) as pool:
        return list(track(pool.map(judge, tasks), total=len(tasks), label="judging"))


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of classes whose overlay alone keeps the promise at some setting."""
    feasible = [row for row in rows if row["gap_closed"] is not None]
    opened = [row["gap_closed"] for row in feasible if row["gate"] == "open"]
    return {
        "gap_closed_mean": sum(row["gap_closed"] for row in feasible) / max(len(feasible), 1),
        "gap_closed_gate_open": sum(opened) / max(len(opened), 1),
        "worst_cost_ratio": max((row["cost_ratio"] for row in feasible), default=0.0),
        "classes_feasible": float(len(feasible)),
    }


def summary_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of the first startup and group; those of the others are prefixed."""
    found: dict[str, float] = {}
    for startup_s, group in dict.fromkeys((row["startup_s"], row["group"]) for row in rows):
        own = [row for row in rows if (row["startup_s"], row["group"]) == (startup_s, group)]
        prefix = "" if not found else f"{'' if group == PAIRS else f'{group}_'}startup_{startup_s:g}_"
        found |= {prefix + name: value for name, value in summarise(own).items()}
    return found


def tasks_of(given: argparse.Namespace, startup_s: float, *, demo: bool) -> list[tuple[str, Task]]:
    """The classes by group: those of the pairs; those of them that may wait, once more; those of the demo fleet;
    and recordings of single requests."""
    minutes = [one for pair in pairs_of(given) for one in read_minutes(pair, seed=given.seed)]
    groups = [(PAIRS, INTERACTIVE_S, one) for one in minutes]
    groups += [(WAITING, BATCH_S, one) for one in minutes if is_on_off(one)]
    groups += [(DEMO, INTERACTIVE_S, one) for one in (demo_minutes(days=DEMO_DAYS) if demo else ())]
    groups += [(TRACE, INTERACTIVE_S, read_trace(path)) for path in given.trace or ()]
    return [
        (group, task_of(one, pool_of(one, startup_s=startup_s), start=START, max_wait_s=max_wait_s))
        for group, max_wait_s, one in groups
        if not given.only or one.name in given.only
    ]


def main() -> None:
    arguments = parser("decisions", __doc__ or "")
    arguments.add_argument("--rates", type=Path, action="append", help="a ServeGen file of rates; may be repeated")
    arguments.add_argument("--lengths", type=Path, action="append", help="its file of lengths, in the same order")
    arguments.add_argument(
        "--startup", type=float, action="append", help="seconds from asked for to serving; 600; may be repeated"
    )
    arguments.add_argument(
        "--demo", action="store_true", help="also the classes of the demo fleet, at the first startup"
    )
    arguments.add_argument("--trace", type=Path, action="append", help="a file of single requests, as Azure's traces")
    arguments.add_argument("--seed", type=int, default=1, help="of the minutes drawn")
    arguments.add_argument("--only", action="append", help="a class, as m-small/client-5; may be repeated")
    arguments.add_argument("--decisions", type=Path, help="also write what every policy decided, minute by minute")
    given = arguments.parse_args()
    began = time.perf_counter()
    startups = given.startup or [STARTUP_S]
    grouped = [
        one
        for startup_s in startups
        for one in tasks_of(given, startup_s, demo=given.demo and startup_s == startups[0])
    ]
    judged = judge_all([task for _, task in grouped])
    if given.decisions:
        pl.concat([one.paths for one in judged]).write_parquet(given.decisions)
    rows = [{"group": group} | one.row for (group, _), one in zip(grouped, judged, strict=True)]
    detail = {"classes": rows, "seed": given.seed, "seconds": time.perf_counter() - began}
    write("decisions", summary=summary_of(rows) | {"peak_memory_gib": peak_memory_gib()}, detail=detail, out=given.json)
    if given.json:
        given.json.with_suffix(".md").write_text(render(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
