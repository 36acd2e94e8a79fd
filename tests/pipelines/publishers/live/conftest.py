from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from floorcast.config import Config
from floorcast.parsing import parse_config

FLEET = """\
mode: MODE
pools:
  chat-70b:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
  long-prefill:
    role: prefill
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 4800}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
  long-decode:
    role: decode
    gpu: {type: H100}
    capacity: {decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [chat-70b]}
  long: {pools: [long-prefill, long-decode]}
publishers:
"""

ConfigOf = Callable[..., Config]


@pytest.fixture(scope="session")
def config_of() -> ConfigOf:
    """The configuration of a unified pool and a prefill and decode pair, with these publishers, as lines of YAML."""

    def make(*publishers: str, mode: str = "apply") -> Config:
        text = FLEET.replace("MODE", mode) + "".join(f"  - {line}\n" for line in publishers)
        return parse_config(text, file="floorcast.yaml", environment={})

    return make


@dataclass
class Planner:
    """A server that answers as the control API of NVIDIA Dynamo's planner does, faults on demand.

    `answers` are given first, one for each request: a status, with a body and headers; a number of seconds to be silent
    for; `drop` closes the connection; `lost` does what is asked and drops the answer; `trickle` sends the body a byte
    at a time; `drip` the head, for three seconds, and `leak` for a minute.
    """

    mode: str
    minimums: dict[str, int]
    budget: int = -1
    answers: list[Any] = field(default_factory=list)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self) -> dict[str, Any]:
        return {"mode": self.mode, **self.minimums, "min_gpu_budget": -1, "max_gpu_budget": self.budget}

    def patch(self, body: Any) -> tuple[int, dict[str, Any]]:
        """400 for what it does not know, 422 for what it will not have, as the planner's own checks."""
        known = {"min_endpoint", "prefill_min_endpoint", "decode_min_endpoint", "min_gpu_budget", "max_gpu_budget"}
        if not isinstance(body, dict) or not body or set(body) - known:
            return 400, {"error": "unknown or no field"}
        for name, value in body.items():
            least = 0 if name == "min_endpoint" else 1
            if type(value) is not int or value < least:
                return 422, {"error": f"{name} must be an integer of at least {least}"}
            if name not in self.minimums:
                return 422, {"error": f"{name} is not active in mode {self.mode}"}
        after = {**self.minimums, **body}
        if self.budget >= 0 and sum(after.values()) > self.budget:
            return 422, {"error": f"requires {sum(after.values())} GPUs, exceeding max_gpu_budget={self.budget}"}
        self.minimums = after
        return 200, self.get()


def handler_of(planner: Planner) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(None)

        def do_PATCH(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            with planner.lock:
                planner.requests.append((self.command, self.path, body))
                fault = planner.answers.pop(0) if planner.answers else None
                if isinstance(fault, float):
                    time.sleep(fault)
                if fault == "drop":
                    self.close_connection = True
                    return
                headers: dict[str, str] = {}
                if isinstance(fault, tuple):
                    status, document, headers = fault
                elif self.path != "/v1/min-endpoints":
                    status, document = 404, {"error": "no such page"}
                else:
                    status, document = (200, planner.get()) if self.command == "GET" else planner.patch(body)
                if fault == "lost":
                    self.close_connection = True
                    return
            text = document if isinstance(document, bytes) else json.dumps(document).encode()
            try:
                if fault in ("drip", "leak"):
                    for byte in b"HTTP/1.1 200 OK\r\nX: " + (30 if fault == "drip" else 600) * b"x" + b"\r\n":
                        self.wfile.write(bytes([byte]))
                        time.sleep(0.06 if fault == "drip" else 0.1)
                    self.wfile.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                for byte in text if fault == "trickle" else [text]:
                    self.wfile.write(bytes([byte]) if isinstance(byte, int) else byte)
                    if fault == "trickle":
                        time.sleep(0.1)
            except OSError:
                self.close_connection = True

    return Handler


@pytest.fixture
def planner_of() -> Iterator[Callable[..., Planner]]:
    servers: list[ThreadingHTTPServer] = []

    def make(mode: str, **minimums: int) -> Planner:
        planner = Planner(mode, minimums)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(planner))
        server.daemon_threads = True
        servers.append(server)
        planner.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return planner

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], bool]], None]:
    def wait(true: Callable[[], bool]) -> None:
        """Until it is, for half a minute at most."""
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait
