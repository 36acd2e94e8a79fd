"""What the HTTP API answers, as its OpenAPI describes it. A number that is not known is left out, never null."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, ConfigDict, Field

from floorcast.types import FloorWindow, Frozen, Rung
from pipelines.publishers.outcome import Outcome
from pipelines.service.board import Board, PoolDecision, Validity


def _unknown(value: object) -> bool:
    return value is None


Replicas = Annotated[int, Field(ge=0)]
MaybeReplicas = Annotated[int | None, Field(ge=0, exclude_if=_unknown)]
MaybeTime = Annotated[AwareDatetime | None, Field(exclude_if=_unknown)]


class Problem(Frozen):
    """What was wrong with a request, or why it cannot be answered now."""

    status: int = Field(ge=400, le=599)
    what: str
    where: str = ""
    remedy: str = ""


class ErrorBody(Frozen):
    """The one shape of all errors."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "error": {
                    "status": 404,
                    "what": "no pool `chat-7b`",
                    "where": "",
                    "remedy": "did you mean `chat-70b`?",
                }
            }
        }
    )
    error: Problem


class InForce(Frozen):
    """The publication that the answer rests on."""

    validity: Validity = Field(description="where it is not `valid`, floors are held and never fall")
    version: int | None = Field(default=None, ge=1, exclude_if=_unknown)
    issued_at: MaybeTime = None
    valid_until: MaybeTime = None

    @classmethod
    def of(cls, board: Board) -> dict[str, Any]:
        """Its fields as `board` has them."""
        schedule = board.publication.schedule
        fields: dict[str, Any] = {"validity": board.publication.validity(board.now)}
        if schedule is not None:
            fields |= {name: getattr(schedule, name) for name in ("version", "issued_at", "valid_until")}
        return fields


class FloorsBody(InForce):
    """The floor in force of each pool. KEDA's metrics-api reads one by `valueLocation: floors.POOL`."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "validity": "valid",
                "version": 42,
                "issued_at": "2026-11-30T08:50:00Z",
                "valid_until": "2026-11-30T10:50:00Z",
                "floors": {"chat-70b": 14, "code-8b": 3},
            }
        }
    )
    floors: dict[str, Replicas]


class FloorBody(InForce):
    """The floor in force of one pool."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "validity": "valid",
                "version": 42,
                "issued_at": "2026-11-30T08:50:00Z",
                "valid_until": "2026-11-30T10:50:00Z",
                "pool": "chat-70b",
                "floor": 14,
                "source": "schedule",
            }
        }
    )
    pool: str
    floor: Replicas
    source: str = Field(description="`schedule`, or why the floor is not the schedule's")


class DecisionBody(Frozen):
    """What the overlay wants of a pool."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                "desired": 16,
                "floor": 14,
                "floor_source": "schedule",
                "ceiling": 40,
                "current": 15,
                "ready": 15,
                "starting": 0,
                "alert": False,
                "lost": [],
            }
        },
    )
    desired: Replicas
    floor: Replicas
    floor_source: str
    ceiling: Replicas
    current: MaybeReplicas = Field(default=None, description="replicas asked for until now, where known")
    ready: MaybeReplicas = None
    starting: MaybeReplicas = None
    draining: MaybeReplicas = None
    alert: bool = Field(description="without any signal for the dead-man interval")
    lost: tuple[str, ...] = Field(description="signals that were there and are missed")


class DecisionsBody(InForce):
    """The decision of each pool. KEDA's metrics-api reads one by `valueLocation: decisions.POOL.desired`."""

    decisions: dict[str, DecisionBody]

    @classmethod
    def on(cls, board: Board) -> DecisionsBody:
        decisions = {name: DecisionBody.model_validate(each) for name, each in board.decisions.items()}
        return cls(decisions=decisions, **cls.of(board))


class PoolDecisionBody(DecisionBody):
    """The decision of one pool with what made it."""

    pool: str
    decided_at: AwareDatetime
    triggers: tuple[dict[str, Any], ...] = Field(description="of each enabled trigger its value, target and vote")
    rules: tuple[dict[str, Any], ...] = Field(description="what moved the number after them, before and after")
    words: str

    @classmethod
    def of(cls, decision: PoolDecision) -> PoolDecisionBody:
        fields = {name: getattr(decision, name) for name in cls.model_fields}
        fields |= {name: tuple(map(dict, fields[name])) for name in ("triggers", "rules")}
        return cls(**fields)


class ExplanationBody(Frozen):
    """Why a floor is what it is, as published, in figures and in words."""

    pool: str
    at: AwareDatetime
    floor: Replicas
    version: int
    issued_at: AwareDatetime
    valid_until: AwareDatetime
    rung: Rung
    gate: Literal["open", "closed", "untested"]
    recomputed: int | None = Field(
        default=None, exclude_if=_unknown, description="the number that follows from the reason and the settings"
    )
    window: FloorWindow
    floor_words: str
    decision_words: str | None = Field(
        default=None, exclude_if=_unknown, description="of the decision now, where no other time was asked about"
    )


class PublishersBody(Frozen):
    """What each publisher last did for each pool."""

    outcomes: tuple[Outcome, ...]


class HealthBody(Frozen):
    """Whether the service does its work, and what keeps it from it."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "ok": False,
                "not_ok": ["the publication expired at 2026-11-30T10:50:00Z"],
                "faults": ["source prod: no answer within 5s"],
                "ticks": 1440,
                "last_tick_at": "2026-11-30T10:52:15Z",
            }
        }
    )
    ok: bool
    not_ok: tuple[str, ...]
    faults: tuple[str, ...] = Field(description="what is wrong and is got along without")
    ticks: int = Field(ge=0)
    last_tick_at: AwareDatetime
