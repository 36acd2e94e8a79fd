"""Seconds per class to fit both metrics over 14 days at 5 minutes: in one process, on all cores, over Dask."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from distributed import LocalCluster
from threadpoolctl import threadpool_limits

from benchmarks.report import parser, write
from floorcast.columns import Metric
from forecasting.selection import fit_series
from forecasting.series import Series
from forecasting.verdict import Target
from pipelines.stages.fanout import Fitted, Job, fit_all

START = datetime(2026, 11, 16, tzinfo=UTC)
STEP = timedelta(minutes=5)
DAY = 288
DAYS = 14
TARGET = Target(quantile=0.95, lead_steps=3, horizon_steps=2 * DAY)

Way = Callable[[Sequence[Job]], Iterable[Fitted]]


def fleet(classes: int) -> list[Job]:
    """Daily cycles of differing height, hour and noise, lower at weekends."""
    rng = np.random.default_rng(1)
    steps = np.arange(DAYS * DAY)
    jobs = []
    for number in range(classes):
        hour, noise = rng.uniform(0, DAY), rng.uniform(0.05, 0.3)
        shape = (1.3 + np.sin(2 * np.pi * (steps - hour) / DAY)) * np.where(steps // DAY % 7 < 5, 1.0, 0.7)
        for metric, level in ((Metric.TOKENS_IN, 9000), (Metric.TOKENS_OUT, 2500)):
            values = level * shape * rng.lognormal(0, noise, len(steps))
            jobs.append((Series(f"class-{number}", metric, START, STEP, values), TARGET))
    return jobs


def in_one_process(jobs: Sequence[Job]) -> Iterator[Fitted]:
    with threadpool_limits(1):
        for series, target in jobs:
            yield fit_series(series, cutoff=series.end, target=target, timer=time.perf_counter)


def main() -> None:
    arguments = parser("scale", __doc__ or "")
    arguments.add_argument("--classes", type=int, nargs="+", default=[10, 30, 100], help="sizes of the fleet")
    given = arguments.parse_args()
    cores = os.cpu_count() or 1
    with LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=None) as cluster:
        ways: dict[str, Way] = {
            "one_process": in_one_process,
            "cores": lambda jobs: fit_all(jobs, scheduler=None),
            "dask": lambda jobs: fit_all(jobs, scheduler=cluster.scheduler_address),
        }
        # A cluster stands before a fit begins, and its workers have imported what they need.
        list(ways["dask"](fleet(cores)))
        made = {way: {size: _timed(work, size) for size in given.classes} for way, work in ways.items()}
    seconds = {way: {size: taken for size, (taken, _) in each.items()} for way, each in made.items()}
    for size in given.classes:
        if any(each[size][1] != made["one_process"][size][1] for each in made.values()):
            raise SystemExit(f"the fits of {size} classes differ between two ways")
    smallest, largest = min(given.classes), max(given.classes)
    write(
        "scale",
        summary={
            "seconds_per_class": seconds["cores"][largest],
            "speedup_cores": seconds["one_process"][largest] / seconds["cores"][largest],
            "speedup_dask": seconds["one_process"][largest] / seconds["dask"][largest],
            "growth": seconds["cores"][largest] / seconds["cores"][smallest],
        },
        detail={"seconds_per_class": seconds, "series_per_class": 2, "steps": DAYS * DAY},
        out=given.json,
    )


def _timed(work: Way, classes: int) -> tuple[float, list[str]]:
    """Seconds per class, and the fits."""
    jobs = fleet(classes)
    began = time.perf_counter()
    done = list(work(jobs))
    taken = time.perf_counter() - began
    return taken / classes, sorted(json.dumps(row, default=str, sort_keys=True) for fits, _ in done for row in fits)


if __name__ == "__main__":
    main()
