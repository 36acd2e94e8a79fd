"""What breaks during a run, when, and how: `begin` and `end` do it to the real parts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.closed_loop.parts import Parts

Act = Callable[[Parts], None]
HOUR_S = 3600.0


@dataclass(frozen=True)
class Fault:
    """From `begin_min` to `end_min` of the run."""

    name: str
    what: str
    begin_min: float
    end_min: float
    begin: Act
    end: Act
    expects: tuple[str, ...] = ()
    """What the service must have said meanwhile."""


def _kill_prometheus(parts: Parts) -> None:
    parts.prometheus.kill()


def _start_prometheus(parts: Parts) -> None:
    parts.prometheus.start()


def _newest(parts: Parts) -> Path:
    return max((parts.published / "schedules").glob("v*.json"))


def _stop_publisher(parts: Parts) -> None:
    parts.publisher.signal(signal.SIGSTOP)


def _go_on_publishing(parts: Parts) -> None:
    parts.publisher.signal(signal.SIGCONT)


def _truncate(parts: Parts) -> None:
    """Both files of the newest version, written over in place as a broken copy would."""
    _stop_publisher(parts)
    for path in (parts.published / "schedule.json", _newest(parts)):
        os.truncate(path, path.stat().st_size // 2)


def edit(parts: Parts) -> None:
    """Floors of 1 under the old hash."""
    _stop_publisher(parts)
    for path in (parts.published / "schedule.json", _newest(parts)):
        document = json.loads(path.read_text(encoding="utf-8"))
        for pool in document["pools"].values():
            for window in pool["windows"]:
                window["min_replicas"] = 1
        path.write_text(json.dumps(document), encoding="utf-8")


_HOLD = """
import duckdb, sys, time
while True:
    try:
        held = duckdb.connect(sys.argv[1])
        break
    except duckdb.IOException:
        time.sleep(0.05)
sys.stdin.read()
"""
_HOLDERS: dict[Path, subprocess.Popen[bytes]] = {}


def _lock_database(parts: Parts) -> None:
    """Another process holds the file, as a forgotten shell of DuckDB does."""
    command = [sys.executable, "-c", _HOLD, str(parts.plan / "floorcast.duckdb")]
    _HOLDERS[parts.folder] = subprocess.Popen(command, stdin=subprocess.PIPE)


def _unlock_database(parts: Parts) -> None:
    holder = _HOLDERS.pop(parts.folder)
    holder.kill()
    holder.wait()


def _fill_disk(parts: Parts) -> None:
    with (parts.disk / "filler").open("wb", buffering=0) as filler:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    filler.write(b"\0" * size)
            except OSError:
                continue


def _empty_disk(parts: Parts) -> None:
    (parts.disk / "filler").unlink()


def freeze(name: str) -> tuple[Act, Act]:
    """Stop a part where it is, and let it go on."""

    def stop(parts: Parts) -> None:
        getattr(parts, name).signal(signal.SIGSTOP)

    def go_on(parts: Parts) -> None:
        getattr(parts, name).signal(signal.SIGCONT)

    return stop, go_on


def _clock(ahead_s: float) -> tuple[Act, Act]:
    return (lambda parts: parts.set_clock(ahead_s)), (lambda parts: parts.set_clock(0))


def _kill_service(parts: Parts) -> None:
    parts.service.kill()


def _start_service(parts: Parts) -> None:
    parts.service.start()


def _kill_publisher(parts: Parts) -> None:
    parts.publisher.kill()


def _start_publisher(parts: Parts) -> None:
    parts.publisher.start()


def _damage_and_kill(parts: Parts) -> None:
    _truncate(parts)
    parts.service.kill()
    parts.service.start()


_LOST, _KEPT, _JUMPED = ("signals lost",), ("stays in force",), ("clock jumped",)
_RESTART, _PUBLISHER = (_kill_prometheus, _start_prometheus), (_kill_publisher, _start_publisher)
_DAMAGED, _AFTER = "service restarted on a damaged publication", (194, 200)
FAULTS = (
    Fault("prometheus_killed", "Prometheus killed, started again", 10, 16, *_RESTART, _LOST),
    Fault("publication_truncated", "newest publication cut in half", 21, 31, _truncate, _go_on_publishing, _KEPT),
    Fault("publication_edited", "floors of 1 under an old hash", 36, 46, edit, _go_on_publishing, _KEPT),
    Fault("exporter_frozen", "exporter frozen for longer than dead_man", 52, 66, *freeze("exporter"), ("alert",)),
    Fault("database_locked", "another process holds the database", 71, 81, _lock_database, _unlock_database),
    Fault("prometheus_frozen", "Prometheus frozen while the launch begins", 84, 92, *freeze("prometheus"), _LOST),
    Fault("disk_full", "disk of state and publications full", 98, 110, _fill_disk, _empty_disk, ("not saved",)),
    Fault("clock_forward", "clock of the service 2 h ahead", 115, 121, *_clock(2 * HOUR_S), _JUMPED),
    Fault("clock_back", "clock of the service 30 min back", 126, 132, *_clock(-HOUR_S / 2), _JUMPED),
    Fault("service_killed", "service killed, started again", 138, 140, _kill_service, _start_service, ("no answer",)),
    Fault("floors_expired", "publisher dead until floors expired", 147, 187, *_PUBLISHER, ("expired",)),
    Fault("killed_while_damaged", _DAMAGED, *_AFTER, _damage_and_kill, _go_on_publishing, _KEPT),
)
"""In order; each begins once the one before it is over."""
