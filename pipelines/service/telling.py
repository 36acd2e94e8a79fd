"""What is wrong, for a probe that asks and in the log as it comes and goes."""

from __future__ import annotations

import logging

from pipelines.service.board import Board

_log = logging.getLogger("floorcast.service")


def faults_of(board: Board) -> dict[str, str]:
    """What is wrong and is got along without, by where."""
    told = {"publication": board.publication.fault, "configuration": board.config_fault}
    told |= {f"source {one.name}": one.fault for one in board.sources}
    found = {where: f"{where}: {fault}" for where, fault in told.items() if fault}
    # Of the others the words up to the first figure say which it is.
    return found | {fault.split(" by ")[0].split(":")[0]: fault for fault in board.faults}


class Teller:
    """Logs each fault when it comes and when it is over, not at every tick between."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._validity = "valid"

    def tell(self, board: Board) -> None:
        faults, validity = faults_of(board), board.publication.validity(board.now)
        for where in faults.keys() - self._known:
            _log.warning("%s", faults[where])
        for where in sorted(self._known - faults.keys()):
            _log.info("%s: well again", where)
        if validity != self._validity:
            _log.log(logging.INFO if validity == "valid" else logging.WARNING, "the publication is %s", validity)
        self._known, self._validity = frozenset(faults), validity
