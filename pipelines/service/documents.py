"""Answers rendered once and then served as bytes: with an ETag, compressed where that pays."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request, Response

from floorcast.units import format_time
from pipelines.service.board import Board

LARGE = 1024
"""Bytes from which a document is compressed too."""


@dataclass(frozen=True)
class Document:
    """A body in the encodings that it is served in."""

    body: bytes
    media_type: str
    tag: str
    zipped: bytes | None

    @classmethod
    def of(cls, body: bytes, media_type: str = "application/json") -> Document:
        """Of a body; the tag changes exactly when it does."""
        tag = hashlib.sha256(body).hexdigest()[:32]
        # The lock of the interpreter is free while it compresses. The time is left out, so that equal bodies are equal.
        zipped = gzip.compress(body, compresslevel=4, mtime=0) if len(body) >= LARGE else None
        return cls(body, media_type, tag, zipped)


class Documents:
    """The documents of the board as it is now. Each is rendered once, in a thread, however many ask for it at once."""

    def __init__(self) -> None:
        self._of: Board | None = None
        self._made: dict[str, tuple[object, asyncio.Task[Document]]] = {}

    async def get(
        self, board: Board, name: str, make: Callable[[Board], Document], *, lasting: object = None
    ) -> Document:
        """The document of that name, made by `make` unless there is one of this board, or of the same `lasting`: what
        it is made from, where that outlives a board."""
        if board is not self._of:
            self._of = board
            schedule = board.publication.schedule
            self._made = {key: made for key, made in self._made.items() if made[0] is schedule and schedule is not None}
        source = board if lasting is None else lasting
        made = self._made.get(name)
        if made is None or made[0] is not source or (made[1].done() and made[1].exception() is not None):
            made = source, asyncio.create_task(asyncio.to_thread(make, board))
            self._made[name] = made
        # A client that goes away must not take the document from the others who wait for it.
        return await asyncio.shield(made[1])


def respond(request: Request, document: Document, board: Board, *, vary: str = "accept-encoding") -> Response:
    """The document as this client takes it: compressed, or not at all where it has it."""
    zipped = document.zipped if "gzip" in request.headers.get("accept-encoding", "") else None
    etag = f'"{document.tag}{"-gzip" if zipped is not None else ""}"'
    headers = {
        "etag": etag,
        # Kept by the client alone, and asked about each time.
        "cache-control": "private, no-cache",
        "vary": vary,
        "floorcast-validity": board.publication.validity(board.now),
        "floorcast-decided-at": format_time(board.now),
    }
    if board.publication.schedule is not None:
        headers["floorcast-version"] = str(board.publication.schedule.version)
    known = request.headers.get("if-none-match")
    if known is not None and (
        known.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in known.split(","))
    ):
        return Response(status_code=304, headers=headers)
    if zipped is not None:
        headers["content-encoding"] = "gzip"
    return Response(document.body if zipped is None else zipped, headers=headers, media_type=document.media_type)
