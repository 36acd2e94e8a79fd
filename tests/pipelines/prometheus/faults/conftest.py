"""A TCP proxy that breaks what passes through it, and certificates for both of its sides."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest


class Proxy:
    """Between client and server. Each request takes the next of `faults`, or passes when there are none."""

    def __init__(self, upstream: str, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = httpx.URL(upstream)
        self.faults: list[str] = []
        self.always: str | None = None
        self.requests: list[bytes] = []
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, plain: socket.socket) -> None:
        try:
            client = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
        except OSError:
            plain.close()
            return
        with client:
            try:
                request = self._request(client)
            except OSError:
                return
            if not request:
                return
            with self._lock:
                self.requests.append(request)
                fault = self.always or (self.faults.pop(0) if self.faults else "pass")
            try:
                self._answer(client, request, fault)
            except OSError:
                return

    @staticmethod
    def _request(client: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            part = client.recv(65536)
            if not part:
                return b""
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
        while len(body) < length:
            body += client.recv(65536)
        return head + b"\r\n\r\n" + body

    def _pass(self, request: bytes) -> bytes:
        """The body of what the server answers."""
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return httpx.post(self.upstream.join(path), content=body, headers=kind, timeout=30).content

    def _answer(self, client: socket.socket, request: bytes, fault: str) -> None:
        if fault == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault == "delay":
            time.sleep(1.5)
        elif fault == "not http":
            client.sendall(b"\x00\xffSSH-2.0-OpenSSH\r\n\r\n")
        elif fault[:3].isdigit():
            client.sendall(_refusal(fault, request))
        elif fault in CANNED:
            client.sendall(_http(200, CANNED[fault]))
        elif fault != "hang up":
            self._garble(client, self._pass(request), fault)

    @staticmethod
    def _garble(client: socket.socket, body: bytes, fault: str) -> None:
        if fault in ADDED:
            body = json.dumps(json.loads(body) | ADDED[fault]).encode()
        if fault == "cut json":
            client.sendall(_http(200, body[: len(body) // 2]))
        elif fault == "truncate":
            client.sendall(_http(200, body)[: -len(body) // 2])
        elif fault == "trickle":
            for byte in _http(200, body):
                client.sendall(bytes([byte]))
                time.sleep(0.01)
        else:
            client.sendall(_http(200, body))


CANNED = {
    "html": b"<html><body>Sign in</body></html>",
    "status error": b'{"status": "error", "errorType": "internal", "error": "compaction failed"}',
    "vector": b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
    "other json": b'["nothing", "of", "the", "kind"]',
    "empty body": b"",
    "text value": b'{"status": "success", "data": {"resultType": "matrix", "result": '
    b'[{"metric": {}, "values": [[1, "many"]]}]}}',
}
ADVICE = ["PromQL info: metric might not be a counter"]
ADDED = {
    "warnings": {"warnings": ["store gateway down"]},
    "isPartial": {"isPartial": True},
    "advice": {"warnings": ADVICE, "infos": ADVICE},
}
DATES = {"date": "Wed, 05 Mar 2025 10:00:01 GMT", "far date": "Wed, 05 Mar 2025 11:30:00 GMT"}


def _refusal(fault: str, request: bytes) -> bytes:
    """`503`, which repeats the credentials it was sent, or `503 retry 7`, which says when to come again."""
    status, _, asked = fault.partition(" retry ")
    if asked:
        head = f"Date: Wed, 05 Mar 2025 10:00:00 GMT\r\nRetry-After: {DATES.get(asked, asked)}\r\n"
        return _http(int(status), b'{"error": "slow down"}', head)
    told = b" ".join(h for h in request.split(b"\r\n") if h.startswith(b"authorization"))
    return _http(int(status), json.dumps({"status": "error", "error": f"told {told.decode()}"}).encode())


def _http(status: int, body: bytes, head: str = "") -> bytes:
    head += "Location: https://login.example/\r\n" if status == 302 else ""
    return f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


@pytest.fixture
def proxy(prometheus: str) -> Iterator[Proxy]:
    between = Proxy(prometheus)
    yield between
    between.close()


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: who signs, and a certificate with its key that he signed for 127.0.0.1."""

    ca: str
    cert: str
    key: str


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory, tools: Any) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    tools.needs("openssl")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=signer", "-days", "2")
    openssl("req", *new, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl("x509", "-req", "-in", "request.pem", *signing, "-out", "cert.pem")
    return Certificates(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))


@pytest.fixture
def tls_proxy(prometheus: str, certificates: Certificates) -> Iterator[Proxy]:
    """A proxy that talks TLS, and only to those whose certificate was signed by the same."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca)
    context.load_cert_chain(certificates.cert, certificates.key)
    context.verify_mode = ssl.CERT_REQUIRED
    between = Proxy(prometheus, context)
    yield between
    between.close()
