"""SIGKILL of a fit, whose workers are processes of their own."""

from __future__ import annotations

import signal
import time
from pathlib import Path


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
