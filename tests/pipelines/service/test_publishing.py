"""What is handed to publishers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipelines.service.publishing import wanted_of


def test_floors_and_decisions_are_carried_with_the_validity_of_the_schedule(board: Any) -> None:
    wanted = wanted_of(board)
    for one in wanted["floor"]:
        assert one.replicas == one.floor == board.decisions[one.pool].floor
        assert one.valid_until == board.publication.schedule.valid_until
    for one in wanted["decision"]:
        assert one.replicas == board.decisions[one.pool].desired
        assert one.valid_until is None


def test_a_floor_that_rests_on_nothing_published_is_not_carried(board: Any) -> None:
    """It could lower a minimum that was published once."""
    guessed = {name: replace(one, window=None, ready=None) for name, one in board.decisions.items()}
    assert wanted_of(replace(board, decisions=guessed)) == {"floor": [], "decision": []}
