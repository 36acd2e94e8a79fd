"""Who is let through, and what becomes of clients that ask for too much or take too long."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from floorcast.errors import ConfigError
from floorcast.service import Service, is_loopback
from pipelines.service.api import create_app
from pipelines.service.board import Board
from pipelines.service.guard import Rates
from pipelines.service.tokens import token_from
from pipelines.service.web import WebServer

LARGE = b"x" * 15_000_000
"""More than the buffers of a connection hold."""
TOKEN = "s3cret-token-of-the-service"


@pytest.fixture(scope="module")
def guarded(serving: Any, board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """On all addresses, with a token."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(board, folder / "site", token=TOKEN, settings={"host": "0.0.0.0"}) as running:
        running.client.base_url = f"http://127.0.0.1:{running.port}"
        yield running


@pytest.fixture(scope="module")
def hurried(serving: Any, board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Patient for two seconds."""
    site = tmp_path_factory.mktemp("site")
    (site / "large.html").write_bytes(LARGE)
    with serving(board, site, settings={"timeout": "2s", "max_request_bytes": 1024}) as running:
        yield running


def raw(served: Any, request: bytes, *, timeout_s: float = 10) -> bytes:
    """Everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=timeout_s) as client:
        client.sendall(request)
        received = b""
        while piece := client.recv(65536):
            received += piece
    return received


def status_of(served: Any, target: str, *, host: str | None = None) -> int:
    """Of a target sent byte for byte, as clients of good faith would not."""
    line = f"GET {target} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{served.port}'}\r\nConnection: close\r\n\r\n"
    return int(raw(served, line.encode("latin-1")).split(b" ", 2)[1])


