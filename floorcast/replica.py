"""What the configuration says of one replica: its hardware, what it sustains and how long it takes to start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field, PrivateAttr

from floorcast.section import Fraction, Section
from floorcast.units import Duration


class Gpu(Section):
    """The hardware of one replica: what it costs, and which quota it counts in."""

    type: str = Field(min_length=1, description="its name, as in H100")
    per_replica: int = Field(default=1, ge=1, description="GPUs that one replica takes")
    usd_per_gpu_hour: float = Field(default=0.0, ge=0, description="price; 0 means not known, and no cost is shown")
    spot: bool = Field(default=False, description="whether all its replicas are spot capacity, which may be taken away")
    spot_usd_per_gpu_hour: float | None = Field(
        default=None, gt=0, description="price of spot capacity; of a spot pool in place of usd_per_gpu_hour"
    )
    reserved_usd_per_gpu_hour: float | None = Field(
        default=None, gt=0, description="price of reserved capacity, paid whether it is used or not"
    )
    max_spot_share: Fraction = Field(
        default=0.0, ge=0, le=1, description="how much of a pool that is not spot could be, where the split is reckoned"
    )

    @property
    def price(self) -> float | None:
        """USD per GPU-hour of a floor's replicas; None where it is not known."""
        usd = self.spot_usd_per_gpu_hour if self.spot and self.spot_usd_per_gpu_hour else self.usd_per_gpu_hour
        return usd or None


class CapacityMeasure(Section):
    """Where a pool's ready replicas and waiting requests are observed: the engines' series in a Prometheus source."""

    source: str = Field(description="the name of the Prometheus source that holds them")
    match: dict[str, str] = Field(
        default_factory=dict, description="labels of the engines' series; those of the pool's classes unless given"
    )
    ready_replicas: str | None = Field(
        default=None, description="PromQL of the ready replicas; the pods, else instances, with series unless given"
    )
    waiting_requests: str | None = Field(
        default=None, description="PromQL of the requests that wait; the sum of the preset's gauge unless given"
    )
    window: Duration = Field(default=timedelta(days=14), description="how far back they count")


class Capacity(Section):
    """What one replica sustains within its SLO."""

    prefill_tokens_per_s: float = Field(
        gt=0, description="tokens in that one replica sustains (C_in); not needed of decode pools"
    )
    decode_tokens_per_s: float = Field(
        gt=0, description="tokens out that one replica sustains (C_out); not needed of prefill pools"
    )
    target_utilization: Fraction = Field(default=0.75, gt=0, le=1, description="share of that to plan with (U)")
    combine: Literal["max", "sum"] = Field(
        default="max",
        description="unified pools: `max(R_in / (C_in U), R_out / (C_out U))`, or `(R_in / C_in + R_out / C_out) / U` "
        "where prefill and decode share the GPU",
    )
    measure: CapacityMeasure | None = Field(
        default=None, description="compare it with what replicas really sustain before requests wait"
    )


class StartupMeasure(Section):
    """Where the starts of a pool's pods are observed: kube-state-metrics, in a Prometheus source."""

    source: str = Field(description="the name of the Prometheus source that holds them")
    match: dict[str, str] = Field(
        default_factory=dict, description="labels its series must have, beside the namespace of `target`"
    )
    pods: str | None = Field(
        default=None, description="a regular expression of the pods' names; those that `target` makes unless given"
    )
    window: Duration = Field(default=timedelta(days=14), description="how far back starts count")
    at_least: int = Field(default=20, ge=1, description="with fewer starts the configured p90 stands")


@dataclass(frozen=True)
class MeasuredStartup:
    """The p90 of so many observed starts since a time, rounded up as it is planned with."""

    p90: timedelta
    starts: int
    since: datetime


class Startup(Section):
    """How long a replica takes. The lead time is p90 + publication interval + apply_delay."""

    p90: Duration = Field(description="from asked for to serving, nine times in ten; stands where it is not measured")
    measure: StartupMeasure | None = Field(default=None, description="take p90 from the starts observed")
    apply_delay: Duration = Field(
        default=timedelta(seconds=30), description="from published to asked for, as by kubectl or a GitOps tool"
    )
    _measured: MeasuredStartup | None = PrivateAttr(default=None)

    @property
    def measured(self) -> MeasuredStartup | None:
        """Where `p90` was measured, what it rests on."""
        return self._measured

    def replaced(self, found: MeasuredStartup) -> Startup:
        """With the p90 measured in place of the configured one."""
        startup = self.model_copy(update={"p90": found.p90})
        startup._measured = found
        return startup
