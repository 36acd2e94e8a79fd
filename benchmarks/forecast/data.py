"""Series to judge forecasts on: of a ServeGen pair of files, and of the demo fleet.

Of ServeGen: the four largest clients, the next eight together, the rest together, and all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from floorcast.columns import Metric
from floorcast.errors import DataError
from floorcast.source import TraceSource
from floorcast.units import parse_time
from forecasting.series import FloatArray, Series
from pipelines.demo.generate import MINUTE, generate_minutes
from pipelines.sources import import_trace

STEP = timedelta(minutes=10)
START = parse_time("2026-11-01T00:00:00+08:00")
"""Time zero is a midnight in UTC+8; which one does not matter."""

ALONE, TOGETHER = 4, 8
"""How many of the largest clients are classes of their own, and how many of the next are one."""

DEMO_END = parse_time("2026-11-30T08:50:00Z")
DEMO_SEED = 7

Clients = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Pair:
    """The two files of one model."""

    rates: Path
    lengths: Path

    @property
    def model(self) -> str:
        return self.rates.stem.removeprefix("servegen_").removesuffix("_rates")


def read_pair(pair: Pair) -> list[Series]:
    """Series of both metrics of every class, named `model/class`, from each one's first observed step on.

    Steps in which every client reads 0 are missing in all of them: a collection that failed. Raises DataError where
    the pair cannot be read.
    """
    try:
        found = pl.scan_parquet(pair.rates).select(pl.col("client").unique().sort()).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"no rates: {error}", where=str(pair.rates), remedy="name a ServeGen file of rates") from error
    clients: list[int] = found["client"].drop_nulls().to_list()
    singles: Clients = {str(client): (client,) for client in clients}
    every = demand_of(pair, {"all": tuple(clients)})
    classes = group_clients(demand_of(pair, singles))
    demand = pl.concat([every, demand_of(pair, classes)])
    silent = every.filter(pl.col("requests") == 0)["step_start"].implode()
    return to_series(demand.filter(~pl.col("step_start").is_in(silent)), model=pair.model)


def group_clients(demand: pl.DataFrame) -> Clients:
    """The classes beside `all`, by mean tokens in over all of the recording, largest first.

    `demand` (DEMAND) has a class for each client, named by its number.
    """
    sizes = demand.group_by("workload_class").agg(pl.col("tokens_in").sum(), number=pl.col("workload_class").first())
    ranked = [int(name) for name in sizes.sort("tokens_in", "number", descending=[True, False])["number"]]
    groups: Clients = {f"client-{client}": (client,) for client in ranked[:ALONE]}
    rest = ALONE + TOGETHER
    groups |= {"next-8": tuple(ranked[ALONE:rest]), "rest": tuple(ranked[rest:])}
    return {name: members for name, members in groups.items() if members}


def demo_series(*, weeks: int) -> list[Series]:
    """Both metrics of the classes of `floorcast demo`, of the seed and the end that it has, over so many weeks."""
    minutes = generate_minutes(end=DEMO_END, days=7 * weeks, rng=np.random.default_rng(DEMO_SEED))
    steps = minutes.group_by("workload_class", step_start=pl.col("minute_start").dt.truncate(STEP)).agg(
        pl.col(*Metric).sum(), observed_fraction=pl.len() * MINUTE / STEP
    )
    return to_series(steps.sort("workload_class", "step_start"), model="demo")


def to_series(demand: pl.DataFrame, *, model: str) -> list[Series]:
    """Tokens per second of every class and metric of DEMAND; NaN where a step has no row. All end together."""
    end: datetime = demand.select(pl.col("step_start").max()).item() + STEP
    series: list[Series] = []
    for (name,), rows in demand.group_by("workload_class", maintain_order=True):
        start: datetime = rows.select(pl.col("step_start").min()).item()
        grid = pl.select(step_start=pl.datetime_range(start, end, STEP, closed="left"))
        aligned = grid.join(rows, on="step_start", how="left", maintain_order="left")
        seconds = aligned["observed_fraction"].to_numpy() * STEP.total_seconds()
        for metric in Metric:
            rates: FloatArray = aligned[metric].to_numpy() / seconds
            series.append(Series(f"{model}/{name}", metric, start, STEP, rates))
    return series


def daily_share(values: FloatArray, *, day: int) -> float:
    """The share of variance that the mean at each time of day explains, over whole days; 0 for a constant."""
    days = values[len(values) % day :].reshape(-1, day)
    seen = np.isfinite(days)
    if not seen.any():
        return 0.0
    count = np.maximum(seen.sum(axis=0), 1)
    profile = np.where(seen, days, 0.0).sum(axis=0) / count
    total = float(np.nansum((days - np.nanmean(days)) ** 2))
    left = float(np.nansum((days - profile) ** 2))
    return 1 - left / total if total > 0 else 0.0


def demand_of(pair: Pair, clients: Clients) -> pl.DataFrame:
    source = TraceSource.model_validate(
        {
            "name": pair.model,
            "kind": "trace",
            "format": "servegen",
            "path": str(pair.rates.resolve()),
            "lengths": str(pair.lengths.resolve()),
            "start": START,
            "clients": clients,
        }
    )
    return import_trace(source, step=STEP, classes=list(clients), until=None, base=Path()).demand