class TestToken:
    def test_without_it_nothing_is_told_but_health(self, guarded: Any) -> None:
        for path in ("/v1/floors", "/v1/explain/chat-70b", "/metrics", "/openapi.json", "/", "/v1/nothing"):
            refused = guarded.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == 'Bearer realm="floorcast"'
            assert refused.json()["error"]["what"] == "a token is needed"
        assert guarded.get("/healthz").status_code == guarded.get("/readyz").status_code == 200

    @pytest.mark.parametrize(
        "given", [f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer", "bearer é"]
    )
    def test_a_wrong_one_is_refused(self, guarded: Any, given: str) -> None:
        refused = guarded.client.get("/v1/floors", headers={"authorization": given.encode("utf-8")})
        assert refused.status_code == 401
        assert TOKEN not in refused.text

    def test_the_right_one_is_let_through(self, guarded: Any) -> None:
        assert guarded.get("/v1/floors", authorization=f"Bearer {TOKEN}").json()["floors"]
        assert guarded.get("/metrics", authorization=f"bearer {TOKEN}").status_code == 200

    def test_a_rotated_one_takes_over_at_once(self, guarded: Any) -> None:
        guarded.token = "the-new-one"
        try:
            assert guarded.get("/v1/floors", authorization=f"Bearer {TOKEN}").status_code == 401
            assert guarded.get("/v1/floors", authorization="Bearer the-new-one").status_code == 200
        finally:
            guarded.token = TOKEN

    def test_where_it_is_lost_everybody_is_refused(self, guarded: Any) -> None:
        guarded.token = None
        try:
            assert guarded.get("/v1/floors", authorization=f"Bearer {TOKEN}").status_code == 503
            assert guarded.get("/v1/floors", authorization="Bearer").status_code == 503
            assert guarded.get("/v1/floors").json()["error"]["what"] == "no token is set"
        finally:
            guarded.token = TOKEN

    def test_other_addresses_than_the_loopback_are_not_listened_on_without_one(self, board: Board) -> None:
        with pytest.raises(ConfigError, match=r"listening on 0\.0\.0\.0 demands a bearer token"):
            create_app(lambda: board, Service(host="0.0.0.0"), site=Path("site"), token=lambda: None)

    def test_a_named_file_without_one_closes_the_loopback_too(self, serving: Any, board: Board, tmp_path: Path) -> None:
        with serving(board, tmp_path, settings={"token_file": "token"}) as running:
            assert running.get("/v1/floors").status_code == 503
            running.token = TOKEN
            assert running.get("/v1/floors").status_code == 401

    def test_is_read_again_when_its_file_changes(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        token = token_from(file, "FLOORCAST_TOKEN", {"FLOORCAST_TOKEN": "of the environment"})
        assert token() is None
        file.write_text("first\n")
        assert token() == "first"
        (tmp_path / "next").write_text("second\n")
        (tmp_path / "next").replace(file)
        assert token() == "second"
        file.unlink()
        assert token() == "second"
        file.write_text("   \n")
        assert token() is None

    def test_comes_from_the_environment_where_no_file_is_named(self) -> None:
        assert token_from(None, "OWN", {"OWN": " abc "})() == "abc"
        assert token_from(None, "OWN", {"OWN": ""})() is token_from(None, "OWN", {})() is None


class TestHost:
    def test_a_page_whose_name_resolves_to_the_loopback_gets_nothing(self, served: Any) -> None:
        names = ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", "localhost.evil.example:80")
        for name in names:
            assert status_of(served, "/v1/floors", host=name) == 421
            assert status_of(served, "/healthz", host=name) == 421

    def test_its_own_names_are_answered(self, served: Any) -> None:
        for name in ("localhost", "LOCALHOST:8480", "127.0.0.1", f"127.0.0.1:{served.port}", "[::1]", "[::1]:8480"):
            assert status_of(served, "/v1/floors", host=name) == 200

    def test_names_may_be_added(self, serving: Any, board: Board, tmp_path: Path) -> None:
        with serving(board, tmp_path, settings={"hosts": ["floors.example"]}) as running:
            assert status_of(running, "/v1/floors", host="floors.example:443") == 200
            assert status_of(running, "/v1/floors", host="other.example") == 421

    def test_elsewhere_any_name_will_do_since_the_token_is_not_known_to_a_page(self, guarded: Any) -> None:
        assert status_of(guarded, "/healthz", host="floorcast.llm.svc:8480") == 200

    @pytest.mark.parametrize(
        ("host", "local"),
        [
            ("127.0.0.1", True),
            ("127.8.8.8", True),
            ("localhost", True),
            ("::1", True),
            ("0.0.0.0", False),
            ("::", False),
            ("10.0.0.1", False),
            ("example.com", False),
            ("localhost.example.com", False),
        ],
    )
    def test_what_is_the_loopback(self, host: str, local: bool) -> None:
        assert is_loopback(host) is local


class TestPages:
    @pytest.fixture
    def site(self, served: Any) -> Iterator[Path]:
        site: Path = served.site
        (site.parent / "schedule.json").write_text("a secret")
        (site / "out.json").symlink_to("../schedule.json")
        (site / "above").symlink_to("..")
        (site / "inside.css").symlink_to("assets/site.css")
        (site / "loop").symlink_to("loop")
        (site / ".floorcast-site").touch()
        yield site
        for name in ("out.json", "above", "inside.css", "loop", ".floorcast-site"):
            (site / name).unlink()

    @pytest.mark.parametrize(
        "target",
        [
            "/../schedule.json",
            "/%2e%2e/schedule.json",
            "/..%2fschedule.json",
            "/%2e%2e%2fschedule.json",
            "/assets/../../schedule.json",
            "/assets/%2e%2e/%2e%2e/schedule.json",
            "/..%5cschedule.json",
            "/%252e%252e/schedule.json",
            "/%00",
            "/index.html%00.css",
            "/%c0%ae%c0%ae/schedule.json",
            "//etc/passwd",
            "/%2fetc%2fpasswd",
            "/etc/passwd",
            "/out.json",
            "/above/schedule.json",
            "/above/",
            "/loop",
            "/.floorcast-site",
            "/assets/",
            "/assets",
            "/assets/.",
            f"/{'a' * 300}",
            "/v1/floors/..%2f..%2fschedule.json",
            "http://127.0.0.1/../schedule.json",
        ],
    )
    def test_nothing_leads_out_of_the_folder_and_none_is_listed(self, served: Any, site: Path, target: str) -> None:
        line = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        head, _, body = raw(served, line.encode("latin-1")).partition(b"\r\n\r\n")
        assert int(head.split(b" ", 2)[1]) in {400, 404}
        assert b"secret" not in body
        assert b"root:" not in body

    def test_pages_are_served_with_tags_and_a_policy_for_what_they_may_load(self, served: Any, site: Path) -> None:
        page = served.get("/")
        assert page.text == "<!doctype html><title>Overview</title>"
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert served.get("/index.html", if_none_match=page.headers["etag"]).status_code == 304
        assert served.get("/", method="HEAD").headers["content-length"] == str(len(page.content))
        assert served.get("/inside.css").text == served.get("/assets/site.css").text == "body { margin: 0 }"

    def test_a_site_that_is_not_there_yet_is_served_once_it_is(
        self, serving: Any, board: Board, tmp_path: Path
    ) -> None:
        with serving(board, tmp_path / "site") as running:
            assert running.get("/").status_code == 404
            (tmp_path / "site").mkdir()
            (tmp_path / "site" / "index.html").write_text("here")
            assert running.get("/").text == "here"

    def test_what_may_not_be_read_is_not_there(self, served: Any, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (site / "closed").mkdir()
        (site / "closed" / "page.html").write_text("closed")
        real = os.stat

        def refuse(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
            if str(path).endswith("closed/page.html"):
                raise PermissionError
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "stat", refuse)
        assert served.get("/closed/page.html").status_code == 404


class TestLimits:
    def test_a_long_url_is_refused(self, served: Any) -> None:
        assert status_of(served, "/v1/floors?" + "a" * 2030) == 200
        assert status_of(served, "/v1/floors?" + "a" * 2049) == 414

    def test_a_large_head_is_refused(self, served: Any) -> None:
        request = (
            b"GET /v1/floors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n"
        )
        assert raw(served, request).startswith(b"HTTP/1.1 431 ")

    def test_a_small_body_is_dropped_and_a_large_one_refused(self, hurried: Any) -> None:
        assert hurried.client.request("GET", "/v1/floors", content=b"x" * 1024).status_code == 200
        refused = hurried.client.request("GET", "/v1/floors", content=b"x" * 1025)
        assert (refused.status_code, refused.json()["error"]["status"]) == (413, 413)
        pieces = hurried.client.request("GET", "/v1/floors", content=iter([b"x" * 600] * 3))
        assert pieces.status_code == 413
        assert hurried.client.request("GET", "/v1/floors", content=iter([b"x" * 600])).status_code == 200

    def test_one_who_asks_too_often_is_told_when_to_come_back(self, serving: Any, board: Board, tmp_path: Path) -> None:
        with serving(board, tmp_path, settings={"requests_per_s": 0.5}) as running:
            assert running.get("/v1/floors").status_code == 200
            refused = running.get("/v1/floors")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert refused.json()["error"]["remedy"] == "ask less often, or raise `service.requests_per_s`"
            assert running.get("/healthz").status_code == running.get("/readyz").status_code == 200

    def test_each_client_has_a_rate_of_its_own(self) -> None:
        rates = Rates(2)
        assert [rates.wait("a", 0.0) for _ in range(3)] == [0, 0, 0.5]
        assert rates.wait("b", 0.0) == 0
        assert rates.wait("a", 0.25) == 0.25
        assert rates.wait("a", 0.5) == 0
        assert rates.wait("a", 100.0) == rates.wait("a", 100.0) == 0
        assert rates.wait("a", 100.0) == 0.5

    def test_clients_without_number_do_not_fill_the_memory(self) -> None:
        rates = Rates(1)
        for client in range(10_000):
            rates.wait(str(client), 0.0)
        assert len(rates._left) == 4096


class TestSlowClients:
    def test_those_who_do_not_finish_the_head_are_cut_off(self, hurried: Any) -> None:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", hurried.port), timeout=10)) for _ in range(3)
            ]
            starts = (b"", b"GET /v1/fl", b"GET /v1/floors HTTP/1.1\r\nHost: localhost\r\n")
            for client, sent in zip(clients, starts, strict=True):
                client.sendall(sent)
            assert [client.recv(1) for client in clients] == [b"", b"", b""]

    def test_one_who_sends_a_byte_now_and_then_is_cut_off_too(self, hurried: Any) -> None:
        with socket.create_connection(("127.0.0.1", hurried.port), timeout=10) as client:
            client.sendall(b"GET /v1/floors HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            sent = 0
            with suppress(ConnectionError):
                while sent < 400:
                    client.sendall(b"x")
                    sent += 1
                    time.sleep(0.05)
            assert sent < 400

    def test_one_who_announces_a_body_and_does_not_send_it_is_told(self, hurried: Any) -> None:
        request = b"GET /v1/floors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"
        assert raw(hurried, request).startswith(b"HTTP/1.1 408 ")

    @pytest.mark.parametrize("path", ["/v1/decisions/chat-70b", "/large.html"])
    def test_one_who_does_not_take_the_answer_is_cut_off(
        self, hurried: Any, board: Board, path: str, until: Callable[..., None]
    ) -> None:
        """An answer from memory is in the server's buffer whole; of a file the next piece waits for room in it."""
        chat = replace(board.decisions["chat-70b"], words=LARGE.decode())
        hurried.board = replace(board, decisions={"chat-70b": chat})
        # Made once, however often one asked for it in vain before it was there.
        until(lambda: int(hurried.get(path, method="HEAD").headers["content-length"]) >= len(LARGE))
        hurried.client.close()
        hurried.__post_init__()
        connections = hurried.web._server.server_state.connections
        until(lambda: len(connections) == 0)
        with socket.create_connection(("127.0.0.1", hurried.port), timeout=10) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            until(lambda: len(connections) == 1)
            until(lambda: len(connections) == 0)

    def test_others_are_served_meanwhile(self, hurried: Any) -> None:
        stuck = [socket.create_connection(("127.0.0.1", hurried.port)) for _ in range(50)]
        try:
            for each in stuck:
                each.sendall(b"GET /v1/floors HTTP/1.1\r\n")
            assert hurried.get("/v1/floors").status_code == 200
        finally:
            for each in stuck:
                each.close()

    def test_more_connections_than_there_may_be_are_refused(self, served: Any) -> None:
        held = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(512)]
        try:
            assert served.get("/v1/floors", connection="close").status_code == 503
        finally:
            for each in held:
                each.close()


def test_the_board_is_replaced_while_it_is_read_and_every_answer_is_of_one_tick(served: Any) -> None:
    """All pools of a tick have the same floor, which is its version's: no answer mixes two."""
    ended = threading.Event()
    schedule = served.board.publication.schedule

    def tick() -> None:
        for number in range(1, 200):
            decisions = {name: replace(each, floor=number) for name, each in served.board.decisions.items()}
            publication = replace(served.board.publication, schedule=schedule.model_copy(update={"version": number}))
            served.board = replace(served.board, decisions=decisions, publication=publication)
            time.sleep(0.002)
        ended.set()

    ticking = threading.Thread(target=tick)
    ticking.start()
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    seen = set()
    while not ended.is_set():
        connection.request("GET", "/v1/floors")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        assert set(body["floors"].values()) == {body["version"]} == {int(answer.headers["floorcast-version"])}
        seen.add(body["version"])
    ticking.join()
    connection.close()
    assert len(seen) > 10


def test_a_port_that_is_taken_is_said_to_be(served: Any, board: Board) -> None:
    settings = Service(port=served.port)
    app = create_app(lambda: board, settings, site=Path("site"), token=lambda: None)
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{served.port}: Address already in use"):
        WebServer(app, settings)
