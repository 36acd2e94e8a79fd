"""Run as a process of its own: applies the second migration to a database, killed with SIGKILL after the n-th call.

python killed_upgrade.py DATABASE N, or `wait` in place of N to wait for a line on standard input in the midst.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import duckdb

from store.ledger import load_migrations, migrate, pending


class Interrupted:
    """The connection, which calls `stop` with the number of the call after each that writes."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, stop: Any) -> None:
        self.connection, self.stop, self.calls = connection, stop, 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            result = getattr(self.connection, name)(*arguments)
            if not (arguments and str(arguments[0]).startswith("SELECT")):
                self.calls += 1
                self.stop(self.calls)
            return result

        return call


def kill_after(wanted: int) -> Any:
    def stop(calls: int) -> None:
        if calls == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return stop


def wait(calls: int) -> None:
    if calls == 3:
        sys.stdout.write("inside\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    path, moment = sys.argv[1:]
    with duckdb.connect(path) as opened:
        two = load_migrations()[:2]
        assert pending(opened, two, where=path) == two[1:]
        stop = wait if moment == "wait" else kill_after(int(moment))
        migrate(Interrupted(opened, stop), two, where=path)  # type: ignore[arg-type]
