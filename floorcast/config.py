"""The configuration's shape. `floorcast.parsing` turns YAML text into a `Config` and names every fault."""

from __future__ import annotations

import difflib
from datetime import timedelta
from typing import Annotated, Literal, Self
from zoneinfo import available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from floorcast.units import Duration, UtcTime


def _fraction(value: object) -> object:
    """`10%` and `10 %` read as 0.1."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        return float(value.rstrip().rstrip("%")) / 100
    return value


Fraction = Annotated[float, BeforeValidator(_fraction)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=63)]


class Section(BaseModel):
    """Base of every part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Columns(Section):
    """Which columns of a generic trace hold what."""

    time: str
    tokens_in: str
    tokens_out: str
    workload_class: str | None = Field(default=None, alias="class")
    requests: str | None = None


class TraceSource(Section):
    """Recorded requests (or sums of them) in files."""

    name: Name
    kind: Literal["trace"]
    format: Literal["azure", "burstgpt", "mooncake", "servegen", "generic"]
    path: str = Field(min_length=1)
    lengths: str | None = Field(default=None, description="servegen: the file of token lengths")
    start: UtcTime | None = Field(default=None, description="what time zero of relative timestamps means")
    workload_class: str | None = Field(default=None, alias="class", description="the class of every row")
    classes: dict[str, str] = Field(
        default_factory=dict, description="value of the class column to class; `*` takes the rest"
    )
    clients: dict[str, tuple[int, ...] | Literal["*"]] = Field(
        default_factory=dict, description="servegen: the clients of each class; `*` takes the rest"
    )
    columns: Columns | None = Field(default=None, description="generic: the column mapping")
    row_interval: Duration | None = Field(
        default=None, description="generic: each row is the sum over this interval, not one request"
    )
    max_tokens: int = Field(default=10_000_000, gt=0, description="a request above this is refused as absurd")
    max_reject_share: Fraction = Field(default=0.01, ge=0, le=1)

    @model_validator(mode="after")
    def _format_needs(self) -> Self:
        relative = self.format in ("burstgpt", "mooncake", "servegen")
        if relative and self.start is None:
            raise PydanticCustomError(
                "missing_start",
                "format {format} has relative timestamps and needs `start`",
                {"format": self.format, "hint": "add e.g. start: 2026-11-01T00:00:00Z"},
            )
        if self.format == "generic" and self.columns is None:
            raise PydanticCustomError(
                "missing_columns",
                "format generic needs `columns`",
                {"hint": "add columns: {time: ..., tokens_in: ..., tokens_out: ..., class: ...}"},
            )
        if self.format == "servegen" and (self.lengths is None or not self.clients):
            raise PydanticCustomError(
                "missing_lengths",
                "format servegen needs `lengths` and `clients`",
                {"hint": "add lengths: FILE and clients: {large: [5], rest: '*'}"},
            )
        if self.format in ("azure", "mooncake") and self.workload_class is None:
            raise PydanticCustomError(
                "missing_class",
                "format {format} has no class column and needs `class`",
                {"format": self.format, "hint": "add e.g. class: code"},
            )
        return self


Source = TraceSource
"""Every kind of source. More kinds join here as a discriminated union on `kind`."""


class Gpu(Section):
    type: str = Field(min_length=1)
    per_replica: int = Field(default=1, ge=1)
    usd_per_gpu_hour: float = Field(default=0.0, ge=0)


class Capacity(Section):
    """What one replica sustains within its SLO."""

    prefill_tokens_per_s: float = Field(gt=0)
    decode_tokens_per_s: float = Field(gt=0)
    target_utilization: Fraction = Field(default=0.75, gt=0, le=1)
    combine: Literal["max", "sum"] = "max"


class Startup(Section):
    p90: Duration
    apply_delay: Duration = timedelta(seconds=30)


class Bounds(Section):
    min: int = Field(ge=0)
    max: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise PydanticCustomError(
                "bounds_crossed",
                "min {low} is above max {high}",
                {"low": self.min, "high": self.max, "hint": "raise max or lower min"},
            )
        return self


class Margin(Section):
    quantile: float = Field(default=0.95, ge=0.5, le=0.99)
    minimum: Fraction = Field(default=0.1, ge=0, le=5)
    warm: int = Field(default=0, ge=0)


class Shape(Section):
    """How fast a floor may come down, and how long it holds."""

    step_down: int = Field(default=1, ge=1, description="replicas it may fall by, once in every `every`")
    every: Duration = timedelta(minutes=10)
    dwell: Duration = timedelta(minutes=15)


class Slo(Section):
    max_wait: Duration = timedelta(seconds=10)
    on_time: Fraction = Field(default=0.99, gt=0, le=1)


class Target(Section):
    """The workload in Kubernetes that serves a pool."""

    namespace: str = "default"
    kind: Literal["Deployment", "StatefulSet", "LeaderWorkerSet"] = "Deployment"
    name: str | None = Field(default=None, description="the pool's name unless given")


