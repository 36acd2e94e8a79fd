"""The process: the loop in a thread of its own beside what serves it, from the lock to the last request answered."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from floorcast.errors import ConfigError
from pipelines.service.loop import Loop

LOCK = "lock"
_LOOK_S = 0.5
"""How often the main thread looks whether the loop still runs; Python delivers signals to that thread."""


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the folder. The lock ends with the process, however that ends. Raises ConfigError where another holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(
            f"cannot be written to: {error.strerror}",
            where=str(folder),
            remedy="make the folder writable, or name another with `service.state_dir`",
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise ConfigError(
                f"another service{f', process {holder},' if holder else ''} works here",
                where=str(folder),
                remedy="end it, or give this one a `service.state_dir` of its own",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by the first SIGTERM or SIGINT. The second ends the process at once."""
    stop = threading.Event()

    def told(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(loop: Loop, stop: threading.Event) -> None:
    """Decide and serve until told to stop. What ends the loop ends the process with it."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            loop.run(stop)
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            stop.set()

    worker = threading.Thread(target=work, name="ticks")
    worker.start()
    while not stop.wait(_LOOK_S):
        pass
    worker.join()
    if failed:
        raise failed[0]
