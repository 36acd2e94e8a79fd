"""The configuration's shape. `floorcast.parsing` turns YAML text into a `Config` and names every fault."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from floorcast.event import Event, Holidays, Zone
from floorcast.references import check_events, check_references, check_siblings
from floorcast.section import Fraction, Name, Section
from floorcast.source import Source
from floorcast.units import Duration, format_duration

MOST_REPLICAS = 1_000_000


class Gpu(Section):
    """The hardware of one replica. Shown on the pages; no floor depends on it."""

    type: str = Field(min_length=1, description="its name, as in H100")
    per_replica: int = Field(default=1, ge=1, description="GPUs that one replica takes")
    usd_per_gpu_hour: float = Field(default=0.0, ge=0, description="price; 0 means not known, and no cost is shown")


class Capacity(Section):
    """What one replica sustains within its SLO."""

    prefill_tokens_per_s: float = Field(gt=0, description="tokens in that one replica sustains (C_in)")
    decode_tokens_per_s: float = Field(gt=0, description="tokens out that one replica sustains (C_out)")
    target_utilization: Fraction = Field(default=0.75, gt=0, le=1, description="share of that to plan with (U)")
    combine: Literal["max", "sum"] = Field(
        default="max",
        description="unified pools: `max(R_in / (C_in U), R_out / (C_out U))`, or `(R_in / C_in + R_out / C_out) / U` "
        "where prefill and decode share the GPU",
    )


class Startup(Section):
    """How long a replica takes. The lead time is p90 + publication interval + apply_delay."""

    p90: Duration = Field(description="from asked for to serving, nine times in ten")
    apply_delay: Duration = Field(
        default=timedelta(seconds=30), description="from published to asked for, as by kubectl or a GitOps tool"
    )


class Bounds(Section):
    """Replicas that no floor leaves."""

    min: int = Field(ge=0, le=MOST_REPLICAS, description="no floor is lower; 0 allows scaling to zero")
    max: int = Field(
        ge=1, le=MOST_REPLICAS, description="no floor is higher; what is wanted above it is reported as a shortfall"
    )

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
    """What is asked for beyond the expected demand."""

    quantile: float = Field(default=0.95, ge=0.5, le=0.99, description="quantile of demand that a floor covers")
    minimum: Fraction = Field(default=0.1, ge=0, le=5, description="added to the required replicas before rounding up")
    peak: bool = Field(
        default=True, description="whether a floor covers the busiest minute within a step, not its mean alone"
    )
    warm: int = Field(default=0, ge=0, le=MOST_REPLICAS, description="whole replicas added after rounding up")


class Shape(Section):
    """How fast a floor may come down, and how long it holds."""

    step_down: int = Field(
        default=1, ge=1, le=MOST_REPLICAS, description="replicas it may fall by, once in every `every`"
    )
    every: Duration = Field(
        default=timedelta(minutes=10), description="how often a floor may fall; rounded up to whole steps"
    )
    dwell: Duration = Field(
        default=timedelta(minutes=15), description="how long a floor holds before it falls; rounded up to whole steps"
    )


class Slo(Section):
    """What the pool promises. Read and validated; nothing depends on it until floors are replayed."""

    max_wait: Duration = Field(default=timedelta(seconds=10), description="a request that waited longer was late")
    on_time: Fraction = Field(default=0.99, gt=0, le=1, description="share of tokens that must not be late")


class Target(Section):
    """The workload in Kubernetes that serves a pool."""

    namespace: str = Field(default="default", description="its namespace")
    kind: Literal["Deployment", "StatefulSet", "LeaderWorkerSet"] = Field(default="Deployment", description="its kind")
    name: str | None = Field(default=None, description="its name; the pool's name unless given")


class Pool(Section):
    """Identical replicas that scale as one."""

    model: str | None = Field(default=None, description="the model served; for the reader, nothing depends on it")
    role: Literal["unified", "prefill", "decode"] = Field(
        default="unified", description="prefill pools are planned on tokens in alone, decode pools on tokens out alone"
    )
    region: str | None = Field(default=None, description="shown on the pages")
    gpu: Gpu = Field(description="the hardware of one replica")
    capacity: Capacity = Field(description="what one replica sustains within its SLO")
    startup: Startup = Field(description="how long a replica takes to serve")
    bounds: Bounds = Field(description="replicas that no floor leaves")
    margin: Margin = Field(default=Margin(), description="what is asked for beyond the expected demand")
    shape: Shape = Field(default=Shape(), description="how fast a floor may come down")
    slo: Slo = Field(default=Slo(), description="what the pool promises")
    target: Target = Field(default=Target(), description="the workload in Kubernetes that serves the pool")
    fallback_replicas: int | None = Field(
        default=None, ge=0, description="the floor where a class's demand is not known at all; bounds.max unless given"
    )

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
    """Traffic of one kind, forecast as one."""

    kind: Literal["chat", "summarization", "document_analysis", "code_generation", "batch", "agent", "other"] = Field(
        default="other", description="what the traffic is; shown on the pages"
    )
    pools: tuple[str, ...] = Field(min_length=1, max_length=1, description="the pool that serves this class")
    priority: int = Field(
        default=100, ge=0, description="who comes first when GPUs are short; nothing depends on it until quotas exist"
    )
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

    @model_validator(mode="after")
    def _scales_something(self) -> Self:
        if self.scale is not None and self.like is None:
            raise PydanticCustomError(
                "scale_alone",
                "scale {scale} has no class to scale",
                {"scale": self.scale, "at": ("scale",), "hint": "name that class with `like`, or delete `scale`"},
            )
        return self


class Compute(Section):
    """Where models are fitted: on all cores of this machine, or by the workers of a Dask cluster."""

    scheduler: str | None = Field(
        default=None,
        description="address of a Dask scheduler, as in tcp://dask-scheduler:8786; all cores here unless given",
    )

    @field_validator("scheduler")
    @classmethod
    def _an_address(cls, scheduler: str | None) -> str | None:
        if scheduler is not None and not re.fullmatch(r"(tcp|tls)://[^\s/]+:\d+", scheduler):
            raise PydanticCustomError(
                "bad_scheduler",
                "is not the address of a Dask scheduler",
                {"hint": "write its protocol, host and port, as in tcp://dask-scheduler:8786"},
            )
        return scheduler


class Store(Section):
    """The database."""

    path: str = Field(default="floorcast.duckdb", description="the DuckDB file, made when missing")


class Output(Section):
    """What is published."""

    dir: str = Field(default="published", description="the folder of schedules, manifests and the site")


class Publication(Section):
    """When floors are published and how long they hold."""

    interval: Duration | None = Field(
        default=None, description="how often you run `cycle`; part of every lead time; one step unless given"
    )
    valid_for: Duration = Field(
        default=timedelta(hours=2), description="how long after it was issued a schedule may be relied on"
    )
    prometheus_url: str = Field(
        default="http://prometheus.monitoring.svc:9090",
        min_length=1,
        description="the Prometheus that KEDA asks for waiting requests, as seen from the cluster",
    )


class Config(Section):
    """The whole configuration file."""

    mode: Literal["advisory", "apply"] = Field(
        default="advisory",
        description="written into the schedule for its readers; floorcast itself applies nothing in either mode",
    )
    zone: Zone = Field(default="UTC", description="IANA zone that times are shown in, beside UTC")
    store: Store = Field(default=Store(), description="the database")
    output: Output = Field(default=Output(), description="what is published")
    step: Duration = Field(
        default=timedelta(minutes=5),
        description="the grid of demand, forecasts and floors: whole minutes from 1m to 1h that divide a day",
    )
    horizon: Duration = Field(
        default=timedelta(hours=48),
        description="how far ahead floors are published: whole steps, more than any pool's lead time, at most 14d",
    )
    publication: Publication = Field(default=Publication(), description="when floors are published")
    refit_every: Duration = Field(
        default=timedelta(days=1), description="how often `cycle` chooses and fits models anew"
    )
    compute: Compute = Field(default=Compute(), description="where models are fitted")
    sources: tuple[Source, ...] = Field(default=(), description="where demand comes from, read in this order")
    pools: dict[Name, Pool] = Field(min_length=1, description="by name; each must serve a class")
    classes: dict[Name, WorkloadClass] = Field(min_length=1, description="by name; each names a pool")
    events: tuple[Event, ...] = Field(default=(), description="what is known to change demand, or once did")
    holidays: Holidays | None = Field(default=None, description="the public holidays of all classes")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for check in (_check_grid, _check_times, check_references, check_events, check_siblings):
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

    def planned_on(self) -> dict[str, list[str]]:
        """By pool the classes that its floors are planned for: those that name it first."""
        planned: dict[str, list[str]] = {pool: [] for pool in self.pools}
        for name, spec in self.classes.items():
            planned[spec.pools[0]].append(name)
        return planned

    def pool_of(self, workload_class: str) -> Pool:
        """The pool that serves a class."""
        return self.pools[self.classes[workload_class].pools[0]]


def _check_grid(config: Config) -> None:
    step, day = config.step, timedelta(days=1)
    if not timedelta(minutes=1) <= step <= timedelta(hours=1) or day % step or step % timedelta(minutes=1):
        raise PydanticCustomError(
            "bad_step",
            "step {step} is not a whole number of minutes from 1m to 1h that divides a day",
            {"step": format_duration(step), "at": ("step",), "hint": "use 1m, 5m, 10m, 15m, 30m or 1h"},
        )
    if config.horizon < step or config.horizon % step or config.horizon > timedelta(days=14):
        raise PydanticCustomError(
            "bad_horizon",
            "horizon {horizon} is not a whole number of steps up to 14d",
            {"horizon": format_duration(config.horizon), "at": ("horizon",), "hint": "use e.g. 24h or 48h"},
        )
    for name in config.pools:
        if config.lead(name) >= config.horizon:
            raise PydanticCustomError(
                "lead_past_horizon",
                "pool {pool} has a lead time of {lead}, which the horizon does not reach",
                {
                    "pool": name,
                    "lead": format_duration(config.lead(name)),
                    "at": ("pools", name, "startup"),
                    "hint": "lengthen `horizon` or shorten `startup.p90`",
                },
            )


def _check_times(config: Config) -> None:
    times = {
        "publication.interval": config.publication_interval,
        "refit_every": config.refit_every,
        **{f"pools.{name}.shape.every": pool.shape.every for name, pool in config.pools.items()},
    }
    for key, value in times.items():
        if not value:
            raise PydanticCustomError(
                "no_time", "{key} is 0", {"key": key, "at": key.split("."), "hint": "use at least one second"}
            )
    if config.publication.valid_for <= config.publication_interval:
        raise PydanticCustomError(
            "never_valid",
            "publication.valid_for {valid_for} ends before the next publication, {interval} later",
            {
                "valid_for": format_duration(config.publication.valid_for),
                "interval": format_duration(config.publication_interval),
                "at": ("publication", "valid_for"),
                "hint": "let a schedule be valid for a few intervals",
            },
        )
