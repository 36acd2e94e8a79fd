"""The configuration's shape. `floorcast.parsing` turns YAML text into a `Config` and names every fault."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from floorcast.calendar import check_calendars
from floorcast.event import Event, Holidays, Zone
from floorcast.placement import check_placement
from floorcast.pool import Pool
from floorcast.publisher import Publisher, check_publishers
from floorcast.quota import Quota, check_quotas
from floorcast.references import (
    check_events,
    check_live_queries,
    check_measures,
    check_references,
    check_roles,
    check_siblings,
    check_take_overs,
)
from floorcast.section import Name, Section
from floorcast.service import Service
from floorcast.source import Source
from floorcast.units import Duration, format_duration
from floorcast.workload import WorkloadClass


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
    wait: Duration = Field(
        default=timedelta(minutes=1),
        description="how long a stage waits while another process holds the file; commands that only read wait 5 s",
    )


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
        description="`advisory`: `publishers` change nothing outside the store and the output folder, and say what "
        "they would; `apply`: they do it; readers of the schedule find it there too",
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
    quotas: tuple[Quota, ...] = Field(default=(), description="how many GPUs of a type there are")
    events: tuple[Event, ...] = Field(default=(), description="what is known to change demand, or once did")
    holidays: Holidays | None = Field(default=None, description="the public holidays of all classes")
    service: Service = Field(default=Service(), description="the process that decides and serves")
    publishers: tuple[Publisher, ...] = Field(
        default=(), description="where floors go beside the schedule and the manifests, which are always written"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for check in (
            check_references,
            check_measures,
            check_roles,
            check_take_overs,
            _check_grid,
            _check_times,
            _check_waits,
            check_events,
            check_siblings,
            check_calendars,
            check_placement,
            check_quotas,
            check_live_queries,
            check_publishers,
        ):
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

    def own_lead(self, pool: str) -> timedelta:
        """Startup p90 + publication interval + apply delay of a pool."""
        startup = self.pools[pool].startup
        return startup.p90 + self.publication_interval + startup.apply_delay

    def lead(self, pool: str) -> timedelta:
        """How early replicas must be asked for: the longest lead of the pools that are planned together with this one,
        since none of them is of use before the others."""
        return self.own_lead(self.lead_of(pool))

    def lead_of(self, pool: str) -> str:
        """The pool whose lead that is; this one unless another's is longer."""
        return max((pool, *self.together.get(pool, ())), key=self.own_lead)

    def lead_steps(self, pool: str) -> int:
        """Steps that overlap a floor's own step and the lead time after it: what a floor due now must cover."""
        return 1 - (-self.lead(pool) // self.step)

    def wait_steps(self, workload_class: str) -> int:
        """Whole steps that a class's work may wait beyond the one it arrives in, served within its `slo.max_wait`
        even if it came at the step's beginning; 0 for a class that may not wait. Without an `slo` of its own the
        least of its pools' counts."""
        spec = self.classes[workload_class]
        slos = (spec.slo,) if spec.slo else tuple(self.pools[pool].slo for pool in spec.pools)
        return max(min(slo.max_wait for slo in slos) // self.step - 1, 0)

    @property
    def longest_wait_steps(self) -> int:
        """The most of them: work of the last windows may be done so many steps after those."""
        return max(map(self.wait_steps, self.classes), default=0)

    def classes_of(self, pool: str) -> tuple[str, ...]:
        """The classes a pool serves, in name order."""
        return tuple(sorted(name for name, spec in self.classes.items() if pool in spec.pools))

    def class_lead_steps(self, workload_class: str) -> int:
        """The longest of the lead windows of the pools that serve a class."""
        return max(self.lead_steps(pool) for pool in self.classes[workload_class].pools)

    def pool_of(self, workload_class: str, metric: str) -> str:
        """The name of the pool whose floors are planned for a metric of a class: the first that does that work."""
        return next(pool for pool in self.classes[workload_class].pools if metric in self.pools[pool].metrics)

    @cached_property
    def together(self) -> dict[str, tuple[str, ...]]:
        """By prefill and decode pool all that are planned together with it, itself too, in name order: those that share
        a class with it, and those that share one with them."""
        groups: dict[str, set[str]] = {}
        for spec in self.classes.values():
            if any(self.pools[pool].role != "unified" for pool in spec.pools):
                merged = set(spec.pools).union(*(groups.get(pool, ()) for pool in spec.pools))
                groups |= dict.fromkeys(merged, merged)
        return {pool: tuple(sorted(group)) for pool, group in groups.items()}


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


def _check_waits(config: Config) -> None:
    """Work that may wait is planned by its deadline within the horizon, on one pool or on a pair."""
    for name, spec in config.classes.items():
        wait = config.wait_steps(name)
        several = len(spec.pools) > 1 and config.pools[spec.pools[0]].role == "unified"
        what, hint = "", ""
        if wait and several:
            waits = format_duration((wait + 1) * config.step)
            what = f"may wait {waits}, and work that waits is planned on one pool alone"
            hint = f"name one pool, or set its `slo.max_wait` under {format_duration(2 * config.step)}"
        elif wait >= config.horizon_steps:
            what = f"may wait longer than the horizon of {format_duration(config.horizon)}"
            hint = "lengthen `horizon`, or shorten its `slo.max_wait`"
        if what:
            raise PydanticCustomError(
                "wait_not_planned",
                "class {name} {what}",
                {"name": name, "what": what, "at": ("classes", name, "slo" if spec.slo else "pools"), "hint": hint},
            )
