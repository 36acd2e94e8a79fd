"""Health judged by a clock that tests move."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pipelines.service.board import Board, Publication, SourceHealth
from pipelines.service.health import Health


def test_a_board_that_stays_for_more_than_four_ticks_is_a_loop_that_is_stuck(board: Board) -> None:
    clock_s, boards = [0.0], [board]
    health = Health(lambda: boards[0], clock=lambda: clock_s[0])
    for at_s in (0, 30, 60):
        clock_s[0] = at_s
        assert health.alive().ok
    clock_s[0] = 61.0
    assert health.alive().not_ok == health.ready().not_ok == ("no tick for 61 s",)
    boards[0] = replace(board, ticks=board.ticks + 1)
    assert health.alive().ok


def test_a_clock_set_back_by_a_day_does_not_make_it_sick(board: Board) -> None:
    boards = [board]
    health = Health(lambda: boards[0], clock=lambda: 0.0)
    boards[0] = replace(board, now=board.now - timedelta(days=1))
    assert health.alive().ok


def test_what_is_got_along_without_is_told_and_does_not_make_it_sick(board: Board) -> None:
    broken = replace(
        board,
        publication=Publication(board.publication.schedule, "not JSON; version 41 stays in force"),
        sources=(SourceHealth("prod", None, "no answer within 5s", 5.0),),
        config_fault="unknown key `pool`",
        faults=("what it remembers is not saved",),
    )
    health = Health(lambda: broken, clock=lambda: 0.0)
    assert health.alive().ok
    assert health.ready().ok
    assert health.alive().faults == (
        "publication: not JSON; version 41 stays in force",
        "configuration: unknown key `pool`",
        "source prod: no answer within 5s",
        "what it remembers is not saved",
    )


def test_short_ticks_are_given_ten_seconds(board: Board) -> None:
    clock_s, short = [0.0], replace(board, tick_s=0.1)
    health = Health(lambda: short, clock=lambda: clock_s[0])
    for at_s in (0.0, 10.0):
        clock_s[0] = at_s
        assert health.alive().ok
    clock_s[0] = 10.1
    assert not health.alive().ok


def test_the_ticks_of_the_newest_board_are_waited_for(board: Board) -> None:
    """From 15s to 5m: 20 minutes may pass then, in place of one."""
    clock_s, boards = [0.0], [board]
    health = Health(lambda: boards[0], clock=lambda: clock_s[0])
    boards[0] = replace(board, tick_s=300.0)
    assert health.alive().ok
    clock_s[0] = 1200.0
    assert health.alive().ok
    clock_s[0] = 1201.0
    assert health.alive().not_ok == ("no tick for 1201 s",)
