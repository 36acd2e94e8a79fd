"""What the configuration says of classes that several pools can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_core import PydanticCustomError

from floorcast.section import Fraction, Section

if TYPE_CHECKING:
    from floorcast.config import Config
    from floorcast.pool import Pool
    from floorcast.workload import WorkloadClass


class LongContext(Section):
    """Requests of a class that not every pool can hold."""

    tokens: int = Field(ge=1, description="tokens of the longest request, prompt and answer together")
    share: Fraction = Field(gt=0, le=1, description="of the class's tokens, in requests that need such a pool")

    def fits(self, pool: Pool) -> bool:
        return pool.max_context_tokens is None or pool.max_context_tokens >= self.tokens


def check_placement(config: Config) -> None:
    """Classes of several pools can be placed: prices are known, quantiles agree, and their own limits leave a way."""
    for name, spec in config.classes.items():
        pools = {pool: config.pools[pool] for pool in spec.pools}
        key, what, hint = "pools", "", ""
        unified = pools[spec.pools[0]].role == "unified"
        fits = [spec.long_context.fits(pool) for pool in pools.values()] if spec.long_context else []
        if spec.long_context and not (any(fits) if unified else all(fits)):
            which = "none of its pools holds" if unified else f"{list(pools)[fits.index(False)]} does not hold"
            key, what = "long_context", f"has requests of {spec.long_context.tokens:,} tokens, which {which}"
            hint = "name a pool whose `max_context_tokens` is as many or not given"
        elif spec.max_spot_share is not None and spec.max_spot_share < 1 and _all_spot(pools, unified=unified):
            key = "max_spot_share"
            where = "all its pools are spot" if unified else "both its pools serve each request, and one is spot"
            what = f"allows {spec.max_spot_share:.0%} on spot, but {where}"
            hint = "name a pool that is not, or set `max_spot_share: 1`"
        elif spec.max_spot_share and not any(pool.gpu.spot for pool in pools.values()):
            key, what = "max_spot_share", f"allows {spec.max_spot_share:.0%} on spot, but none of its pools is spot"
            hint = "name a pool with `gpu: {spot: true}`, or delete `max_spot_share`"
        elif len(pools) > 1 and unified:
            key, what, hint = _unplaceable(spec, pools)
        if what:
            raise PydanticCustomError(
                "unplaceable",
                "class {name} {what}",
                {"name": name, "what": what, "at": ("classes", name, key), "hint": hint},
            )


def _all_spot(pools: dict[str, Pool], *, unified: bool) -> bool:
    """Whether every request runs on spot: a prefill and a decode pool serve each together."""
    spot = [pool.gpu.spot for pool in pools.values()]
    return all(spot) if unified else any(spot)


def _unplaceable(spec: WorkloadClass, pools: dict[str, Pool]) -> tuple[str, str, str]:
    unpriced = [pool for pool, one in pools.items() if one.gpu.price is None]
    quantiles = {pool: one.margin.quantile for pool, one in pools.items()}
    spot = [pool for pool, one in pools.items() if one.gpu.spot]
    least = 0.0
    if spec.long_context and all(pools[pool].gpu.spot for pool in pools if spec.long_context.fits(pools[pool])):
        least = spec.long_context.share
    if unpriced:
        what = f"is placed on its pools at least cost, but the price of {', '.join(unpriced)} is not known"
        return "pools", what, "give their `gpu.usd_per_gpu_hour`"
    if len(set(quantiles.values())) > 1:
        listed = ", ".join(f"{pool} {level:g}" for pool, level in quantiles.items())
        return "pools", f"is placed on pools of different quantiles ({listed})", "give them the same `margin.quantile`"
    if spot and spec.max_spot_share is None:
        what = f"may run on the spot pool {spot[0]}, but not how much of it"
        return "max_spot_share", what, "add e.g. `max_spot_share: 30%` to the class"
    if spec.max_spot_share is not None and spec.max_spot_share < least:
        what = f"allows {spec.max_spot_share:.0%} on spot, but {least:.0%} is long context, which spot pools alone hold"
        return "max_spot_share", what, "raise `max_spot_share`, or name another pool with enough `max_context_tokens`"
    return "pools", "", ""
