"""Looking things up on the board, and a floor explained from the schedule alone."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import datetime

from floorcast.errors import NotFoundError
from floorcast.types import FloorSchedule
from pipelines.publishers.schedule import floor_due
from pipelines.service.board import Board, PoolDecision
from pipelines.service.bodies import ExplanationBody
from pipelines.service.documents import Document
from scaling.explain import explain
from scaling.recompute import recompute


def decision_of(board: Board, pool: str) -> PoolDecision:
    """Raises NotFoundError for a pool that nothing is decided of."""
    found = board.decisions.get(pool)
    if found is None:
        near = difflib.get_close_matches(pool, board.decisions, n=1)
        raise NotFoundError(
            f"no pool `{pool}`", remedy=f"did you mean `{near[0]}`?" if near else "GET /v1/floors lists the pools"
        )
    return found


def schedule_of(board: Board) -> FloorSchedule:
    """Raises NotFoundError where none is in force."""
    if board.publication.schedule is None:
        fault = board.publication.fault or "nothing is published yet"
        raise NotFoundError(f"no schedule is in force: {fault}", remedy="run `floorcast cycle`")
    return board.publication.schedule


def schedule_document(board: Board) -> Document:
    """The schedule as its file has it. Raises NotFoundError."""
    return Document.of(schedule_of(board).model_dump_json(by_alias=True).encode())


@dataclass(frozen=True)
class Explanation:
    body: ExplanationBody
    text: str


def explanation(board: Board, pool: str, at: datetime | None) -> Explanation:
    """Why the floor of `pool` is what it is at that time, or now, then with the decision. Raises NotFoundError."""
    schedule = schedule_of(board)
    window = floor_due(schedule, pool, at or board.now)
    planned = schedule.pools[pool]
    recomputed = None
    if planned.settings is None:
        words = (
            f"{pool}: floor {window.min_replicas}\n  settings    not in version {schedule.version}, so that nothing is "
            "recomputed"
        )
    else:
        recomputed = recompute(window.reason, planned.settings)
        words = explain(
            window,
            pool_name=pool,
            pool=planned.settings,
            version=schedule.version,
            issued_at=schedule.issued_at,
            rung=planned.rung,
            proof=planned.proof,
        )
    decision = board.decisions.get(pool) if at is None else None
    body = ExplanationBody(
        pool=pool,
        at=at or board.now,
        floor=window.min_replicas,
        version=schedule.version,
        issued_at=schedule.issued_at,
        valid_until=schedule.valid_until,
        rung=planned.rung,
        gate=planned.gate,
        recomputed=recomputed,
        window=window,
        floor_words=words,
        decision_words=decision.words if decision else None,
    )
    text = words if decision is None else f"{words}\ndecision\n{decision.words}"
    return Explanation(body, f"{text}\n")
