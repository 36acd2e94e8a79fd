"""Minutes of production traffic: a ServeGen pair's rates and burstiness, drawn with a seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.forecast.data import DEMO_END, DEMO_SEED, STEP, Pair, demand_of, group_clients
from floorcast.pool import Bounds, Pool
from floorcast.replica import Capacity, Gpu, Startup
from pipelines.demo.generate import generate_minutes

Floats = npt.NDArray[np.float64]

MEAN_REPLICAS = 20
"""What every class is scaled to: so many replicas at full use carry its mean."""
WINDOW_MINUTES = round(STEP.total_seconds() / 60)
MINUTES_PER_DAY = 1440
_IDLE, _ON_OFF = 0.05, 0.1


@dataclass(frozen=True)
class Minutes:
    """One class, [minutes] each from the beginning of the recording. `by_second` [3, seconds] has requests, tokens in
    and tokens out where the recording is of single requests."""

    name: str
    requests: Floats
    tokens_in: Floats
    tokens_out: Floats
    by_second: Floats | None = None


def read_minutes(pair: Pair, *, seed: int) -> list[Minutes]:
    """Every class of the pair, as `benchmarks.forecast` makes them, and all of them together.

    A minute under a window's rate r and coefficient of variation c has Normal(60 r, c^2 60 r) requests, never fewer
    than 0, of the window's mean lengths. Windows in which every client reads 0 are bridged by interpolation.
    """
    rates = pl.read_parquet(pair.rates)
    clients = rates["client"].unique().sort().to_list()
    demand = demand_of(pair, {str(client): (client,) for client in clients})
    windows = 1 + int(rates["window_start_s"].max() // STEP.total_seconds())  # type: ignore[operator]
    start = demand["step_start"].min()
    found: dict[int, tuple[Floats, Floats, Floats, Floats]] = {}
    for client in clients:
        own = rates.filter(pl.col("client") == client)
        place = (own["window_start_s"].to_numpy() // STEP.total_seconds()).astype(np.int64)
        rate, cv = np.zeros(windows), np.ones(windows)
        rate[place] = own["requests_per_s"].to_numpy()
        cv[place] = own["interarrival_cv"].fill_nan(None).fill_null(1.0).to_numpy()
        rows = demand.filter(pl.col("workload_class") == str(client), pl.col("requests") > 0)
        at = ((rows["step_start"] - start).dt.total_seconds() // STEP.total_seconds()).to_numpy().astype(np.int64)
        lengths = [
            np.interp(np.arange(windows), at, rows[name].to_numpy() / rows["requests"].to_numpy())
            if len(at)
            else np.zeros(windows)
            for name in ("tokens_in", "tokens_out")
        ]
        found[client] = (rate, cv, lengths[0], lengths[1])
    silent = np.sum([rate for rate, *_ in found.values()], axis=0) == 0
    rng = np.random.default_rng(seed)
    drawn = {client: _draw(*values, silent=silent, rng=rng) for client, values in found.items()}
    groups = group_clients(demand) | {"all": tuple(clients)}
    return [
        Minutes(f"{pair.model}/{name}", *(np.sum([drawn[one][part] for one in members], axis=0) for part in range(3)))
        for name, members in groups.items()
    ]


def demo_minutes(*, days: int) -> list[Minutes]:
    """The classes of `floorcast demo`, as `benchmarks.forecast` has them; minutes not observed are bridged,
    and those in which every class reads 0, an outage, as the recordings' are."""
    rows = generate_minutes(end=DEMO_END, days=days, rng=np.random.default_rng(DEMO_SEED))
    rows = rows.filter(pl.col("tokens_in").sum().over("minute_start") > 0)
    first: datetime = DEMO_END - timedelta(days=days)
    every = np.arange(days * MINUTES_PER_DAY)
    made = []
    for (name,), own in rows.group_by("workload_class", maintain_order=True):
        at = (own["minute_start"] - first).dt.total_minutes().to_numpy()
        columns = (np.interp(every, at, own[column].to_numpy()) for column in ("requests", "tokens_in", "tokens_out"))
        made.append(Minutes(f"demo/{name}", *columns))
    return made


def read_trace(path: Path) -> Minutes:
    """Requests one by one, as Azure's traces have them, in whole minutes from the first."""
    rows = pl.read_csv(path, columns=["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
    when = rows["TIMESTAMP"].str.to_datetime("%Y-%m-%d %H:%M:%S%.f")
    second = (when - when.min()).dt.total_seconds().to_numpy()
    minutes = int(second.max()) // 60
    weights = (np.ones(len(rows)), rows["ContextTokens"].to_numpy(), rows["GeneratedTokens"].to_numpy())
    by_second = np.array([np.bincount(second, weights=one)[: 60 * minutes] for one in weights], dtype=np.float64)
    requests, tokens_in, tokens_out = by_second.reshape(3, minutes, 60).sum(axis=2)
    return Minutes(f"trace/{path.stem}", requests, tokens_in, tokens_out, by_second)


def is_on_off(minutes: Minutes) -> bool:
    """Whether next to nothing comes in a tenth of the recording's windows: work of batches, which may wait."""
    windows = minutes.tokens_in.reshape(-1, WINDOW_MINUTES).mean(axis=1)
    return bool((windows < _IDLE * windows.mean()).mean() >= _ON_OFF)


def pool_of(minutes: Minutes, *, startup_s: float) -> Pool:
    """A pool whose mean takes MEAN_REPLICAS at full use, half of it prefill and half decode, which share the GPU."""
    return Pool(
        gpu=Gpu(type="any"),
        capacity=Capacity(
            prefill_tokens_per_s=2 * minutes.tokens_in.mean() / 60 / MEAN_REPLICAS,
            decode_tokens_per_s=2 * minutes.tokens_out.mean() / 60 / MEAN_REPLICAS,
            combine="sum",
        ),
        startup=Startup.model_validate({"p90": f"{startup_s:g}s"}),
        bounds=Bounds(min=1, max=1000),
    )


def load_of(minutes: Minutes, pool: Pool) -> Floats:
    """[minutes] replicas at full use."""
    capacity = pool.capacity
    return (
        minutes.tokens_in / 60 / capacity.prefill_tokens_per_s + minutes.tokens_out / 60 / capacity.decode_tokens_per_s
    )


def _draw(
    rate: Floats,
    cv: Floats,
    length_in: Floats,
    length_out: Floats,
    *,
    silent: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats]:
    heard = np.flatnonzero(~silent)
    every = np.arange(len(rate))
    rate, cv = (np.interp(every, heard, values[heard]) for values in (rate, cv))
    mean = np.repeat(60 * rate, WINDOW_MINUTES)
    requests = np.maximum(rng.normal(mean, np.repeat(cv, WINDOW_MINUTES) * np.sqrt(mean)), 0.0)
    return requests, requests * np.repeat(length_in, WINDOW_MINUTES), requests * np.repeat(length_out, WINDOW_MINUTES)
