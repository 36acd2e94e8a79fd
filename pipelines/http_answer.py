"""What our HTTP clients need of an answer: all of it within its time, and how long the server asks us to wait."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

_KEPT = ("Date", "Retry-After")


class TooLongError(Exception):
    """The answer is longer than its reader takes."""


def whole_answer(
    client: httpx.Client,
    method: str,
    url: httpx.URL | str,
    *,
    within: timedelta,
    most_bytes: int | None = None,
    body: Mapping[str, Any],
) -> httpx.Response:
    """The answer to a request whose content is `body`, arguments of httpx such as `json`. Of its headers only those of
    time are kept.

    Raises TooLongError past `most_bytes`, httpx.ReadTimeout past `within`, and what httpx raises.
    """
    deadline = time.monotonic() + within.total_seconds()
    with client.stream(method, url, **body) as response:
        content = bytearray()
        for part in response.iter_bytes():
            content += part
            # httpx's own timeout starts anew with every byte.
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("the answer trickles in")
            if most_bytes is not None and len(content) > most_bytes:
                raise TooLongError
        kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
        return httpx.Response(response.status_code, headers=kept, content=bytes(content), request=response.request)


def retry_after(response: httpx.Response) -> timedelta:
    """How long the server asks us to wait, in seconds or until a date by its own clock; zero where it does not say."""
    said = response.headers.get("Retry-After", "").strip()
    if said.isdecimal():
        return timedelta(seconds=min(int(said), 10**9))
    try:
        until = parsedate_to_datetime(said)
        sent = response.headers.get("Date")
        now = parsedate_to_datetime(sent) if sent else datetime.now(UTC)
        return max(until - now, timedelta(0))
    except (TypeError, ValueError):
        return timedelta(0)
