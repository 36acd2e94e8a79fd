"""SIGKILL of the real cycle at moments all over it, then a clean run: nothing is lost, doubled or half-written."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from pathlib import Path

from pipelines.project import load_project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE, run_stage

MOMENTS_S = ((0.0, 0.6), (0.7, 1.2), (1.3, 1.8))
"""Windows after the first stage began. With fits that stand, the seven stages take about two seconds."""


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


def test_a_killed_fit_leaves_the_old_fits_and_no_workers(published, start, dump):
    """A worker that outlived the process it works for would wait for ever, with its memory."""
    before = dump(published)
    process = start("fit", "--now", "2026-11-16T09:00", cwd=published.base)
    while process.poll() is None and not [pid for pid in group(process.pid) if b"forkserver" in words(pid)]:
        time.sleep(0.01)
    time.sleep(1)
    assert len(group(process.pid)) > 2
    process.kill()
    # Comes back only once nobody holds the pipes any more.
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    after = dump(published)
    assert {name: rows for name, rows in after.items() if name != "runs"} == {
        name: rows for name, rows in before.items() if name != "runs"
    }


def group(leader):
    """The processes of a group that are not yet over."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # pid (name) state ppid pgrp ...; the name may hold anything.
            state, _, of = (process / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if of == str(leader) and state != "Z":
            found.append(process.name)
    return found


def words(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
