"""What a day of ticks leaves in memory, with every answer asked for at each."""

from __future__ import annotations

import gc
from pathlib import Path

import httpx

from benchmarks.service.boards import TICK, board, schedule
from floorcast.service import Service
from pipelines.service.api import create_app
from pipelines.service.web import WebServer

POOLS = 100
TICKS = int(86_400 / TICK.total_seconds())
WARM = TICKS // 10
PATHS = ("/v1/floors", "/v1/decisions", "/v1/decisions/pool-0000", "/v1/publishers", "/metrics")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def growth_mb() -> tuple[float, float]:
    """Resident megabytes after a day's ticks above those after its first tenth, and the latter."""
    published = schedule(POOLS)
    boards = [board(published, 1)]
    settings = Service(port=0, requests_per_s=1e6)
    web = WebServer(create_app(lambda: boards[0], settings, site=Path("nowhere"), token=lambda: None), settings)
    web.start()
    warm = 0.0
    with httpx.Client(base_url=web.address, trust_env=False) as client:
        for ticks in range(2, TICKS + 2):
            boards[0] = board(published, ticks)
            client.get(PATHS[ticks % len(PATHS)]).raise_for_status()
            if ticks == WARM:
                gc.collect()
                warm = resident_mb()
    gc.collect()
    after = resident_mb()
    web.stop(within_s=10)
    return after - warm, warm
