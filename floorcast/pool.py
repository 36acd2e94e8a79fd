"""What the configuration says of a pool."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from floorcast.calendar import CalendarEntry
from floorcast.overlay import Overlay
from floorcast.replica import Capacity, Gpu, Startup
from floorcast.section import CountOrShare, Fraction, Section
from floorcast.units import Duration, format_duration

MOST_REPLICAS = 1_000_000


class Bounds(Section):
    """Replicas that no floor leaves."""

    min: int = Field(ge=0, le=MOST_REPLICAS, description="no floor is lower; 0 only with `scale_to_zero`")
    max: int = Field(
        ge=1,
        le=MOST_REPLICAS,
        description="no floor is higher, but for `exceed_by`; what is wanted above both is reported as a shortfall",
    )
    exceed_by: int = Field(
        default=0,
        ge=0,
        le=MOST_REPLICAS,
        description="replicas by which a floor may exceed `max` where demand asks for it; 0 honours `max`",
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

    @property
    def highest(self) -> int:
        """The highest floor there can be."""
        return self.max + self.exceed_by


class Margin(Section):
    """What is asked for beyond the expected demand."""

    quantile: float = Field(default=0.95, ge=0.5, le=0.99, description="quantile of demand that a floor covers")
    minimum: Fraction = Field(default=0.1, ge=0, le=5, description="added to the required replicas before rounding up")
    peak: bool = Field(
        default=True, description="whether a floor covers the busiest minute within a step, not its mean alone"
    )
    zones: int = Field(
        default=1,
        ge=1,
        le=100,
        description="zones that the replicas are spread over evenly: with one of them lost, the others still carry the "
        "need; 1 plans for no loss",
    )
    rollout_unavailable: CountOrShare = Field(
        default=0,
        ge=0,
        le=MOST_REPLICAS,
        description="replicas, or a share of them, that a rolling update takes away at once; the others still carry "
        "the need",
    )
    warm: int = Field(default=0, ge=0, le=MOST_REPLICAS, description="whole replicas added after all of these")
    takes_over: dict[str, Annotated[Fraction, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        description="by pool the share of its demand that comes to this one when that pool's region is lost",
    )


class Shape(Section):
    """How fast a floor may come down, how long it holds, and in what steps it counts."""

    step_down: CountOrShare = Field(
        default=0.1,
        gt=0,
        le=MOST_REPLICAS,
        description="replicas it may fall by, once in every `every`, or a share of the floor then, at least 1",
    )
    every: Duration = Field(
        default=timedelta(minutes=10), description="how often a floor may fall; rounded up to whole steps"
    )
    dwell: Duration = Field(
        default=timedelta(minutes=15), description="how long a floor holds before it falls; rounded up to whole steps"
    )
    hysteresis: Fraction = Field(
        default=0.05,
        ge=0,
        lt=1,
        description="a floor that was published for a time stays if the new one is lower by no more than this share of "
        "it; a higher one always replaces it",
    )
    multiple_of: int = Field(
        default=1,
        ge=1,
        le=MOST_REPLICAS,
        description="floors are rounded up to multiples of it, as of 4 for replicas of 2 GPUs on nodes of 8",
    )


class ScaleToZero(Section):
    """When a pool needs no replica at all. Only with `bounds.min: 0`."""

    wake_up: Duration = Field(
        description="how long the first request may have to wait for; demand must stay low this much longer than the "
        "lead time"
    )
    below_tokens_per_s: float = Field(
        gt=0,
        description="the floor is 0 while demand, tokens in and out together, stays under this at `margin.quantile`",
    )


class Slo(Section):
    """What is promised to those who send requests."""

    max_wait: Duration = Field(
        default=timedelta(seconds=10),
        description="a request that waited longer was late; work that may wait two steps or more is planned by its "
        "deadline",
    )
    on_time: Fraction = Field(
        default=0.99,
        gt=0,
        le=1,
        description="share of tokens that must not be late, in replays and load tests; no floor depends on it yet",
    )


class Tune(Section):
    """How a pool's own past sets its margins, and whether its floors must pay."""

    every: Duration | None = Field(
        default=None, description="how often `cycle` tunes anew; only `floorcast tune` does unless given"
    )
    days: int = Field(
        default=14, ge=6, le=28, description="days that are replayed; settings are judged on the second half"
    )
    apply: bool = Field(default=False, description="whether floors and overlay take what was tuned: settings and gate")
    gate: bool = Field(
        default=True,
        description="with `apply`: whether plain minimums are published where tuning found that floors do not pay",
    )

    @field_validator("every")
    @classmethod
    def _often(cls, every: timedelta | None) -> timedelta | None:
        if every is not None and every < timedelta(days=1):
            raise PydanticCustomError(
                "too_often",
                "{every} is less than the day that each judgement adds",
                {"every": format_duration(every), "hint": "use 7d, or at least 1d"},
            )
        return every


