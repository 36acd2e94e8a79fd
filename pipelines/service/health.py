"""Whether the service does its work: for probes."""

from __future__ import annotations

import time
from collections.abc import Callable

from floorcast.units import format_time
from pipelines.service.board import Board
from pipelines.service.bodies import HealthBody
from pipelines.service.telling import faults_of

STALLED_TICKS = 4
"""Ticks without a new board after which the loop is taken for stuck."""
LEAST_STALL_S = 10.0


class Health:
    """Looks at the board. That the loop goes on is judged by the board being replaced, by a clock that cannot jump:
    a probe that looks again after a while and finds the same board knows."""

    def __init__(self, board: Callable[[], Board], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._seen: Board | None = None
        self._since = clock()

    def alive(self) -> HealthBody:
        """The process answers, and ticks."""
        board = self._board()
        return _body(board, self._stalled(board))

    def ready(self) -> HealthBody:
        """It has decided, and the publication it decides by is valid."""
        board, not_ok = self._board(), []
        if board.ticks == 0:
            not_ok.append("nothing is decided yet")
        publication = board.publication
        match publication.validity(board.now):
            case "missing":
                not_ok.append(f"no schedule is in force: {publication.fault or 'nothing is published yet'}")
            case "expired" if publication.schedule is not None:
                not_ok.append(f"the publication expired at {format_time(publication.schedule.valid_until)}")
        return _body(board, not_ok + self._stalled(board))

    def _stalled(self, board: Board) -> list[str]:
        now_s = self._clock()
        if board is not self._seen:
            self._seen, self._since = board, now_s
        for_s = now_s - self._since
        patience_s = max(STALLED_TICKS * board.tick_s, LEAST_STALL_S)
        return [f"no tick for {for_s:.0f} s"] if for_s > patience_s else []


def _body(board: Board, not_ok: list[str]) -> HealthBody:
    return HealthBody(
        ok=not not_ok,
        not_ok=tuple(not_ok),
        faults=tuple(faults_of(board).values()),
        ticks=board.ticks,
        last_tick_at=board.now,
    )