class Pool(Section):
    model: str | None = None
    role: Literal["unified", "prefill", "decode"] = "unified"
    region: str | None = None
    gpu: Gpu
    capacity: Capacity
    startup: Startup
    bounds: Bounds
    margin: Margin = Margin()
    shape: Shape = Shape()
    slo: Slo = Slo()
    target: Target = Target()
    fallback_replicas: int | None = Field(default=None, ge=0, description="bounds.max unless given")

    @model_validator(mode="after")
    def _fallback_in_bounds(self) -> Self:
        if self.fallback_replicas is not None and not self.bounds.min <= self.fallback_replicas <= self.bounds.max:
            raise PydanticCustomError(
                "fallback_out_of_bounds",
                "fallback_replicas {value} is outside bounds {low} to {high}",
                {
                    "value": self.fallback_replicas,
                    "low": self.bounds.min,
                    "high": self.bounds.max,
                    "hint": "move it inside the bounds",
                },
            )
        return self


class WorkloadClass(Section):
    kind: Literal["chat", "summarization", "document_analysis", "code_generation", "batch", "agent", "other"] = "other"
    pools: tuple[str, ...] = Field(min_length=1, max_length=1, description="the pool that serves this class")
    priority: int = Field(default=100, ge=0)


class Store(Section):
    path: str = "floorcast.duckdb"


class Output(Section):
    dir: str = "published"


class Publication(Section):
    interval: Duration | None = Field(default=None, description="how often floors are published; one step unless given")
    valid_for: Duration = timedelta(hours=2)
    prometheus_url: str = Field(
        default="http://prometheus.monitoring.svc:9090",
        min_length=1,
        description="the Prometheus that KEDA asks for waiting requests, as seen from the cluster",
    )


class Config(Section):
    """The whole configuration file."""

    mode: Literal["advisory", "apply"] = "advisory"
    zone: str = Field(default="UTC", description="IANA zone that times are shown in, beside UTC")
    store: Store = Store()
    output: Output = Output()
    step: Duration = timedelta(minutes=5)
    horizon: Duration = timedelta(hours=48)
    publication: Publication = Publication()
    refit_every: Duration = Field(
        default=timedelta(days=1), description="how often `cycle` chooses and fits models anew"
    )
    sources: tuple[Source, ...] = ()
    pools: dict[Name, Pool] = Field(min_length=1)
    classes: dict[Name, WorkloadClass] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for check in (_check_grid, _check_zone, _check_references):
            check(self)
        return self

    @property
    def step_s(self) -> float:
        return self.step.total_seconds()

    @property
    def horizon_steps(self) -> int:
        return self.horizon // self.step

    @property
    def publication_interval(self) -> timedelta:
        return self.publication.interval or self.step

    def lead(self, pool: str) -> timedelta:
        """Startup p90 + publication interval + apply delay of a pool."""
        startup = self.pools[pool].startup
        return startup.p90 + self.publication_interval + startup.apply_delay

    def lead_steps(self, pool: str) -> int:
        """Steps that overlap a floor's own step and the lead time after it: what a floor due now must cover."""
        return 1 - (-self.lead(pool) // self.step)

    def classes_of(self, pool: str) -> tuple[str, ...]:
        """The classes a pool serves, in name order."""
        return tuple(sorted(name for name, spec in self.classes.items() if pool in spec.pools))

    def pool_of(self, workload_class: str) -> Pool:
        """The pool that serves a class."""
        return self.pools[self.classes[workload_class].pools[0]]


def _check_grid(config: Config) -> None:
    step, day = config.step, timedelta(days=1)
    if not timedelta(minutes=1) <= step <= timedelta(hours=1) or day % step or step % timedelta(minutes=1):
        raise PydanticCustomError(
            "bad_step",
            "step {step} is not a whole number of minutes from 1m to 1h that divides a day",
            {"step": str(step), "hint": "use 1m, 5m, 10m, 15m, 30m or 1h"},
        )
    if config.horizon < step or config.horizon % step or config.horizon > timedelta(days=14):
        raise PydanticCustomError(
            "bad_horizon",
            "horizon {horizon} is not a whole number of steps up to 14d",
            {"horizon": str(config.horizon), "hint": "use e.g. 24h or 48h"},
        )
    for name in config.pools:
        if config.lead(name) >= config.horizon:
            raise PydanticCustomError(
                "lead_past_horizon",
                "pool {pool} has a lead time of {lead}, which the horizon does not reach",
                {"pool": name, "lead": str(config.lead(name)), "hint": "lengthen `horizon` or shorten `startup.p90`"},
            )


def _check_zone(config: Config) -> None:
    zones = available_timezones()
    if config.zone not in zones:
        near = difflib.get_close_matches(config.zone, zones, n=1)
        raise PydanticCustomError(
            "unknown_zone",
            "zone {zone} is not an IANA time zone",
            {"zone": config.zone, "hint": f"did you mean {near[0]}?" if near else "use e.g. Europe/Berlin"},
        )


def _check_references(config: Config) -> None:
    for name, spec in config.classes.items():
        for pool in spec.pools:
            if pool not in config.pools:
                near = difflib.get_close_matches(pool, list(config.pools), n=1)
                raise PydanticCustomError(
                    "unknown_pool",
                    "class {name} names pool {pool}, which is not under `pools`",
                    {
                        "name": name,
                        "pool": pool,
                        "hint": f"did you mean {near[0]}?" if near else f"use one of {sorted(config.pools)}",
                    },
                )
    for pool in config.pools:
        if not config.classes_of(pool):
            raise PydanticCustomError(
                "pool_without_class",
                "pool {pool} serves no class, so it has no demand to plan for",
                {"pool": pool, "hint": "name it in the `pools` of a class, or delete it"},
            )
    names = [source.name for source in config.sources]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError(
                "duplicate_source", "two sources are called {name}", {"name": name, "hint": "rename one of them"}
            )
