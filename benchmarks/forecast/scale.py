"""How long floorcast's two cadences take: a forecast of many classes from stored fits, and the fits themselves.

Both are the product's stages on a store in a temporary folder, reading and writing included. Classes are the demo's
six, each turned by some hours, scaled, and with noise of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from floorcast.columns import DEMAND, Metric, conform
from floorcast.config import Config
from pipelines.demo.generate import generate_minutes
from pipelines.project import Project
from pipelines.stages.fit import fit
from pipelines.stages.forecast import forecast
from store.connection import open_store
from store.demand import upsert_demand
from store.fits import read_fits, read_scores, write_fits

STEP = timedelta(minutes=5)
DAYS = 14
END = datetime(2026, 11, 30, tzinfo=UTC)
SEED = 7
FITTED = (10, 50)
"""How many classes are fitted, for the seconds of one and their growth."""

POOL_SIZE = 10
BATCH = 100
"""Classes written to the store at a time, to bound memory."""


def measure(classes: int) -> tuple[dict[str, float], dict[str, object]]:
    """Figures for `summary` and `detail`.

    Fitting that many would take hours: the seconds of a class are those of a sample, and the classes that are forecast
    take the fits of the sample's, each that of a class of the same shape.
    """
    seconds: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in FITTED:
            project = _project(Path(folder) / str(count), count)
            began = time.perf_counter()
            result = fit(project, END)
            seconds[count] = time.perf_counter() - began
            if len({one.workload_class for one in result.chosen}) != count:
                raise SystemExit(f"{len(result.chosen)} fits for {count} classes")
        full = _project(Path(folder) / "full", classes)
        _copy_fits(project, full)
        began = time.perf_counter()
        made = forecast(full, END)
        forecast_s = time.perf_counter() - began
    if made.failed or made.series != 2 * classes:
        raise SystemExit(f"{made.series} series were forecast of {2 * classes}: {made.summary}")
    per_class = {count: taken / count for count, taken in seconds.items()}
    small, large = FITTED
    figures = {
        f"forecast_seconds_{classes}": forecast_s,
        "refit_speedup": per_class[large] * classes / forecast_s,
        "fit_seconds_per_class": per_class[large],
        "fit_growth": per_class[large] / per_class[small],
    }
    return figures, {"fit_seconds": seconds, "forecast_steps": made.steps, "fits_extrapolated_to": classes}


def fleet(count: int, rng: np.random.Generator) -> pl.DataFrame:
    """DEMAND of two weeks for `count` classes; the first six are the demo's own up to noise."""
    minutes = generate_minutes(end=END, days=DAYS, rng=np.random.default_rng(SEED))
    steps = (
        minutes.group_by("workload_class", pl.col("minute_start").dt.truncate(STEP).alias("step_start"))
        .agg(pl.col("requests", "tokens_in", "tokens_out").sum(), observed_fraction=pl.len() / 5)
        .sort("workload_class", "step_start")
    )
    shapes = steps.partition_by("workload_class", maintain_order=True)
    return pl.concat(_variant(shapes[i % len(shapes)], name, rng) for i, name in enumerate(class_names(count)))


def class_names(count: int) -> list[str]:
    return [f"class-{i}" for i in range(count)]


def _variant(shape: pl.DataFrame, name: str, rng: np.random.Generator) -> pl.DataFrame:
    turned = int(rng.integers(0, 24)) * 12
    factor = float(np.exp(rng.normal(0, 1)))
    noise = np.exp(0.05 * rng.standard_normal((shape.height, len(Metric))))
    rolled = [(np.roll(shape[metric].to_numpy(), turned) * factor * noise[:, i]) for i, metric in enumerate(Metric)]
    return conform(
        shape.with_columns(
            workload_class=pl.lit(name),
            **{str(metric): pl.Series(values) for metric, values in zip(Metric, rolled, strict=True)},
            peak_tokens_in_per_s=pl.lit(None),
            peak_tokens_out_per_s=pl.lit(None),
            source=pl.lit("made"),
        ),
        DEMAND,
    )


def _project(folder: Path, count: int) -> Project:
    names = class_names(count)
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600},
        "startup": {"p90": "4m"},
        "bounds": {"min": 2, "max": 60},
    }
    config = Config.model_validate(
        {
            "pools": {f"pool-{i}": pool for i in range(-(-count // POOL_SIZE))},
            "classes": {name: {"pools": [f"pool-{i // POOL_SIZE}"]} for i, name in enumerate(names)},
        }
    )
    folder.mkdir()
    project = Project(folder / "floorcast.yaml", config)
    demand = fleet(count, np.random.default_rng(SEED))
    with open_store(project.store_path) as store:
        for batch in _batches(names):
            upsert_demand(store, demand.filter(pl.col("workload_class").is_in(batch)))
    return project


def _batches(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[i : i + BATCH] for i in range(0, len(names), BATCH)]


def _copy_fits(fitted: Project, target: Project) -> None:
    """Give every class the fits of the fitted class of its shape and place."""
    sample = list(fitted.config.classes)
    usable = sample[: len(sample) // 6 * 6]
    names = list(target.config.classes)
    to = pl.DataFrame({"workload_class": [usable[i % len(usable)] for i in range(len(names))], "named": names})
    with open_store(fitted.store_path) as store:
        fits, scores = read_fits(store, at=END), read_scores(store, at=END)
    with open_store(target.store_path) as store:
        write_fits(
            store,
            "copied",
            *(
                frame.join(to, on="workload_class")
                .drop("workload_class")
                .rename({"named": "workload_class"})
                .select(frame.columns)
                for frame in (fits, scores)
            ),
        )
