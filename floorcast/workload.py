"""What the configuration says of a workload class."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from floorcast.event import Holidays
from floorcast.placement import LongContext
from floorcast.pool import Slo
from floorcast.section import Fraction, Section


class PrefixCache(Section):
    """Prompt tokens that the engines' prefix cache holds cost no prefill, and no replicas."""

    share: Fraction | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="of the prompt tokens, to plan without; 0 plans for all of them. Unless given, what the engines' "
        "own counters show to be there nearly always, where they have any",
    )


class WorkloadClass(Section):
    """Traffic of one kind, forecast as one."""

    kind: Literal["chat", "summarization", "document_analysis", "code_generation", "batch", "agent", "other"] = Field(
        default="other", description="what the traffic is; shown on the pages"
    )
    pools: tuple[str, ...] = Field(
        min_length=1,
        description="the pool that serves this class, the prefill and the decode pool that do so together, or several "
        "unified pools on which it is placed at least cost, the first of equals first",
    )
    priority: int = Field(
        default=100,
        ge=0,
        description="the greater, the later it goes short where floors exceed a quota, a ceiling or `bounds.max`; "
        "among equals, classes of kind batch go short first",
    )
    weight: float = Field(
        default=1,
        gt=0,
        le=1000,
        description="among classes of one priority: the share served keeps the proportion of the weights",
    )
    slo: Slo | None = Field(default=None, description="what this class is promised; its pool's unless given")
    max_spot_share: Fraction | None = Field(
        default=None, ge=0, le=1, description="of a class of several pools: at most so much of it runs on spot pools"
    )
    long_context: LongContext | None = Field(default=None, description="requests that not every pool can hold")
    match: dict[str, str] = Field(
        default_factory=dict, description="labels of this class's series at the Prometheus sources"
    )
    like: str | None = Field(
        default=None, description="the class whose demand stands for its own until two days of it are observed"
    )
    scale: float | None = Field(default=None, gt=0, le=1000, description="with `like`: times so much; 1 unless given")
    renamed_from: str | None = Field(
        default=None, description="what this class was called before; what is stored under that name counts as its own"
    )
    holidays: Holidays | None = Field(default=None, description="in place of the `holidays` of all")
    prefix_cache: PrefixCache = Field(default=PrefixCache(), description="prompt tokens that cost no prefill")

    @model_validator(mode="after")
    def _scales_something(self) -> Self:
        if self.scale is not None and self.like is None:
            raise PydanticCustomError(
                "scale_alone",
                "scale {scale} has no class to scale",
                {"scale": self.scale, "at": ("scale",), "hint": "name that class with `like`, or delete `scale`"},
            )
        return self

    @property
    def rank(self) -> tuple[int, bool]:
        """The greater, the later the class goes short: by priority, and batch first among equals."""
        return self.priority, self.kind != "batch"
