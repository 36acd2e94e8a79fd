"""HTTPS in front of the stand-in: tokens, and what goes wrong between a client and a server."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml


class Wire:
    """Serves an `ApiServer` on a free port of loopback, and again on the same port after `stop`."""

    def __init__(self, api: Any, standin: Any, certificate: str, key: str) -> None:
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self._handler = type("Handler", (_Handler,), {"api": api, "standin": standin})
        self._server: _Server | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), self._handler)
        self._server.tls = self._tls
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The handshake in the connection's own thread: one that hangs holds up no other.
        try:
            with self.tls.wrap_socket(request, server_side=True) as secure:
                secure.settimeout(30)
                super().finish_request(secure, client_address)
        except (OSError, ssl.SSLError):
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Any
    standin: Any

    def log_message(self, format: str, *args: Any) -> None: ...

    def _serve(self) -> None:
        api, state = self.api, self.api.state
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        url = urlsplit(self.path)
        token = (self.headers.get("Authorization") or "").partition(" ")[2]
        verb = self.command.lower()
        request = self.standin.Request(
            verb=verb,
            path=url.path,
            query=parse_qs(url.query, keep_blank_values=True),
            content_type=self.headers.get("Content-Type"),
            body=yaml.safe_load(raw) if raw else None,
            user=state.tokens.get(token),
        )
        with api.lock:
            state.requests.append(request)
            fault = next((one for one in state.faults if one.verb in (None, verb)), None)
            if fault is not None:
                state.faults.remove(fault)
        if verb not in ("get", "patch"):
            state.improper.append(f"{self.command} {self.path}")
            self._send(405, b"{}")
            return
        if fault is not None and not self._spoil(fault, request):
            return
        try:
            code, document, headers = 200, api.answer(request), {}
        except self.standin.RefusalError as refusal:
            code, document, headers = refusal.code, refusal.status, refusal.headers
        request.code = code
        body = json.dumps(document).encode()
        if fault is not None and fault.what == "lost":
            self._drop()
        elif fault is not None and fault.what == "cut":
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self._drop()
        else:
            self._send(code, body, headers)

    do_GET = do_PATCH = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def _spoil(self, fault: Any, request: Any) -> bool:
        """Whether the request is still to be done."""
        headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
        if fault.call is not None:
            fault.call()
        if fault.what == "slow":
            time.sleep(fault.seconds)
        elif fault.what == "status":
            status = self.standin.RefusalError(
                fault.code, "Unavailable", "the server is currently unable to handle the request"
            ).status
            request.code = fault.code
            self._send(fault.code, json.dumps(status).encode(), headers)
        elif fault.what == "plain":
            request.code = fault.code
            text = b"Too many requests, please try again later.\n"
            self._send(fault.code, text, headers, content_type="text/plain; charset=utf-8")
        elif fault.what == "html":
            self._send(200, b"<html>please log in</html>", {}, content_type="text/html")
        elif fault.what == "drop":
            self._drop()
        return fault.what in ("slow", "lost", "cut", "call")

    def _send(
        self, code: int, body: bytes, headers: dict[str, str] | None = None, *, content_type: str = "application/json"
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drop(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
