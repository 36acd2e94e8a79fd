"""How much there is of each class, and what its busiest step takes of each pool: what a wrong unit shows in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl

from floorcast.columns import CACHED_TOKENS, empty
from floorcast.config import Config
from pipelines.stages.common import planned_on
from scaling.buffers import whole_replicas
from scaling.capacity import required_replicas
from scaling.effective import cached_shares, effective_history

_RATES = ("tokens_in", "tokens_out")


def rates_of_classes(demand: pl.DataFrame, step: timedelta) -> dict[str, dict[str, dict[str, float]]]:
    """By class of a DEMAND frame, in tokens per second: the mean over what was observed, and the busiest step's."""
    observed = (pl.col("observed_fraction") * step.total_seconds()).sum()
    found = demand.group_by("workload_class").agg(pl.col(_RATES).sum() / observed)
    busiest = _rates(demand, step).group_by("workload_class").agg(pl.col(_RATES).max())
    most = {row.pop("workload_class"): row for row in busiest.to_dicts()}
    return {(name := row.pop("workload_class")): {"mean": row, "busiest": most[name]} for row in found.to_dicts()}


def busiest_of_pools(config: Config, demand: pl.DataFrame, *, now: datetime) -> dict[str, dict[str, Any]]:
    """By pool the replicas, rounded up, that the busiest step of its classes' DEMAND takes at the target utilization,
    and when that was. Prompt tokens that `prefix_cache.share` takes for cached are left out."""
    rates = _rates(effective_history(demand, cached_shares(config, empty(CACHED_TOKENS), demand, now=now)), config.step)
    found = {}
    for name, classes in planned_on(config).items():
        steps = rates.filter(pl.col("workload_class").is_in(classes)).group_by("step_start").agg(pl.col(_RATES).sum())
        if steps.is_empty():
            continue
        pool = config.pools[name]
        replicas, _ = required_replicas(
            tokens_in_per_s=steps["tokens_in"],
            tokens_out_per_s=steps["tokens_out"],
            capacity=pool.capacity,
            role=pool.role,
        )
        most = int(replicas.argmax())
        found[name] = {"replicas": int(whole_replicas(replicas)[most]), "step": steps["step_start"][most]}
    return found


def _rates(demand: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    """Tokens per second of the steps of which at least half as much was observed as of the best of the class: a step
    that was seen for a second has no rate to speak of."""
    share = pl.col("observed_fraction")
    return demand.filter(2 * share >= share.max().over("workload_class"), share > 0).with_columns(
        pl.col(_RATES) / share / step.total_seconds()
    )


def said_rates(rates: dict[str, dict[str, float]]) -> str:
    """As `mean 6,210 in and 443 out, busiest 31,400 in and 2,240 out tokens/s`."""
    of = (f"{kind} {_number(one['tokens_in'])} in and {_number(one['tokens_out'])} out" for kind, one in rates.items())
    return f"{', '.join(of)} tokens/s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
