"""The service's HTTP side over a board that is replaced each tick, until standard input closes.

`python -m benchmarks.service.server POOLS SITE` prints its port.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from benchmarks.service.boards import TICK, board, schedule
from floorcast.service import Service
from pipelines.service.api import create_app
from pipelines.service.web import WebServer

EVERY_S = TICK.total_seconds()


def main() -> None:
    pools, site = int(sys.argv[1]), Path(sys.argv[2])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    published = schedule(pools)
    boards = [board(published, 1)]
    settings = Service(port=0, requests_per_s=1e6)
    app = create_app(lambda: boards[0], settings, site=site, token=lambda: None)
    web = WebServer(app, settings)
    web.start()
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(EVERY_S):
            boards[0] = board(published, boards[0].ticks + 1)

    ticking = threading.Thread(target=tick)
    ticking.start()
    sys.stdout.write(f"{web.address.rpartition(':')[2]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    ended.set()
    ticking.join()
    web.stop(within_s=10)


if __name__ == "__main__":
    main()
