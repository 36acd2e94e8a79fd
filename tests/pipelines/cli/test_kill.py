"""SIGKILL of the real cycle at moments all over it, then a clean run: nothing is lost, doubled or half-written."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time

from pipelines.project import load_project
from pipelines.publishers.schedule import read_schedule
from pipelines.stages.runner import CYCLE, run_stage

MOMENTS_S = ((0.0, 0.5), (0.5, 2.0), (2.0, 4.0), (6.0, 7.0), (0.4, 1.0), (1.0, 1.6))
"""Windows after the first stage began. The fit of six series takes seconds; once it is stored, stages follow fast."""


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
    published, reconfigure, start, prefect_server, dump, now
):
    project = reconfigure(published, "step: 1h", "step: 1h\nrefit_every: 1h")
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
            # Comes back only once no worker of a fit holds the pipes either.
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
    assert killed >= 4, codes
    assert watcher.seen == [(1, "2026-11-16T09:00:00Z", 2), (2, "2026-11-16T10:00:00Z", 2)]
    assert dump(project) == dump(calm)
    for name in ("schedule.json", "schedules/v000002.json", "keda/chat-70b.yaml", "hpa/code-8b.yaml"):
        assert (project.output / name).read_bytes() == (calm.output / name).read_bytes(), name
    kept = [path.name for path in sorted((project.output / "schedules").iterdir())]
    assert [name for name in kept if name.startswith("v")] == ["v000001.json", "v000002.json"]
