"""What a source's `url` may be, and that neither an error nor `check` repeats a secret that it holds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from floorcast.errors import ConfigError, DataError
from pipelines.sources.prometheus.client import PrometheusClient, address

SECRETS = ("s3c", "ret", "12345", "678", "SECRETKEY")

UNCERTAIN = [
    "http://admin:s3c/ret@h",
    "http://admin:12345/678@h",
    "http://admin:s3c@ret@h",
    "http://admin:s3c:ret@h",
    "http://admin:s3c?ret@h",
    "http://admin:s3c#ret@h",
    "http://admin:12345/678@h:9090/prometheus",
    "http://h:9090/?authKey=SECRETKEY",
    "http://h:9090/prometheus#SECRETKEY",
    "http://h:s3cret/prometheus",
    "http://[s3cret]:9090",
    "http://admin:s3c@h:12345678",
    "http://admin:s3c@ret\u2488com",
]


@pytest.mark.parametrize("url", UNCERTAIN)
def test_a_url_that_may_hold_a_secret_in_another_place_is_refused_and_not_repeated(make_source: Any, url: str) -> None:
    with pytest.raises(ConfigError, match="the URL cannot be used") as caught:
        PrometheusClient(make_source(url))
    said = str(caught.value) + repr(caught.value) + str(caught.value.__cause__)
    assert not [secret for secret in SECRETS if secret in said]
    assert "`basic_auth`" in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("http://h", "http://h"),
        ("https://me:s3c%2Fret@mimir.example:9009/prometheus/", "https://mimir.example:9009/prometheus/"),
        ("http://token@h:9090", "http://h:9090"),
        ("http://me:s3c@[::1]:9090/select/0:1/prometheus", "http://[::1]:9090/select/0:1/prometheus"),
    ],
)
def test_the_address_is_the_url_without_user_and_password(make_source: Any, url: str, bare: str) -> None:
    assert address(make_source(url)) == bare


class _Refusing(BaseHTTPRequestHandler):
    """Answers 405, and remembers who asked."""

    asked: list[str | None]

    def do_POST(self) -> None:
        self.asked.append(self.headers["Authorization"])
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(405)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keeps quiet."""


@pytest.fixture
def reads_only() -> Iterator[HTTPServer]:
    """A proxy that lets only GET through."""
    _Refusing.asked = []
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_user_and_password_of_a_url_are_sent_and_not_shown(make_source: Any, reads_only: HTTPServer) -> None:
    """Unquoted; `basic_auth` goes before them. What is refused as a POST says so."""
    url = f"http://me:s3c%2Fret@127.0.0.1:{reads_only.server_port}"
    for keys in ({}, {"basic_auth": {"username": "you", "password": "other"}}):
        with PrometheusClient(make_source(url, **keys)) as client, pytest.raises(DataError) as caught:
            client.samples("up", end=datetime(2026, 11, 1, tzinfo=UTC), span=timedelta(minutes=1))
        assert "queries may not be posted to the URL (405 at /api/v1/query)" in caught.value.what
        assert "POST" in caught.value.remedy
        assert not [secret for secret in (*SECRETS, "me:") if secret in str(caught.value)]
    sent = [b64encode(login).decode() for login in (b"me:s3c/ret", b"you:other")]
    assert _Refusing.asked == [f"Basic {one}" for one in sent]
