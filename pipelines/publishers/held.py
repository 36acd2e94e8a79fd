"""The floors that the service keeps up after a fault, from the file of its last tick."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ValidationError

DECISIONS = "decisions.json"
"""In the service's folder: what its last tick decided."""


class _Pool(BaseModel):
    floor: int
    floor_source: str


class _Decisions(BaseModel):
    decided_at: AwareDatetime
    pools: dict[str, _Pool]


def held_floors(folder: Path, *, now: datetime, within: timedelta) -> Mapping[str, int]:
    """By pool the floor that is not the one published: the service lets it down step by step. None where it made no
    decision `within` that time of `now`, since it may not run."""
    try:
        last = _Decisions.model_validate_json((folder / DECISIONS).read_bytes())
    except (OSError, ValidationError):
        return {}
    if abs(now - last.decided_at) > within:
        return {}
    return {name: pool.floor for name, pool in last.pools.items() if pool.floor_source != "schedule"}
