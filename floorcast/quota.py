"""How many GPUs there are, and what the configuration says of it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from pydantic import Field
from pydantic_core import PydanticCustomError

from floorcast.section import Section

if TYPE_CHECKING:
    from floorcast.calendar import CalendarEntry
    from floorcast.config import Config
    from floorcast.pool import Pool


class Quota(Section):
    """GPUs of one type that all pools together may take."""

    gpu: str = Field(min_length=1, description="the GPU type, as in `gpu.type` of the pools")
    region: str | None = Field(
        default=None, min_length=1, description="of the pools in this region; of all pools unless given"
    )
    gpus: int = Field(ge=1, description="GPUs that their floors together never exceed")

    @property
    def label(self) -> str:
        """`H100`, or `H100 in eu-west`."""
        return self.gpu if self.region is None else f"{self.gpu} in {self.region}"

    def covers(self, pool: Pool) -> bool:
        return pool.gpu.type == self.gpu and self.region in (None, pool.region)


def check_quotas(config: Config) -> None:
    """Quotas are of GPUs and regions that pools have, one each, and hold the pools' minimums."""
    seen: set[str] = set()
    for place, quota in enumerate(config.quotas):
        at = ("quotas", str(place))
        if quota.label in seen:
            raise PydanticCustomError(
                "duplicate_quota",
                "there are two quotas of {label}",
                {"label": quota.label, "at": at, "hint": "keep one of them"},
            )
        seen.add(quota.label)
        covered = {name: pool for name, pool in config.pools.items() if quota.covers(pool)}
        if not covered:
            raise _covers_nothing(config, quota, at)
        minimums = {name: pool.bounds.min * pool.gpu.per_replica for name, pool in covered.items()}
        if sum(minimums.values()) > quota.gpus:
            parts = " + ".join(f"{name} {gpus}" for name, gpus in minimums.items() if gpus)
            raise PydanticCustomError(
                "quota_under_minimums",
                "quota {label} of {gpus} GPUs is under the {least} that the minimums of its pools take ({parts})",
                {
                    "label": quota.label,
                    "gpus": quota.gpus,
                    "least": sum(minimums.values()),
                    "parts": parts,
                    "at": (*at, "gpus"),
                    "hint": f"raise it to {sum(minimums.values())} or more, or lower `bounds.min` of these pools",
                },
            )
        for name, pool in covered.items():
            others = sum(minimums.values()) - minimums[name]
            for entry in pool.calendar:
                if (entry.minimum or 0) * pool.gpu.per_replica + others > quota.gpus:
                    raise _under_scheduled(quota, name, entry, pool.gpu.per_replica, others)


def _under_scheduled(
    quota: Quota, pool: str, entry: CalendarEntry, per_replica: int, others: int
) -> PydanticCustomError:
    return PydanticCustomError(
        "quota_under_scheduled",
        "pool {pool}: {entry} asks for {gpus} GPUs, of which quota {label} of {all} leaves {left} beside the "
        "minimums of its other pools",
        {
            "pool": pool,
            "entry": entry.name,
            "gpus": (entry.minimum or 0) * per_replica,
            "label": quota.label,
            "all": quota.gpus,
            "left": quota.gpus - others,
            "at": ("pools", pool, "calendar"),
            "hint": f"lower its `minimum` to {(quota.gpus - others) // per_replica} or less, or raise the quota",
        },
    )


def _covers_nothing(config: Config, quota: Quota, at: tuple[str, ...]) -> PydanticCustomError:
    types = sorted({pool.gpu.type for pool in config.pools.values()})
    if quota.gpu not in types:
        key, value, known = "gpu", quota.gpu, types
    else:
        regions = {pool.region for pool in config.pools.values() if pool.gpu.type == quota.gpu}
        key, value, known = "region", str(quota.region), sorted(region for region in regions if region)
    near = difflib.get_close_matches(value, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {known}" if known else "give the pools a `region`"
    return PydanticCustomError(
        "quota_of_nothing",
        "quota {label} covers no pool: none has {key} {value}",
        {"label": quota.label, "key": key, "value": value, "at": (*at, key), "hint": hint},
    )
