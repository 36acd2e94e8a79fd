"""What the configuration says of a pool's overlay: the reactive policy on live signals, above the floors."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from floorcast.section import Fraction, Section
from floorcast.units import Duration, format_duration

Policy = Literal["hybrid", "composite", "target_tracking", "step", "threshold", "scheduled", "lookahead"]
MOST_BANDS = 6


def _ordered(low: float, high: float) -> None:
    if low >= high:
        raise PydanticCustomError(
            "no_gap",
            "in_below {low} is not below {high}, where replicas are added",
            {"low": low, "high": high, "at": ("in_below",), "hint": "leave a gap, or replicas come and go for ever"},
        )


class Targets(Section):
    """What `hybrid` asks of each signal; a signal whose target is null asks for nothing."""

    waiting_per_replica: float | None = Field(default=10, gt=0, description="requests that may wait per replica")
    kv_cache: Fraction | None = Field(default=0.8, gt=0, le=1, description="share of the KV cache in use")
    ttft: Duration | None = Field(default=None, description="p95 time to first token")
    ttft_per_1k_prompt: Duration | None = Field(
        default=None, description="the same per 1,000 prompt tokens, fairer where prompts differ in length"
    )
    itl: Duration | None = Field(default=None, description="p95 inter-token latency")
    gpu_utilization: Fraction | None = Field(
        default=None, gt=0, le=1, description="share of the time that GPUs are busy; says little of how busy they are"
    )


class Composite(Section):
    """`composite`: w_1 utilization/target + w_2 queue/target + w_3 TTFT/target, as one score."""

    utilization_weight: float = Field(default=0.4, ge=0, le=1, description="w_1")
    queue_weight: float = Field(default=0.3, ge=0, le=1, description="w_2")
    ttft_weight: float = Field(default=0.3, ge=0, le=1, description="w_3")
    queue: float = Field(default=5, gt=0, description="target of requests waiting per replica")
    ttft: Duration = Field(default=timedelta(milliseconds=500), description="target of the p95 time to first token")
    out_above: float = Field(default=1.0, gt=0, description="a higher score asks for more replicas")
    in_below: float = Field(default=0.5, ge=0, description="a lower score lets replicas go")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        _ordered(self.in_below, self.out_above)
        if self.utilization_weight + self.queue_weight + self.ttft_weight <= 0:
            raise PydanticCustomError(
                "no_weight", "all weights are 0", {"hint": "give at least one of the three signals a weight"}
            )
        return self


class Threshold(Section):
    """`threshold`: one replica more above, one fewer below."""

    out_above: Fraction = Field(default=0.8, gt=0, le=1, description="utilization above which one replica is added")
    in_below: Fraction = Field(default=0.3, ge=0, le=1, description="utilization below which one is let go")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        _ordered(self.in_below, self.out_above)
        return self


class Band(Section):
    """A band of utilization, up to the next one."""

    at_least: Fraction = Field(gt=0, le=1, description="where the band begins")
    add: int = Field(ge=1, le=1_000, description="replicas added in it")


class Steps(Section):
    """`step`: the fuller the pool, the more replicas at once."""

    bands: tuple[Band, ...] = Field(
        default=(Band(at_least=0.8, add=1), Band(at_least=0.9, add=2), Band(at_least=0.95, add=4)),
        min_length=1,
        max_length=MOST_BANDS,
        description="in rising order",
    )
    in_below: Fraction = Field(default=0.3, ge=0, le=1, description="utilization below which one is let go")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        begins = [band.at_least for band in self.bands]
        adds = [band.add for band in self.bands]
        if begins != sorted(set(begins)) or adds != sorted(adds):
            raise PydanticCustomError(
                "bands_disordered",
                "bands do not rise",
                {"at": ("bands",), "hint": "order them by `at_least`, and add no fewer replicas in a higher band"},
            )
        _ordered(self.in_below, begins[0])
        return self


class Lookahead(Section):
    """`lookahead`: how the load a startup time from now is read off moments of the past that were like this one."""

    quantile: float = Field(default=0.95, gt=0, lt=1, description="quantile of the growth seen at such moments")
    near: float = Field(
        default=0.15,
        gt=0,
        le=10,
        description="how near a past load must be to this one, as the spread of its logarithm",
    )
    around: Duration = Field(default=timedelta(minutes=90), description="how near a time of day must be to this one")
    same_minute: float = Field(
        default=3.0,
        ge=0,
        le=100,
        description="weight of the very same minute of past days, beside 1 for those around it: for what starts by "
        "the clock",
    )
    fade: Duration = Field(default=timedelta(days=6), description="time in which the weight of a moment falls by e")
    alike: Duration = Field(
        default=timedelta(hours=3), description="how many last hours past days are compared by, to count more if alike"
    )

    @model_validator(mode="after")
    def _timed(self) -> Self:
        for key, value in (("around", self.around), ("fade", self.fade), ("alike", self.alike)):
            if not value:
                raise PydanticCustomError(
                    "no_time", "{key} is 0", {"key": key, "at": (key,), "hint": "use at least one minute"}
                )
        return self


class Panic(Section):
    """As in Knative: a short window that sees a surge before the long one does."""

    window: Duration = Field(default=timedelta(seconds=20), description="the short window of the token rate")
    threshold: float = Field(
        default=2.0, gt=1, description="panic where that asks for so many times the ready replicas"
    )
    hold: Duration = Field(
        default=timedelta(minutes=1), description="how long after that nothing is let go and no cooldown counts"
    )


class ScaleOut(Section):
    """How fast replicas are added."""

    cooldown: Duration = Field(default=timedelta(seconds=90), description="time between two raises by the overlay")
    stabilization: Duration = Field(
        default=timedelta(0), description="the least that was asked for within this time is what is added"
    )
    tolerance: Fraction = Field(
        default=0.05, ge=0, le=1, description="share of the replicas that must be missing before any is added"
    )
    per_minute: int = Field(default=4, ge=1, description="replicas added within any minute, at most")
    share_per_minute: Fraction = Field(default=1.0, ge=0, description="or this share of the replicas, if that is more")


class ScaleIn(Section):
    """How fast replicas are let go."""

    cooldown: Duration = Field(default=timedelta(seconds=300), description="time since the last change, either way")
    stabilization: Duration = Field(
        default=timedelta(minutes=10), description="the most that was asked for within this time stays"
    )
    hysteresis: Fraction = Field(
        default=0.1, ge=0, lt=1, description="replicas go only if utilization then stays this share below its target"
    )
    per_minute: int = Field(default=1, ge=1, description="replicas let go within any minute, at most")
    share_per_minute: Fraction = Field(default=0.1, ge=0, description="or this share of the replicas, if that is more")


class Overlay(Section):
    """The reactive policy on live signals. It may raise, never lower, what the floor says."""

    policy: Policy = Field(default="hybrid", description="how signals become replicas")
    also: tuple[Policy, ...] = Field(default=(), description="further policies, any of which may raise")
    utilization: Literal["tokens", "gpu", "kv_cache"] = Field(
        default="tokens",
        description="what `target_tracking`, `step`, `threshold` and `composite` call utilization: the token rate "
        "against the capacity of the ready replicas, GPU utilization, or KV-cache use",
    )
    target_utilization: Fraction | None = Field(
        default=None, gt=0, le=1, description="utilization to aim at; that of `capacity` unless given"
    )
    rate_window: Duration = Field(default=timedelta(minutes=3), description="window of the token rates")
    smoothing: Duration = Field(default=timedelta(seconds=60), description="window of the other signals")
    drain_backlog: Duration = Field(
        default=timedelta(minutes=5), description="time in which tokens that wait are to be served"
    )
    targets: Targets = Field(default=Targets(), description="what `hybrid` asks of each signal")
    composite: Composite = Field(default=Composite(), description="the score of `composite`")
    threshold: Threshold = Field(default=Threshold(), description="the limits of `threshold`")
    step: Steps = Field(default=Steps(), description="the bands of `step`")
    lookahead: Lookahead = Field(default=Lookahead(), description="the growth of `lookahead`")
    panic: Panic | None = Field(default=None, description="a panic window; none unless given")
    scale_out: ScaleOut = Field(default=ScaleOut(), description="how fast replicas are added")
    scale_in: ScaleIn = Field(default=ScaleIn(), description="how fast replicas are let go")
    min_uptime: Duration = Field(
        default=timedelta(minutes=10),
        description="replicas that the floors want again within startup p90 and this are not let go",
    )
    drain_timeout: Duration = Field(
        default=timedelta(minutes=10), description="how long a replica that goes may finish its requests"
    )
    stale_after: Duration = Field(
        default=timedelta(minutes=2), description="a signal older than this holds the replicas where they are"
    )
    dead_man: Duration = Field(
        default=timedelta(minutes=10), description="without any signal for so long, `safe_replicas` and an alert"
    )
    safe_replicas: int | None = Field(
        default=None, ge=0, description="replicas then, at least; `fallback_replicas`, else bounds.min, unless given"
    )
    match: dict[str, str] = Field(
        default_factory=dict,
        description="labels of this pool's engines at the Prometheus sources, for its live signals; those that its "
        "classes `match` unless given, which do not tell the pools of a class apart",
    )
    stuck_after: Duration = Field(
        default=timedelta(minutes=15),
        description="a queue that does not move, or waits beside idle replicas, for so long is not believed",
    )

    @model_validator(mode="after")
    def _timed(self) -> Self:
        for key, value in (("drain_backlog", self.drain_backlog), ("stale_after", self.stale_after)):
            if not value:
                raise PydanticCustomError(
                    "no_time", "{key} is 0", {"key": key, "at": (key,), "hint": "use at least one second"}
                )
        if self.dead_man < self.stale_after:
            raise PydanticCustomError(
                "dead_before_stale",
                "dead_man {dead_man} is over before a signal is stale, after {stale_after}",
                {
                    "dead_man": format_duration(self.dead_man),
                    "stale_after": format_duration(self.stale_after),
                    "at": ("dead_man",),
                    "hint": "let it be a few times `stale_after`",
                },
            )
        return self
