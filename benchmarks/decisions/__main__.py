"""GPU-hours at equal service: the overlay alone, floorcast behind its gate, others' floors, the clairvoyant."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from benchmarks.decisions.data import pool_of, read_minutes
from benchmarks.decisions.judge import Judged, judge
from benchmarks.decisions.policies import Task, task_of
from benchmarks.forecast.__main__ import pairs_of
from benchmarks.forecast.data import START
from benchmarks.report import parser, peak_memory_gib, write
from pipelines.progress import track

INTERACTIVE_S, BATCH_S = 10.0, 900.0


def judge_all(tasks: list[Task]) -> list[Judged]:
    """One process a core."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=threadpool_limits, initargs=(1,)) as pool:
        return list(track(pool.map(judge, tasks), total=len(tasks), label="judging"))


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    feasible = [row for row in rows if row["gap_closed"] is not None]
    opened = [row["gap_closed"] for row in feasible if row["gate"] == "open"]
    return {
        "gap_closed_mean": sum(row["gap_closed"] for row in feasible) / max(len(feasible), 1),
        "gap_closed_gate_open": sum(opened) / max(len(opened), 1),
        "worst_cost_ratio": max((row["cost_ratio"] for row in feasible), default=0.0),
        "classes_feasible": float(len(feasible)),
    }


def main() -> None:
    arguments = parser("decisions", __doc__ or "")
    arguments.add_argument("--rates", type=Path, action="append", help="a ServeGen file of rates; may be repeated")
    arguments.add_argument("--lengths", type=Path, action="append", help="its file of lengths, in the same order")
    arguments.add_argument("--startup", type=float, default=600.0, help="seconds from asked for to serving")
    arguments.add_argument("--seed", type=int, default=1, help="of the minutes drawn")
    arguments.add_argument("--only", action="append", help="a class, as m-small/client-5; may be repeated")
    arguments.add_argument("--decisions", type=Path, help="also write what every policy decided, minute by minute")
    given = arguments.parse_args()
    began = time.perf_counter()
    minutes = [one for pair in pairs_of(given) for one in read_minutes(pair, seed=given.seed)]
    tasks = [
        task_of(one, pool_of(one, startup_s=given.startup), start=START, max_wait_s=INTERACTIVE_S)
        for one in minutes
        if not given.only or one.name in given.only
    ]
    judged = judge_all(tasks)
    if given.decisions:
        pl.concat([one.paths for one in judged]).write_parquet(given.decisions)
    rows = [one.row for one in judged]
    detail = {"classes": rows, "startup_s": given.startup, "seed": given.seed, "seconds": time.perf_counter() - began}
    write("decisions", summary=summarise(rows) | {"peak_memory_gib": peak_memory_gib()}, detail=detail, out=given.json)


if __name__ == "__main__":
    main()
