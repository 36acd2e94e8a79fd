"""The process: the loop, what serves it, and its end."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from floorcast.errors import ConfigError
from floorcast.units import format_duration
from pipelines.project import Project
from pipelines.publishers.held import DECISIONS
from pipelines.service.api import create_app
from pipelines.service.external_scaler import Tls, start_scaler
from pipelines.service.loop import Loop
from pipelines.service.memory import FILE
from pipelines.service.tokens import token_from
from pipelines.service.web import WebServer

LOCK = "lock"
_LOOK_S = 0.5
"""How often the main thread looks whether the loop still runs."""
_log = logging.getLogger(__name__)


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
        _tidy(folder)
        yield
    finally:
        os.close(descriptor)


def _tidy(folder: Path) -> None:
    """Remove what a process that was killed left half written. Only for who holds the folder."""
    for name in (FILE, DECISIONS):
        for left in folder.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                left.unlink()


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
    """Decide and serve until told to stop; then let what is under way end, for as long as a request may take.

    What ends the loop ends the process with it. Raises ConfigError where a port cannot be listened on.
    """
    project = loop.project
    settings = project.config.service
    loop.publishing.begin(project)
    # Nothing is served before something is decided.
    loop.once_saved()
    with ExitStack() as serving:
        token = token_from(_path(project, settings.token_file), settings.token_env, os.environ)
        web = WebServer(create_app(loop.board, settings, site=project.site, token=token), settings)
        serving.callback(web.stop, settings.timeout.total_seconds() + 1)
        if settings.grpc_port is not None:
            scaler = start_scaler(loop.board, f"{settings.host}:{settings.grpc_port}", tls=_tls(project))
            serving.callback(scaler.stop)
            _log.info("KEDA's external scaler listens on %s:%d", settings.host, scaler.port)
        web.start()
        _log.info("listening on %s; a tick each %s", web.address, format_duration(settings.tick))
        _tick(loop, stop)
        _log.info("ending: no more requests are taken, those under way are answered")
    loop.publishing.end(settings.timeout.total_seconds())


def _tick(loop: Loop, stop: threading.Event) -> None:
    """Until told to stop, in a thread of its own: Python delivers signals to the main thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="ticks") as executor:
        ran = executor.submit(loop.run, stop)
        while not stop.wait(_LOOK_S) and not ran.done():
            pass
        ran.result()


def _tls(project: Project) -> Tls | None:
    given = project.config.service.grpc_tls
    if given is None:
        return None
    return Tls(project.base / given.cert, project.base / given.key, _path(project, given.client_ca))


def _path(project: Project, given: str | None) -> Path | None:
    return None if given is None else project.base / given
