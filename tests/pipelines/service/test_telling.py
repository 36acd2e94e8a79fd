from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from pipelines.service.board import Board, Publication, SourceHealth
from pipelines.service.telling import Teller, faults_of


def test_a_fault_is_logged_when_it_comes_and_when_it_is_over(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    """Its figures may change from tick to tick: it is the same fault."""
    caplog.set_level("INFO")
    calm = replace(board, sources=(), faults=())
    lost = [
        replace(calm, sources=(SourceHealth("prod", None, f"no answer, {times} times in a row", 5.0),))
        for times in (1, 2)
    ]
    teller = Teller()
    for each in (calm, *lost, calm, calm):
        teller.tell(each)
    assert caplog.messages == ["source prod: no answer, 1 times in a row", "source prod: well again"]


def test_a_publication_that_expires_and_comes_back_is_logged(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    calm = replace(board, sources=(), faults=())
    late = replace(calm, now=calm.now + timedelta(days=30))
    damaged = replace(calm, publication=Publication(calm.publication.schedule, "not JSON; version 41 stays in force"))
    teller = Teller()
    for each in (calm, late, late, calm, damaged):
        teller.tell(each)
    told = ["the publication is expired", "the publication is valid"]
    assert caplog.messages == [*told, "publication: not JSON; version 41 stays in force"]


def test_faults_without_a_place_are_told_apart_by_their_words(board: Board) -> None:
    jumped = ("the clock jumped back by 30m: nothing is let go", "what it remembers is not saved, state: no space")
    found = faults_of(replace(board, sources=(), faults=jumped))
    assert list(found) == ["the clock jumped back", "what it remembers is not saved, state"]
    assert tuple(found.values()) == jumped
