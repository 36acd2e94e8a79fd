"""What a publisher is asked for, and what it did. All publishers speak these two types."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol, get_args

from pydantic import AwareDatetime, Field

from floorcast.types import Frozen

Did = Literal["written", "applied", "unchanged", "would_change", "left_above", "conflict", "expired", "failed"]
DID: tuple[Did, ...] = get_args(Did)

ALL_POOLS = "*"
"""As `pool` of an outcome: a file that holds them all."""

AT_FAULT: tuple[Did, ...] = ("conflict", "expired", "failed")
"""What leaves a pool without the floor that is wanted there."""


class Wanted(Frozen):
    """Replicas that a pool must not fall below from now until it is told otherwise."""

    pool: str
    replicas: int = Field(ge=0, description="what to publish: the floor due, or the overlay's decision where asked for")
    floor: int = Field(ge=0)
    max_replicas: int = Field(ge=0)
    version: int | None = Field(default=None, description="of the schedule; none where no schedule is in force")
    valid_until: AwareDatetime | None = Field(
        default=None, description="from then on it is not applied, and what is there stays; none holds until replaced"
    )
    only_raises: bool = Field(default=False, description="whether a higher minimum there is left, whoever set it")
    reason: str = Field(description="why, in one line")


class Outcome(Frozen):
    """What one publisher did for one pool."""

    publisher: str
    pool: str
    at: AwareDatetime
    did: Did
    before: int | None = Field(default=None, description="minimum found there")
    after: int | None = Field(default=None, description="minimum there now, or there would be with `mode: apply`")
    note: str = Field(
        default="",
        description="what a person should know: the fault, the field's owner, a tolerance",
    )


class Publisher(Protocol):
    """Something that carries floors to where replicas are decided."""

    name: str

    def publish(self, wanted: Sequence[Wanted], *, apply: bool, now: datetime) -> list[Outcome]:
        """One outcome per pool wanted. Without `apply` nothing outside floorcast changes, and the outcome says what
        would. A fault of one pool is that pool's `failed`; PublishError is raised only where none could be tried."""
        ...
