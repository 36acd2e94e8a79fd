"""The published vocabulary: floors, their reasons, and the schedule that carries them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from floorcast.pool import PoolSettings

SCHEDULE_SCHEMA_VERSION = 1


class Frozen(BaseModel):
    """Base of all published types: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Rung(StrEnum):
    """Where a floor's demand came from, best first."""

    FRESH = "fresh"
    LAST_FORECAST = "last_forecast"
    PAST_WEEKS = "past_weeks"
    FALLBACK = "fallback_replicas"


BufferName = Literal["minimum_margin", "round_up", "zone_loss", "rollout", "warm", "scale_to_zero"]
Rule = Literal[
    "gate",
    "scheduled_minimum",
    "min_replicas",
    "multiple_of",
    "max_replicas",
    "dwell",
    "already_published",
    "hysteresis",
    "step_down",
    "ceiling",
    "quota",
]
"""What may move a floor after the buffers."""
RULES: tuple[Rule, ...] = get_args(Rule)
"""In the order they apply."""


class Buffer(Frozen):
    """One margin on top of the required replicas, with the number after it was applied."""

    name: BufferName
    value: float = Field(
        description="a share for minimum_margin and for rollout under 1; a count of replicas for warm and rollout, of "
        "zones for zone_loss; tokens per second for scale_to_zero"
    )
    replicas: float = Field(ge=0, description="replicas after this buffer")


class Adjustment(Frozen):
    """A rule that moved the floor after the buffers, with the number before and after."""

    rule: Rule
    before: int = Field(ge=0)
    after: int = Field(ge=0)
    name: str | None = Field(
        default=None, exclude_if=lambda name: name is None, description="of the scheduled rule that set the number"
    )


class Deadline(Frozen):
    """Of a class that may wait: what arrives in the deciding step, beside the work that is done in it."""

    wait_s: float = Field(gt=0, description="whole steps within the class's max_wait that its work may take")
    arriving_in_per_s: float = Field(ge=0, description="tokens in that arrive, at the floor's quantile")
    arriving_out_per_s: float = Field(ge=0)
    done_by: AwareDatetime = Field(description="when all that arrives in this step is to be done")


class ClassDemand(Frozen):
    """What one workload class adds to the deciding step, at the floor's quantile. Of a class planned by its deadline
    that is the work done in the step, of whatever time it came."""

    tokens_in_per_s: float = Field(ge=0)
    tokens_out_per_s: float = Field(ge=0)
    median_in_per_s: float = Field(default=0, ge=0, description="the median of tokens in")
    median_out_per_s: float = Field(default=0, ge=0)
    model_in: str
    model_out: str
    deadline: Deadline | None = Field(default=None, description="of a class planned by its deadline")
    cached_share: float = Field(
        default=0,
        ge=0,
        lt=1,
        exclude_if=lambda share: share == 0,
        description="of the prompt tokens, expected in the prefix cache, which tokens_in_per_s leaves out",
    )
    prompt_in_per_s: float | None = Field(
        default=None, ge=0, exclude_if=lambda rate: rate is None, description="tokens in with those in the cache"
    )
    share: float = Field(
        default=1,
        ge=0,
        le=1,
        exclude_if=lambda share: share == 1,
        description="of the class that is placed on this pool, where several serve it; its figures are of that part",
    )


class QuotaUse(Frozen):
    """GPUs of a quota that the floors of all its pools take in the window."""

    gpu: str
    region: str | None = None
    used: int = Field(ge=0)
    gpus: int = Field(ge=1, description="what there are")


class Admission(Frozen):
    """What a class can still be served by a pool that is short: what a gateway may let through. Never more than the
    class's demand at the quantile, in the busiest minute of a step where floors cover that."""

    share: float = Field(ge=0, le=1, description="of the class's demand at the quantile")
    tokens_in_per_s: float = Field(ge=0, description="prompt tokens as they arrive, those in the prefix cache too")
    tokens_out_per_s: float = Field(ge=0)


class AdmissionWindow(Admission):
    """The least of what a class can be served by all its pools together from `start` (included) to `end` (excluded)."""

    start: AwareDatetime
    end: AwareDatetime


class TakenOver(Frozen):
    """What a pool has to carry of another's demand in the deciding step, in case that pool's region is lost."""

    share: float = Field(gt=0, le=1)
    tokens_in_per_s: float = Field(ge=0, description="all of the other pool's demand at its quantile")
    tokens_out_per_s: float = Field(ge=0)


