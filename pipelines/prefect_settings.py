"""Prefect made quiet, offline and at home in the project's output folder."""

from __future__ import annotations

import os
import signal
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from floorcast.errors import PublishError

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    # ERROR still prints the tracebacks of its own shutdown.
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    # The default of 20 s is too short for the first start, which migrates its database.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}


def prepare(environment: MutableMapping[str, str], *, home: Path) -> None:
    """Set what the user has not set, make the home, and end what a killed run left. Call before Prefect is imported.

    Raises PublishError where the home cannot be made.
    """
    for name, value in {**QUIET, "PREFECT_HOME": str(home)}.items():
        environment.setdefault(name, value)
    try:
        # Prefect makes the folder but not those above it.
        Path(environment["PREFECT_HOME"]).expanduser().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PublishError(
            f"cannot be made: {error.strerror}",
            where=environment["PREFECT_HOME"],
            remedy="set `output.dir` (or PREFECT_HOME) to a folder that can be written to",
        ) from None
    _end_orphans(environment["PREFECT_HOME"])


def _end_orphans(home: str) -> None:
    """End the servers of this home whose parent was killed: Prefect starts one for each run in process, which then
    lives on with 200 MB. Where there is no /proc, nothing is looked for."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            command = (process / "cmdline").read_bytes()
            environ = (process / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == "1" and b"prefect.server" in command and f"PREFECT_HOME={home}".encode() in environ:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGTERM)
