"""`floorcast cycle` as users run it: the Prefect flow, its failures, its death at any moment, and what it leaves."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.project import load_project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE, run_stage
from store.connection import open_store
from store.runs import list_runs

MOMENTS_S = ((0.0, 0.6), (0.7, 1.2), (1.3, 1.8))
"""Windows after the first stage began. With fits that stand, the seven stages take about two seconds."""


@pytest.fixture
def again(cycled, tmp_path):
    """A copy of the project after its first cycle."""
    folder = shutil.copytree(cycled[0], tmp_path / "again")
    shutil.rmtree(folder / "published" / ".prefect")
    return load_project(folder / "floorcast.yaml", environment={})


def published_bytes(project):
    return {
        str(path.relative_to(project.output)): path.read_bytes()
        for path in project.output.rglob("*")
        if path.is_file() and ".prefect" not in path.parts
    }


def test_the_first_cycle_of_a_project_runs_every_stage(cycled, now):
    folder, ran = cycled
    assert ran.code == 0, ran.err
    assert [line.split()[0] for line in ran.out.splitlines()] == list(CYCLE)
    project = load_project(folder / "floorcast.yaml", environment={})
    with open_store(project.store_path) as store:
        runs = list_runs(store)
    assert set(runs.select("kind", "status", "as_of").iter_rows()) == {(name, "succeeded", now) for name in CYCLE}
    assert read_schedule(project.output / "schedule.json").issued_at == now


def test_prefect_says_nothing_and_stays_in_the_output_folder(cycled):
    folder, ran = cycled
    assert ran.err == ""
    assert "prefect" not in ran.out.lower()
    assert "\x1b" not in ran.out
    assert (folder / "published" / ".prefect" / "prefect.db").is_file()
    assert sorted(path.name for path in folder.iterdir()) == [
        "floorcast.duckdb",
        "floorcast.yaml",
        "published",
        "trace.parquet",
    ]


def test_prefect_ends_with_the_cycle(cycled):
    """No server is left that has its home there."""
    home = str(cycled[0]).encode()
    processes = [process.name for process in Path("/proc").glob("[0-9]*")]
    assert str(os.getpid()) in processes
    left = [pid for pid in processes if home in environment_of(pid)]
    assert left == []


def test_floors_do_not_wait_for_a_prefect_that_is_gone(again, floorcast, now):
    """The configured server does not answer: the same stages run, the same floors are published, and it is said."""
    before = published_bytes(again)["schedule.json"]
    ran = floorcast(
        "cycle", "--json", "--now", now.isoformat(), cwd=again.base, PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    assert ran.code == 0, ran.err
    done = json.loads(ran.out)
    assert list(done["stages"]) == list(CYCLE)
    assert "127.0.0.1:9" in done["without_prefect"]
    assert published_bytes(again)["schedule.json"] == before


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def test_a_cycle_twice_leaves_what_one_leaves(again, floorcast, prefect_server, dump):
    """Later within the same step, on the user's own server, with the user's own PREFECT_HOME."""
    before, files = dump(again), published_bytes(again)
    ran = floorcast("cycle", "--now", "2026-11-16T09:20", cwd=again.base, **prefect_server)
    assert (ran.code, ran.err) == (0, "")
    assert dump(again) == before
    assert published_bytes(again) == files
    assert not (again.output / ".prefect").exists(), "the user's home is respected"


def test_without_its_source_a_cycle_publishes_and_says_so(again, floorcast, prefect_server, now):
    (again.base / "trace.parquet").unlink()
    ran = floorcast("cycle", "--now", "2026-11-16T13:00", "--json", cwd=again.base, **prefect_server)
    said = json.loads(ran.out)
    assert (ran.code, ran.err) == (8, "")
    assert list(said["failed"]) == ["ingest"]
    assert "trace.parquet: no such file" in said["failed"]["ingest"]
    assert list(said["stages"]) == [name for name in CYCLE if name != "ingest"]
    assert said["stages"]["plan"]["rungs"] == {"chat-70b": "last_forecast", "code-8b": "last_forecast"}
    schedule = read_schedule(again.output / "schedule.json")
    assert schedule.version == said["stages"]["publish"]["version"] == 2
    with open_store(again.store_path) as store:
        states = dict(list_runs(store).filter(as_of=schedule.issued_at).select("kind", "status").iter_rows())
    assert states == {name: "failed" if name == "ingest" else "succeeded" for name in CYCLE}


def test_a_cycle_that_cannot_publish_ends_and_leaves_the_publication(again, floorcast, prefect_server):
    before = (again.output / "schedule.json").read_bytes()
    shutil.rmtree(again.output / "schedules")
    (again.output / "schedules").write_text("not a folder")
    ran = floorcast("cycle", "--now", "2026-11-16T10:00", cwd=again.base, **prefect_server)
    assert ran.code == 6
    assert "schedules" in ran.err
    assert "remedy:" in ran.err
    assert "Traceback" not in ran.err
    assert (again.output / "schedule.json").read_bytes() == before
    with open_store(again.store_path) as store:
        states = dict(list_runs(store, limit=5).select("kind", "status").iter_rows())
    assert states == {"ingest": "succeeded", "fit": "succeeded", "forecast": "succeeded", "plan": "succeeded",
                      "publish": "failed"}  # fmt: skip


class Watcher(threading.Thread):
    """Reads schedule.json over and over, as a consumer does."""

    def __init__(self, path):
        super().__init__()
        self.path, self.seen, self.over = path, [], threading.Event()

    def run(self):
        while not self.over.wait(0.002):
            document = json.loads(self.path.read_text())
            version = (document["version"], document["issued_at"], len(document["pools"]))
            if version not in self.seen:
                self.seen.append(version)


def changed(path, since):
    """Whether the database was written to: its log is there, or it is another file than before."""
    return path.with_name(f"{path.name}.wal").exists() or path.stat().st_mtime_ns != since


def test_killed_at_any_moment_a_cycle_leaves_what_an_undisturbed_one_leaves(
    published, start, prefect_server, dump, now
):
    """A clean run after it finds nothing lost, doubled or half-written."""
    project = published
    calm = shutil.copytree(project.base, project.base.with_name("calm"))
    calm = load_project(calm / "floorcast.yaml", environment={})
    later = now.replace(hour=10)
    for name, stage in CYCLE.items():
        run_stage(name, stage, calm, later)

    watcher = Watcher(project.output / "schedule.json")
    watcher.start()
    moments, codes = random.Random(7), []
    try:
        for low, high in MOMENTS_S:
            before = project.store_path.stat().st_mtime_ns
            process = start("cycle", "--now", "2026-11-16T10:00", cwd=project.base, **prefect_server)
            while process.poll() is None and not changed(project.store_path, before):
                time.sleep(0.005)
            time.sleep(moments.uniform(low, high))
            process.kill()
            _, err = process.communicate(timeout=30)
            codes.append((process.returncode, err))
            assert read_schedule(project.output / "schedule.json").version in (1, 2)
        clean = start("cycle", "--now", "2026-11-16T10:00", cwd=project.base, **prefect_server)
        _, err = clean.communicate(timeout=120)
    finally:
        watcher.over.set()
        watcher.join()
    assert (clean.returncode, err) == (0, "")
    killed = [code for code, _ in codes].count(-signal.SIGKILL)
    assert killed >= 2, codes
    assert watcher.seen == [(1, "2026-11-16T09:00:00Z", 2), (2, "2026-11-16T10:00:00Z", 2)]
    assert dump(project) == dump(calm)
    for name in ("schedule.json", "schedules/v000002.json", "keda/chat-70b.yaml", "hpa/code-8b.yaml"):
        assert (project.output / name).read_bytes() == (calm.output / name).read_bytes(), name
    kept = [path.name for path in sorted((project.output / "schedules").iterdir())]
    assert [name for name in kept if name.startswith("v")] == ["v000001.json", "v000002.json"]


def test_an_output_that_is_a_file_is_refused_before_prefect_starts(project, floorcast):
    project.output.write_text("mine")
    ran = floorcast("cycle", "--now", "2026-11-16T09:00", cwd=project.base)
    assert ran.code == 6
    assert str(project.output) in ran.err
    assert "remedy:" in ran.err
    assert "Traceback" not in ran.err
    assert project.output.read_text() == "mine"


def test_single_commands_import_neither_prefect_nor_what_only_fits_and_clusters_need(published):
    """All of them but `fit` in one process: each of these libraries would make every one of them wait."""
    script = """
import sys
from pipelines.cli.main import app
words = sys.argv[1].split()
for command in words:
    more = ["code-8b", "--at", "2026-11-16T12:00"] if command == "explain" else []
    app([command, *more, "--now", "2026-11-16T09:00"], standalone_mode=False)
print(sorted({"prefect", "statsforecast", "kubernetes"} & sys.modules.keys()))
"""
    commands = "check ingest forecast plan publish evaluate dashboard explain status"
    ran = subprocess.run(
        [sys.executable, "-c", script, commands], cwd=published.base, capture_output=True, text=True, check=True,
        env={**os.environ, "PREFECT_HOME": str(published.base / "nowhere")},
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1] == "[]"
    assert not (published.base / "nowhere").exists()