class Target(Section):
    """The workload in Kubernetes that serves a pool."""

    namespace: str = Field(default="default", description="its namespace")
    kind: Literal["Deployment", "StatefulSet", "LeaderWorkerSet"] = Field(default="Deployment", description="its kind")
    name: str | None = Field(default=None, description="its name; the pool's name unless given")


def _check_multiple(multiple: int, at: tuple[str, ...], value: int) -> None:
    if value % multiple == 0:
        return
    below = value - value % multiple
    # Rounded down to nothing, a minimum would let the pool scale to zero, and a maximum would be none at all.
    nearest = [str(below)] if below or at[-1] == "exceed_by" else []
    raise PydanticCustomError(
        "not_a_multiple",
        "{name} {value} is not a multiple of {multiple}, as `shape.multiple_of` asks of every floor",
        {
            "name": at[-1],
            "value": value,
            "multiple": multiple,
            "at": at,
            "hint": "use " + " or ".join([*nearest, str(below + multiple)]),
        },
    )


class PoolSettings(Section):
    """What the floors of a pool follow from, beside its demand. A schedule carries it, so that they recompute."""

    role: Literal["unified", "prefill", "decode"] = Field(
        default="unified",
        description="a prefill pool is planned on tokens in alone and a decode pool on tokens out alone, for the same "
        "lead window; a class names one of each",
    )
    gpu: Gpu = Field(description="the hardware of one replica")
    capacity: Capacity = Field(description="what one replica sustains within its SLO")
    startup: Startup = Field(description="how long a replica takes to serve")
    bounds: Bounds = Field(description="replicas that no floor leaves")
    margin: Margin = Field(default=Margin(), description="what is asked for beyond the expected demand")
    shape: Shape = Field(default=Shape(), description="how fast a floor may come down")
    scale_to_zero: ScaleToZero | None = Field(
        default=None, description="when no replica is needed; without it one always is"
    )
    fallback_replicas: int | None = Field(
        default=None, ge=0, description="the floor where a class's demand is not known at all; bounds.max unless given"
    )

    @model_validator(mode="before")
    @classmethod
    def _capacity_of_a_role(cls, pool: object) -> object:
        """Of a prefill or decode pool the capacity for the other's work decides nothing, and may be left out."""
        if not isinstance(pool, dict) or not isinstance(capacity := pool.get("capacity"), dict):
            return pool
        used, unused = "prefill_tokens_per_s", "decode_tokens_per_s"
        if pool.get("role") == "decode":
            used, unused = unused, used
        if pool.get("role") not in {"prefill", "decode"} or used not in capacity or unused in capacity:
            return pool
        return {**pool, "capacity": {**capacity, unused: capacity[used]}}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of `floorcast.columns.Metric` that its floors are planned on."""
        return {"prefill": ("tokens_in",), "decode": ("tokens_out",)}.get(self.role, ("tokens_in", "tokens_out"))

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

    @model_validator(mode="after")
    def _zero_only_where_allowed(self) -> Self:
        if self.bounds.min == 0 and self.scale_to_zero is None:
            raise PydanticCustomError(
                "zero_not_allowed",
                "min 0 lets the pool scale to zero, and nothing says when it may",
                {
                    "at": ("bounds", "min"),
                    "hint": "use min: 1, or say when with `scale_to_zero: {wake_up: 3m, below_tokens_per_s: 50}`",
                },
            )
        if self.scale_to_zero is not None and (self.bounds.min or self.margin.warm):
            key = "margin.warm" if self.bounds.min == 0 else "bounds.min"
            raise PydanticCustomError(
                "never_zero",
                "{key} keeps replicas, so the pool never scales to zero",
                {"key": key, "at": ("scale_to_zero",), "hint": f"set {key} to 0, or delete `scale_to_zero`"},
            )
        return self

    @model_validator(mode="after")
    def _bounds_of_whole_multiples(self) -> Self:
        for name in ("min", "max", "exceed_by"):
            _check_multiple(self.shape.multiple_of, ("bounds", name), getattr(self.bounds, name))
        return self


class Pool(PoolSettings):
    """Identical replicas that scale as one."""

    model: str | None = Field(default=None, description="the model served; for the reader, nothing depends on it")
    region: str | None = Field(default=None, description="where it runs, as in the `region` of quotas")
    max_context_tokens: int | None = Field(
        default=None, ge=1, description="tokens of the longest request that it can hold; any unless given"
    )
    calendar: tuple[CalendarEntry, ...] = Field(
        default=(), description="minimums and ceilings by the clock: business hours, quiet hours, maintenance"
    )
    slo: Slo = Field(default=Slo(), description="what the pool promises")
    overlay: Overlay = Field(default=Overlay(), description="the reactive policy on live signals, above the floors")
    tune: Tune = Field(default=Tune(), description="how margins are tuned on the pool's past, and the gate")
    target: Target = Field(default=Target(), description="the workload in Kubernetes that serves the pool")

    @property
    def settings(self) -> PoolSettings:
        """What its floors follow from, alone."""
        return PoolSettings.model_validate({name: getattr(self, name) for name in PoolSettings.model_fields})

    # These are not rules of PoolSettings, which schedules published before they were made still have to satisfy.

    @model_validator(mode="after")
    def _fallback_of_whole_multiples(self) -> Self:
        _check_multiple(self.shape.multiple_of, ("fallback_replicas",), self.fallback_replicas or 0)
        return self

    @model_validator(mode="after")
    def _on_demand_dearest(self) -> Self:
        on_demand = self.gpu.usd_per_gpu_hour
        for kind in ("spot", "reserved"):
            key = f"{kind}_usd_per_gpu_hour"
            if on_demand and (price := getattr(self.gpu, key) or 0.0) > on_demand:
                raise PydanticCustomError(
                    "dearer_than_on_demand",
                    "{key} {price} is above usd_per_gpu_hour {on_demand}, the price on demand",
                    {
                        "key": key,
                        "price": price,
                        "on_demand": on_demand,
                        "at": ("gpu", key),
                        "hint": "give both per GPU and hour, or delete it: nobody would pay it",
                    },
                )
        return self

    @model_validator(mode="after")
    def _safe_in_bounds(self) -> Self:
        safe = self.overlay.safe_replicas
        if safe is not None and not self.bounds.min <= safe <= self.bounds.max:
            raise PydanticCustomError(
                "safe_out_of_bounds",
                "safe_replicas {value} is outside bounds {low} to {high}",
                {
                    "value": safe,
                    "low": self.bounds.min,
                    "high": self.bounds.max,
                    "at": ("overlay", "safe_replicas"),
                    "hint": "move it inside the bounds",
                },
            )
        return self
