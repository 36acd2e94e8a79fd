"""Floors with their reasons for many pools, 48 hours at 5 minutes, and how that grows."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from benchmarks.report import parser, peak_memory_gib, write
from floorcast.columns import DEMAND, FORECASTS, QUANTILE_COLUMNS, Metric, conform, empty
from floorcast.config import Config
from scaling.floors import plan
from scaling.placement.place import group_of
from scaling.placement.programme import Blocks, cost, solve

NOW = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)
STEP = timedelta(minutes=5)
SIZES = (20, 200, 2000)


def fleet(pools: int) -> Config:
    """Pools of two classes each."""
    names = [f"pool-{i}" for i in range(pools)]
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 4800, "decode_tokens_per_s": 2600},
        "startup": {"p90": "4m"},
        "bounds": {"min": 2, "max": 60},
    }
    classes = {f"{name}-{part}": {"pools": [name]} for name in names for part in ("a", "b")}
    return Config.model_validate({"pools": dict.fromkeys(names, pool), "classes": classes})


def mixed_fleet(pools: int) -> Config:
    """Fleets of four pools (base, long context, spot, another GPU) that share three classes, planned as one."""
    made: dict[str, object] = {}
    classes: dict[str, object] = {}
    for i in range(pools // 4):
        names = [f"{kind}-{i}" for kind in ("base", "long", "spot", "other")]
        prices, sizes = (1.0, 4.0, 0.6, 2.2), (1200, 5000, 1500, 2600)
        for name, usd, size in zip(names, prices, sizes, strict=True):
            made[name] = {
                "gpu": {"type": name.split("-")[0], "usd_per_gpu_hour": usd, "spot": name.startswith("spot")},
                "max_context_tokens": None if name.startswith("long") else 16384,
                "capacity": {"prefill_tokens_per_s": size, "decode_tokens_per_s": size / 2},
                "startup": {"p90": "9m" if name.startswith("long") else "4m"},
                "bounds": {"min": 1, "max": 60},
            }
        limits = {"max_spot_share": 0.3, "long_context": {"tokens": 65536, "share": 0.15}}
        classes |= {f"chat-{i}": {"pools": names, **limits}, f"code-{i}": {"pools": names, "max_spot_share": 0.2}}
        classes[f"batch-{i}"] = {"pools": [names[2], names[0]], "max_spot_share": 0.8, "kind": "batch"}
    return Config.model_validate({"pools": made, "classes": classes})


def placement_figures() -> dict[str, float]:
    """Seconds of a plan with placement, and what rounding up the relaxation costs above the exact optimum."""
    config, rng = mixed_fleet(200), np.random.default_rng(2)
    made = forecasts(config, rng)
    began = time.perf_counter()
    result = plan(config, now=NOW, forecasts=made, history=empty(DEMAND), published=None)
    seconds = time.perf_counter() - began
    if result.floors.height != 200 * config.horizon_steps:
        raise SystemExit(f"{result.floors.height} floors for 200 mixed pools")
    names = ["base-0", "long-0", "other-0", "spot-0"]
    group = group_of(config, names, dict.fromkeys(names, np.ones(2)))
    demand = 20000 * rng.uniform(0.2, 2.2, (48, 3, 2)) * [1, 0.3]
    least = np.tile([config.pools[name].bounds.min for name in names], (48, 1))
    blocks = Blocks(demand, least, np.full((48, 4), 60.0), np.zeros((48, 0)))
    exact, relaxed = (float(cost(group, solve(group, blocks, exact=kind), blocks).sum()) for kind in (True, False))
    return {"placement_seconds_200_pools": seconds, "placement_gap": relaxed / exact - 1}


def forecasts(config: Config, rng: np.random.Generator) -> pl.DataFrame:
    """A day's sine with noise for every class and metric, up to a lead time and the longest wait after the horizon."""
    steps = config.horizon_steps + max(map(config.lead_steps, config.pools)) + config.longest_wait_steps
    starts = [NOW + i * STEP for i in range(steps)]
    shape = 20000 * (1.2 + np.sin(2 * np.pi * np.arange(steps) / 288))
    spread = np.linspace(0.6, 1.6, len(QUANTILE_COLUMNS))
    frames = []
    for name in config.classes:
        for metric, share in ((Metric.TOKENS_IN, 1.0), (Metric.TOKENS_OUT, 0.3)):
            path = shape * share * np.exp(0.1 * rng.standard_normal(steps))
            frames.append(
                pl.DataFrame(path[:, None] * spread, schema=list(QUANTILE_COLUMNS)).with_columns(
                    workload_class=pl.lit(name),
                    metric=pl.lit(str(metric)),
                    cutoff=pl.lit(NOW),
                    step_start=pl.Series(starts),
                    model=pl.lit("made"),
                )
            )
    return conform(pl.concat(frames), FORECASTS)


def main() -> None:
    given = parser("plan", __doc__ or "").parse_args()
    seconds: dict[int, float] = {}
    for pools in SIZES:
        config = fleet(pools)
        made = forecasts(config, np.random.default_rng(1))
        began = time.perf_counter()
        result = plan(config, now=NOW, forecasts=made, history=empty(DEMAND), published=None)
        seconds[pools] = time.perf_counter() - began
        if result.floors.height != pools * config.horizon_steps:
            raise SystemExit(f"{result.floors.height} floors for {pools} pools")
    each = {pools: taken / pools for pools, taken in seconds.items()}
    write(
        "plan",
        summary={
            "seconds_200_pools": seconds[200],
            "growth": each[SIZES[-1]] / each[SIZES[0]],
            "peak_memory_gib": peak_memory_gib(),
            **placement_figures(),
        },
        detail={"seconds": seconds, "windows_per_pool": 576},
        out=given.json,
    )


if __name__ == "__main__":
    main()
