"""Fork a writer, kill it at a random moment, read what it left; again and again.

Usage: killed_writer.py SCHEDULE FOLDER ROUNDS SEED. Prints how often a kill landed and the last version read.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from pipelines.publishers.schedule import read_schedule, write_schedule


def publish_for_ever(schedule, folder, version):
    while True:
        version += 1
        write_schedule(schedule.model_copy(update={"version": version}), folder)


def main(source, folder, rounds, seed):
    schedule = read_schedule(Path(source))
    rng = random.Random(seed)
    folder = Path(folder)
    last = 0
    killed = 0
    for _ in range(rounds):
        # A kill between the kept version and schedule.json leaves the former one ahead.
        start = max((int(path.stem[1:]) for path in (folder / "schedules").glob("v*.json")), default=0)
        child = os.fork()
        if child == 0:
            publish_for_ever(schedule, folder, start)
        while not (folder / "schedule.json").exists():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        version = read_schedule(folder / "schedule.json").version
        if version < last:
            sys.exit(f"version fell from {last} to {version}")
        if not (folder / "schedules" / f"v{version:06d}.json").exists():
            sys.exit(f"version {version} was published before it was kept")
        last = version
        for kept in (folder / "schedules").glob("v*.json"):
            read_schedule(kept)
            kept.unlink() if int(kept.stem[1:]) < last else None
    sys.stdout.write(f"{killed} {last}")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
