"""What stands before the application: who may ask, how often, how much, and for how long."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from floorcast.service import is_loopback
from pipelines.service.problems import problem

OPEN = frozenset({"/healthz", "/readyz"})
"""Answered without a token and at any rate: probes have none, and must not fail for what others do."""
LONGEST_URL = 2048
LARGEST_HEAD = 16 * 1024
MOST_CLIENTS = 4096

SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Plotly styles what it draws inline; scripts are files of the site's own.
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        b"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)


class Rates:
    """A token bucket for each client address: `per_s` requests a second, and as many at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._burst = max(per_s, 1.0)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now_s: float) -> float:
        """Seconds until the client may ask again; 0 takes one of its requests."""
        left, since = self._left.pop(client, (self._burst, now_s))
        left = min(left + (now_s - since) * self._per_s, self._burst)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now_s)
        if len(self._left) > MOST_CLIENTS:
            # Whoever was silent for longest has a full bucket anyway, or is one of too many to tell apart.
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        hosts: Iterable[str],
        token: Callable[[], str | None],
        demand_token: bool,
        max_request_bytes: int,
        requests_per_s: float,
        timeout_s: float,
    ) -> None:
        self._app = app
        local = is_loopback(host)
        # A page of another site that has its own name resolve to this machine still sends its own name.
        known = {name.lower() for name in hosts}
        self._names = known | {"localhost", "127.0.0.1", "[::1]", host.lower()} if local else known
        self._token = token
        self._demanded = demand_token or not local
        self._max_bytes = max_request_bytes
        self._rates = Rates(requests_per_s)
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *SECURITY]
            await send(message)

        refused = self._refuse(scope) or await self._take_body(scope, receive)
        # An answer to HEAD is that to GET; the server leaves the body out.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        try:
            async with asyncio.timeout(self._timeout_s):
                await (refused or self._app)(asked, receive, secured)
        except TimeoutError:
            # One who does not take the answer is cut off by the server.
            if not started:
                late = problem(503, f"no answer within {self._timeout_s:g} s", remedy="ask again later")
                await late(scope, receive, secured)

    def _refuse(self, scope: Scope) -> Response | None:
        """The answer to a request that is not let through."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_URL:
            return problem(414, f"the URL is longer than {LONGEST_URL} bytes")
        if sum(len(name) + len(text) for name, text in scope["headers"]) > LARGEST_HEAD:
            return problem(431, f"the request's head is larger than {LARGEST_HEAD} bytes")
        name = headers.get(b"host", b"").decode("latin-1").lower()
        bare = name if name.endswith("]") else name.rpartition(":")[0] or name
        if self._names and bare not in self._names:
            return problem(
                421,
                "this service does not answer to that host name",
                where=f"Host: {name}",
                remedy="ask for it by its address, or list the name under `service.hosts`",
            )
        if scope["path"] in OPEN:
            return None
        client = (scope.get("client") or ("",))[0]
        wait_s = self._rates.wait(client, time.monotonic())
        if wait_s:
            seconds = str(math.ceil(wait_s))
            remedy = "ask less often, or raise `service.requests_per_s`"
            return problem(429, "too many requests", remedy=remedy, headers={"retry-after": seconds})
        return self._unknown(headers)

    def _unknown(self, headers: dict[bytes, bytes]) -> Response | None:
        token = self._token()
        if token is None:
            if not self._demanded:
                return None
            return problem(503, "no token is set", remedy="write it into `service.token_file`, or set its variable")
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # Compared in a time that does not depend on where they differ.
        right = hmac.compare_digest(given.strip(), token.encode())
        if right and scheme.lower() == b"bearer":
            return None
        what = "the token is wrong" if given else "a token is needed"
        remedy = "send `Authorization: Bearer TOKEN`"
        return problem(401, what, remedy=remedy, headers={"www-authenticate": 'Bearer realm="floorcast"'})

    async def _take_body(self, scope: Scope, receive: Receive) -> Response | None:
        """Nothing reads a body here: one that is small is taken and dropped, a larger one refused."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if int(length) > self._max_bytes:
            return self._too_large()
        if length == b"0" and b"transfer-encoding" not in headers:
            return None
        taken, more = 0, True
        try:
            async with asyncio.timeout(self._timeout_s):
                while more and taken <= self._max_bytes:
                    message = await receive()
                    taken += len(message.get("body", b""))
                    more = message.get("more_body", False)
        except TimeoutError:
            what = f"the request's body did not come within {self._timeout_s:g} s"
            return problem(408, what, remedy="send no body", headers={"connection": "close"})
        return self._too_large() if taken > self._max_bytes else None

    def _too_large(self) -> Response:
        what = f"the request is larger than {self._max_bytes} bytes"
        return problem(413, what, remedy="send no body", headers={"connection": "close"})
