"""What is remembered, carried to disk: in a thread of its own, so that no slow disk holds up a decision."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from floorcast.errors import PublishError
from pipelines.publishers.files import replace_file
from pipelines.publishers.held import DECISIONS
from pipelines.service.decisions import Decisions
from pipelines.service.memory import write_memory
from pipelines.service.tick import Ticked

_LAG_S = 5.0
"""How long saving may take before it is told."""
_log = logging.getLogger("floorcast.service")


class Saving:
    """Saves the newest tick that was offered; those that another overtook are not saved.

    `fault` is why the newest is not saved, at first `fault`, what was wrong with what was saved before.
    """

    def __init__(self, folder: Path, monotonic: Callable[[], float], fault: str | None) -> None:
        self._folder, self._monotonic, self._failed = folder, monotonic, fault
        self._lock = threading.Lock()
        self._newest: tuple[Ticked, Decisions, float] | None = None
        self._since_s: float | None = None
        """When the tick that is being saved, or else waits, was offered."""
        self._thread: threading.Thread | None = None

    @property
    def fault(self) -> str | None:
        since_s = self._since_s
        for_s = 0.0 if since_s is None else self._monotonic() - since_s
        if for_s > _LAG_S:
            return f"what it remembers is not saved yet: the disk takes more than {for_s:.0f} s"
        return self._failed

    def offer(self, ticked: Ticked, decisions: Decisions) -> None:
        """What is to be saved from now on. Returns at once."""
        with self._lock:
            self._newest = ticked, decisions, self._monotonic()
            if self._thread is not None and self._thread.is_alive():
                return
            self._since_s = self._newest[2]
            self._thread = threading.Thread(target=self._run, name="saving", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                # No more threads for now: the next tick tries again.
                self._thread, self._failed = None, f"what it remembers is not saved: {error}"

    def finish(self, within_s: float) -> None:
        """Let what was offered last be saved, within that time."""
        thread = self._thread
        if thread is not None:
            thread.join(within_s)
            if thread.is_alive():
                _log.error("the last tick is not saved: the disk takes more than %g s", within_s)

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._newest is None:
                    self._thread = self._since_s = None
                    return
                (ticked, decisions, self._since_s), self._newest = self._newest, None
            self._save(ticked, decisions)

    def _save(self, ticked: Ticked, decisions: Decisions) -> None:
        try:
            write_memory(ticked.memory, self._folder)
            replace_file(self._folder / DECISIONS, document(ticked, decisions))
        except PublishError as error:
            self._failed = f"what it remembers is not saved, {error.where}: {error.what}"
            return
        self._failed = None


def document(ticked: Ticked, decisions: Decisions) -> str:
    """The decisions of a tick, for other tools."""
    pools = {
        name: {"desired": one.desired, "floor": one.floor, "floor_source": one.floor_source, "alert": one.alert}
        for name, one in decisions.items()
    }
    return json.dumps({"decided_at": ticked.at.isoformat(), "validity": ticked.validity, "pools": pools}) + "\n"
