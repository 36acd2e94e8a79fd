"""The HTTP server: uvicorn in a thread of its own, so that no client can hold up a tick."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from floorcast.errors import ConfigError
from floorcast.service import Service
from pipelines.service.guard import LARGEST_HEAD

MOST_CONNECTIONS = 512


class Impatient(H11Protocol):
    """Cuts off a client that does not send its request, or does not take its answer, while it is looked at twice.

    uvicorn itself is patient with both. The time between the looks is the configuration's `timeout_notify`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answered = 0
        self._stuck_at: int | None = None
        self._look_again()

    def on_response_complete(self) -> None:
        self._answered += 1
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        self._look = self.loop.call_later(self.config.timeout_notify, self._look_at_it)

    def _look_at_it(self) -> None:
        # Between two requests uvicorn's own timer runs; everything else is owed by the client, or by the guard.
        idle = self.timeout_keep_alive_task is not None and not self.transport.get_write_buffer_size()
        if not idle and self._stuck_at == self._answered:
            self.transport.abort()
            return
        self._stuck_at = None if idle else self._answered
        self._look_again()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ConfigError where it cannot."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, number)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(1024)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            where="service",
            remedy="another process may hold the port: end it, or set `service.port`",
        ) from None
    made.setblocking(False)
    return made


class WebServer:
    """An application served in a thread, from `start` to `stop`."""

    def __init__(self, app: FastAPI, settings: Service) -> None:
        """Listens at once. Raises ConfigError where the port is taken."""
        self._socket = listen(settings.host, settings.port)
        timeout_s = settings.timeout.total_seconds()
        options: dict[str, Any] = {"timeout_notify": timeout_s, "timeout_graceful_shutdown": int(timeout_s) + 1}
        config = uvicorn.Config(
            app,
            http=Impatient,
            ws="none",
            lifespan="off",
            # Logging is the process's own; requests are not logged, so no token can be.
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            **options,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def address(self) -> str:
        """As in http://127.0.0.1:8480."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self) -> None:
        # What is loaded by now stays. Looked through by each full collection of garbage, it would hold up all answers.
        gc.collect()
        gc.freeze()
        self._thread.start()

    def stop(self, within_s: float) -> bool:
        """Takes no more requests and lets those in flight finish; whether they did within that time."""
        self._server.should_exit = True
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))
