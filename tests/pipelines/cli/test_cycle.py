"""`floorcast cycle` as users run it: the Prefect flow, its failures, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.project import load_project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE
from store.connection import open_store
from store.runs import list_runs


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


def test_an_output_that_is_a_file_is_refused_before_prefect_starts(project, floorcast):
    project.output.write_text("mine")
    ran = floorcast("cycle", "--now", "2026-11-16T09:00", cwd=project.base)
    assert ran.code == 6
    assert str(project.output) in ran.err
    assert "remedy:" in ran.err
    assert "Traceback" not in ran.err
    assert project.output.read_text() == "mine"


def test_single_commands_never_import_prefect(published):
    """All of them in one process, which then holds no module of Prefect's."""
    script = """
import sys
from pipelines.cli.main import app
words = sys.argv[1].split()
for command in words:
    more = ["code-8b", "--at", "2026-11-16T12:00"] if command == "explain" else []
    app([command, *more, "--now", "2026-11-16T09:00"], standalone_mode=False)
print([name for name in sys.modules if name.partition(".")[0] == "prefect"])
"""
    commands = "check ingest forecast plan publish evaluate dashboard explain status"
    ran = subprocess.run(
        [sys.executable, "-c", script, commands], cwd=published.base, capture_output=True, text=True, check=True,
        env={**os.environ, "PREFECT_HOME": str(published.base / "nowhere")},
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1] == "[]"
    assert not (published.base / "nowhere").exists()
