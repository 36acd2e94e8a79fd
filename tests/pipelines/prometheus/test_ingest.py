"""The live source from the real server into the store, through the real command."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.project import Project
from pipelines.stages.ingest import IngestResult, ingest
from store.connection import open_store
from store.demand import read_demand
from store.watermarks import read_watermark

pytestmark = pytest.mark.server

FLOORCAST = Path(sys.executable).with_name("floorcast")
MODELS = {"chat": "llama-70b", "steady": "qwen-8b", "idle": "idle-model"}


@pytest.fixture(scope="session")
def make_project(write_project: Any) -> Callable[..., Project]:
    """`make_project(folder, url, **source)`."""
    usual = {"history": "3d", "chunk": "3h"}
    return lambda folder, url, **keys: write_project(folder, MODELS, url=url, **usual | keys)


def stored(project: Project) -> tuple[pl.DataFrame, datetime | None]:
    with open_store(project.store_path) as store:
        return read_demand(store), read_watermark(store, "prod")


def live(project: Project, now: datetime) -> Any:
    result = ingest(project, now)
    assert isinstance(result, IngestResult)
    return result.sources[0]


def test_an_ingest_goes_on_where_the_last_one_stopped(
    tmp_path: Path, world: Any, prometheus: str, make_project: Any
) -> None:
    at_once = make_project(tmp_path / "at-once", prometheus)
    live(at_once, world.end)
    in_parts = make_project(tmp_path / "in-parts", prometheus)
    first = live(in_parts, world.end - timedelta(hours=7))
    second = live(in_parts, world.end)
    assert 0 < second.rows < first.rows / 2, "the second reads what came since, and the chunk before it"
    assert second.reopened_steps == 0
    for ours, other in zip(stored(in_parts), stored(at_once), strict=True):
        assert ours.equals(other) if isinstance(ours, pl.DataFrame) else ours == other


def test_late_data_reopen_the_steps_that_are_young_enough(
    tmp_path: Path, world: Any, prometheus: str, make_project: Any
) -> None:
    project = make_project(tmp_path, prometheus)
    now = world.end - timedelta(hours=7)
    live(project, now)
    with open_store(project.store_path) as store, store.transaction():
        store.execute(
            "UPDATE demand SET tokens_in = tokens_in / 2 WHERE step_start >= $late AND tokens_in > 0",
            {"late": now - timedelta(minutes=12)},
        )
    assert live(project, now + timedelta(minutes=5)).reopened_steps > 0
    undisturbed = make_project(tmp_path / "undisturbed", prometheus)
    live(undisturbed, now + timedelta(minutes=5))
    assert stored(project)[0].equals(stored(undisturbed)[0])


def test_the_newest_step_waits_until_each_replica_was_scraped_after_it(
    tmp_path: Path, world: Any, prometheus: str, make_project: Any
) -> None:
    """Seconds after a step's end some replicas have been scraped and some have not."""
    project = make_project(tmp_path, prometheus, history="1h")
    for run in range(4):
        now = world.end - timedelta(hours=7) + run * timedelta(minutes=5, seconds=5)
        assert live(project, now).reopened_steps == 0
    undisturbed = make_project(tmp_path / "undisturbed", prometheus, history="1h")
    live(undisturbed, now + timedelta(hours=1))
    before_now = stored(undisturbed)[0].filter(pl.col("step_start") < now - timedelta(minutes=10))
    assert stored(project)[0].filter(pl.col("step_start") < now - timedelta(minutes=10)).equals(before_now)


class Gate(ThreadingHTTPServer):
    """Before the server: passes on so many requests, and then tells `reached` and may hold back the rest."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        self.upstream, self.url = upstream, f"http://127.0.0.1:{self.server_port}"
        self.lock, self.reached, self.opened = threading.Lock(), threading.Event(), threading.Event()
        self.left = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error."""


class Passing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        gate = self.server
        assert isinstance(gate, Gate)
        form = self.rfile.read(int(self.headers["content-length"]))
        with gate.lock:
            gate.left -= 1
            if gate.left < 0:
                gate.reached.set()
        if gate.reached.is_set():
            gate.opened.wait()
        kind = {"content-type": "application/x-www-form-urlencoded"}
        body = httpx.post(gate.upstream + self.path, content=form, headers=kind, timeout=30).content
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing of it."""


@pytest.fixture
def gate(prometheus: str) -> Iterator[Gate]:
    with Gate(prometheus) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.opened.set()
        server.shutdown()
        thread.join()


def test_killed_at_many_moments_an_ingest_resumes_to_what_an_undisturbed_one_stores(
    tmp_path: Path, world: Any, prometheus: str, gate: Gate, make_project: Any
) -> None:
    """Each is killed some of the 24 chunks on: in turn while it waits for the server, and while it goes on."""
    keys = {"history": "16h", "chunk": "40m"}
    undisturbed = make_project(tmp_path / "undisturbed", prometheus, **keys)
    live(undisturbed, world.end)
    project = make_project(tmp_path / "killed", gate.url, **keys)
    # Processes that need not import everything first, which takes longer than the ingest.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pipelines.stages.ingest"])
    moments = random.Random(20)
    marks: dict[bool, list[datetime | None]] = {True: [], False: []}
    for waits in [True, False] * 5:
        gate.reached.clear()
        gate.opened.clear()
        # A run looks back first (up to 20 requests); a chunk is 12. Those that wait have stored one to three new ones.
        gate.left = moments.randint(27, 43) if waits else moments.randint(1, 27)
        process = processes.Process(target=ingest, args=(project, world.end))
        process.start()
        assert gate.reached.wait(60)
        if not waits:
            gate.opened.set()
            time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.join()
        gate.opened.set()
        assert process.exitcode == -signal.SIGKILL, "it was still at work"
        if project.store_path.exists():
            marks[waits].append(stored(project)[1])
    for seen in ([mark for mark in of_kind if mark is not None] for of_kind in marks.values()):
        assert seen == sorted(seen), "a watermark never goes back"
        assert len(set(seen)) >= 4, "what was read before is stored"
        assert seen[-1] < stored(undisturbed)[1]
    command = [FLOORCAST, "ingest", "--config", project.file, "--now", world.end.isoformat(), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["sources"][0]["source"] == "prod"
    assert_frame_equal(stored(project)[0], stored(undisturbed)[0])


def test_a_server_that_is_gone_fails_the_ingest_and_loses_nothing(
    tmp_path: Path, world: Any, prometheus: str, make_project: Any
) -> None:
    project = make_project(tmp_path, prometheus, history="6h")
    live(project, world.end - timedelta(hours=7))
    before = stored(project)
    gone = make_project(tmp_path, "http://127.0.0.1:9", history="6h", timeout="1s")
    command = [FLOORCAST, "ingest", "--config", gone.file, "--now", world.end.isoformat()]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 3
    assert "127.0.0.1:9" in failed.stderr
    assert "remedy" in failed.stderr
    assert stored(project)[0].equals(before[0])
    assert stored(project)[1] == before[1]