class Reason(Frozen):
    """Why a floor is what it is. `scaling.recompute` gets from here to the number."""

    binding: Literal["tokens_in", "tokens_out", "sum", "fallback_replicas"] = Field(
        description="the term of the capacity formula that decided"
    )
    needed_by: AwareDatetime = Field(description="start of the deciding step, the most demanding of the lead window")
    lead_s: float = Field(ge=0, description="startup p90 + publication interval + apply delay")
    startup_p90_s: float | None = Field(
        default=None, ge=0, exclude_if=lambda value: value is None, description="the p90 in the lead, where measured"
    )
    startup_starts: int | None = Field(
        default=None, ge=1, exclude_if=lambda value: value is None, description="starts that it was measured from"
    )
    startup_since: AwareDatetime | None = Field(
        default=None, exclude_if=lambda value: value is None, description="when the first of them was asked for"
    )
    lead_of: str | None = Field(
        default=None,
        exclude_if=lambda pool: pool is None,
        description="the pool whose lead that is, where not this one",
    )
    partners: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda pools: not pools,
        description="the pools planned together with this one, for the same lead, as neither serves without the others",
    )
    quantile: float = Field(gt=0, lt=1)
    tokens_in_per_s: float = Field(
        ge=0, description="the pool's demand at the quantile in the deciding step, with what it takes over"
    )
    tokens_out_per_s: float = Field(ge=0)
    median_tokens_per_s: float = Field(ge=0, description="the binding metric's median in the deciding step")
    share_in: float = Field(
        default=1,
        ge=0,
        le=1,
        description="what the pool's tokens in keep of its classes' spread above their medians, since they peak apart; "
        "1 adds their quantiles up",
    )
    share_out: float = Field(default=1, ge=0, le=1, description="the same of tokens out")
    peak_in: float = Field(
        default=1, ge=1, description="factor from there to the busiest minute of tokens in within a step"
    )
    peak_out: float = Field(default=1, ge=1, description="the same of tokens out")
    demand_tokens_per_s: float = Field(ge=0, description="the binding metric's demand (both added for `sum`)")
    required_replicas: float = Field(ge=0, description="before any buffer and rounding")
    buffers: tuple[Buffer, ...] = ()
    adjustments: tuple[Adjustment, ...] = ()
    published_replicas: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda replicas: not replicas,
        description="the floor published before for this time; 0 for none",
    )
    previous_replicas: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda replicas: not replicas,
        description="the floor of the step before, without ceiling and quota, from which step_down falls; of the first "
        "step the one published for it; 0 for none",
    )
    classes: dict[str, ClassDemand] = Field(default_factory=dict)
    placed: dict[str, float] = Field(
        default_factory=dict,
        exclude_if=lambda placed: not placed,
        description="by class that several unified pools serve, the share of it that is placed here throughout the "
        "window; `classes` has that of the deciding step",
    )
    takes_over: dict[str, TakenOver] = Field(
        default_factory=dict, exclude_if=lambda taken: not taken, description="by pool"
    )
    clamped: Literal["min_replicas", "max_replicas", "ceiling", "quota"] | None = Field(
        default=None, description="the limit that moved the floor, the last of them where several did"
    )
    shortfall_replicas: int = Field(
        default=0, ge=0, description="replicas wanted above max_replicas, a ceiling or what a quota leaves"
    )
    quotas: tuple[QuotaUse, ...] = Field(
        default=(), exclude_if=lambda quotas: not quotas, description="those that the pool's GPUs count in"
    )
    admission: dict[str, Admission] = Field(
        default_factory=dict,
        exclude_if=lambda admission: not admission,
        description="by class, where the pool is short",
    )


class FloorWindow(Frozen):
    """The minimum replicas of a pool from `start` (included) to `end` (excluded)."""

    start: AwareDatetime
    end: AwareDatetime
    min_replicas: int = Field(ge=0)
    reason: Reason


class Served(Frozen):
    """What one way to run a pool cost and kept on the judged days."""

    over_clairvoyant: float | None = Field(
        description="cost as a multiple of the clairvoyant's; null where nothing can keep the promise"
    )
    gpu_hours_per_day: float
    on_time: float = Field(ge=0, le=1, description="share of the tokens")


class Proof(Frozen):
    """What the gate rests on: replays of days with settings chosen on the days before each."""

    as_of: AwareDatetime = Field(description="when it was tuned, the end of the judged days")
    days: int = Field(ge=1)
    promise: float = Field(gt=0, le=1)
    floors: Served
    overlay_alone: Served
    why: str
    applied: bool = Field(description="whether floors are planned with the settings tuned then")


class PoolSchedule(Frozen):
    """A pool's floors over the horizon, contiguous and in order."""

    gate: Literal["open", "closed", "untested"] = Field(
        description="whether replay shows that floors pay on this pool: where closed, floors are its plain minimums; "
        "untested where none was run, it could not tell, or the pool does not heed it"
    )
    proof: Proof | None = Field(
        default=None, exclude_if=lambda proof: proof is None, description="where the pool was tuned"
    )
    rung: Rung
    settings: PoolSettings | None = Field(
        default=None,
        exclude_if=lambda settings: settings is None,
        description="what the floors were planned with, as the configuration writes it",
    )
    windows: tuple[FloorWindow, ...] = Field(min_length=1)


class FloorSchedule(Frozen):
    """All floors of one publication."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    version: int = Field(ge=1)
    mode: Literal["advisory", "apply"]
    issued_at: AwareDatetime
    valid_until: AwareDatetime
    content_hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$", description="of the canonical JSON of `pools`")
    pools: dict[str, PoolSchedule]
    admission: dict[str, tuple[AdmissionWindow, ...]] = Field(
        default_factory=dict,
        exclude_if=lambda admission: not admission,
        description="by class that its pools cannot serve whole: when, and what a gateway may let through",
    )
