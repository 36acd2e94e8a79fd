"""The service: `GET /v1/floors` under load beside a static file of the same size, a day of ticks in memory, and
a tick over as many pools.

The server has one core, the load another. Floors and file take turns of a tick each, so that both meet the same
disturbances.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import numpy as np

from benchmarks.report import parser, write
from benchmarks.service.load import Answers, ask
from benchmarks.service.memory import POOLS as POOLS_IN_MEMORY
from benchmarks.service.memory import growth_mb
from benchmarks.service.ticks import tick_ms

POOLS, PER_S, TURN_S, TURNS = 5000, 500.0, 15.0, 2
FLOORS, FILE = "/v1/floors", "/same-size.json"


def under_load() -> dict[str, Answers]:
    """All answers by path."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.service.server", str(POOLS), folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            if server.stdout is None or server.stdin is None:
                raise SystemExit("the server has no pipes")
            port = int(server.stdout.readline())
            url = f"http://127.0.0.1:{port}{FLOORS}"
            with urllib.request.urlopen(url) as answer:
                size = len(answer.read())
            (Path(folder) / FILE.strip("/")).write_bytes(b"x" * size)
            os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})
            found: dict[str, list[Answers]] = {FLOORS: [], FILE: []}
            for _ in range(TURNS):
                for path, answers in found.items():
                    turn = ask(("127.0.0.1", port), path, per_s=PER_S, for_s=TURN_S, size=size)
                    answers.append(asyncio.run(turn))
            server.stdin.close()
    return {
        path: Answers(np.concatenate([each.seconds for each in answers]), sum(each.errors for each in answers))
        for path, answers in found.items()
    }


def main() -> None:
    given = parser("service", __doc__ or "").parse_args()
    answers = under_load()
    floors, file = answers[FLOORS], answers[FILE]
    growth, warm = growth_mb()
    write(
        "service",
        summary={
            "tick_ms_5000": tick_ms(POOLS),
            "p99_ms": floors.quantile_ms(0.99),
            "p99_static_ms": file.quantile_ms(0.99),
            "p99_ratio": floors.quantile_ms(0.99) / file.quantile_ms(0.99),
            "errors": floors.errors + file.errors,
            "memory_growth_mb": growth,
        },
        detail={
            "pools": POOLS,
            "requests_per_s": PER_S,
            "requests": {path: len(each.seconds) for path, each in answers.items()},
            "quantiles_ms": {
                path: {f"{share:g}": round(each.quantile_ms(share), 3) for share in (0.5, 0.9, 0.99, 0.999, 1)}
                for path, each in answers.items()
            },
            "memory_pools": POOLS_IN_MEMORY,
            "memory_warm_mb": round(warm, 1),
        },
        out=given.json,
    )


if __name__ == "__main__":
    main()
