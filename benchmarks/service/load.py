"""Requests at a steady rate, however slow the answers are, and how long each took from when it was due.

A client that waits for an answer before it asks again asks less the slower the server is, and so never sees the worst.
Here each request has its time, and what it waits for a free connection counts too.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np

CONNECTIONS = 64


@dataclass(frozen=True)
class Answers:
    """Seconds of each request, from when it was due to the last byte of its answer, and those that went wrong."""

    seconds: np.ndarray
    errors: int

    def quantile_ms(self, share: float) -> float:
        return float(np.quantile(self.seconds, share) * 1000)


async def ask(address: tuple[str, int], path: str, *, per_s: float, for_s: float, size: int) -> Answers:
    """GET `path` at that rate; an answer other than 200 with a body of `size` bytes is an error."""
    host, port = address
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n\r\n".encode()
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    opened = [await asyncio.open_connection(host, port, limit=2**20) for _ in range(CONNECTIONS)]
    for connection in opened:
        free.put_nowait(connection)
    total = int(per_s * for_s)
    taken, errors = np.full(total, np.nan), 0
    start = time.perf_counter() + 0.1

    async def one(number: int) -> None:
        nonlocal errors
        due = start + number / per_s
        connection = await free.get()
        try:
            reader, writer = connection
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            length = int(fields[b"content-length"])
            await reader.readexactly(length)
            errors += not head.startswith(b"HTTP/1.1 200 ") or length != size
        except (OSError, asyncio.IncompleteReadError, KeyError):
            errors += 1
            connection = await asyncio.open_connection(host, port, limit=2**20)
            opened.append(connection)
        taken[number] = time.perf_counter() - due
        free.put_nowait(connection)

    pending = []
    for number in range(total):
        await asyncio.sleep(max(start + number / per_s - time.perf_counter(), 0))
        pending.append(asyncio.create_task(one(number)))
    await asyncio.gather(*pending)
    for _, writer in opened:
        writer.close()
    return Answers(taken, errors)
