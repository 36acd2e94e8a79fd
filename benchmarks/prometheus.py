"""Two weeks of 50 classes from a Prometheus server into steps, and how much of that is waiting for the server.

Needs Debian's `prometheus`, whose promtool makes the blocks it is started on.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import httpx

from benchmarks.report import parser, peak_memory_gib, write
from floorcast.source import PrometheusSource
from floorcast.workload import WorkloadClass
from pipelines.sources import import_prometheus

STEP = timedelta(minutes=5)
START = datetime(2026, 11, 2, tzinfo=UTC)
METRICS = {"prompt_tokens": 900, "generation_tokens": 350, "request_success": 2}


def make_blocks(folder: Path, *, classes: int, replicas: int, days: int, interval_s: int) -> None:
    """Counters at a constant rate each, a restart a day, through promtool."""
    times = [START.timestamp() + k for k in range(0, days * 86_400, interval_s)]
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=384h", "--quiet", "openmetrics"]
    text = folder / "made.om"
    with text.open("w") as out:
        for metric, per_s in METRICS.items():
            for number, replica in product(range(classes), range(replicas)):
                head = f'vllm:{metric}_total{{model_name="m{number}",pod="m{number}-{replica}"}}'
                rate = per_s + number
                out.writelines(f"{head} {rate * ((t + 3600 * replica) % 86_400):.0f} {t:.0f}\n" for t in times)
        out.write("# EOF\n")
    subprocess.run([*command, str(text), str(folder / "data")], check=True, capture_output=True)
    text.unlink()


@contextmanager
def server(folder: Path) -> Iterator[str]:
    (folder / "prometheus.yml").write_text("{}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += ["--storage.tsdb.retention.time=100y", f"--web.listen-address={address}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                time.sleep(0.1)
                try:
                    if httpx.get(f"http://{address}/-/ready").is_success:
                        break
                except httpx.TransportError:
                    continue
            yield f"http://{address}"
        finally:
            process.terminate()


def main() -> None:
    arguments = parser("prometheus", __doc__ or "")
    arguments.add_argument("--classes", type=int, default=50)
    arguments.add_argument("--replicas", type=int, default=2)
    arguments.add_argument("--days", type=int, default=14)
    arguments.add_argument("--interval", type=int, default=60, help="seconds between scrapes")
    given = arguments.parse_args()
    if shutil.which("prometheus") is None:
        raise SystemExit("prometheus is not installed (apt-get install prometheus)")
    fleet = {f"c{n}": WorkloadClass(pools=("pool",), match={"model_name": f"m{n}"}) for n in range(given.classes)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_blocks(folder, classes=given.classes, replicas=given.replicas, days=given.days, interval_s=given.interval)
        with server(folder) as url:
            source = PrometheusSource.model_validate({"name": "bench", "kind": "prometheus", "url": url})
            end = START + timedelta(days=given.days)
            began = time.perf_counter()
            samples = steps = 0
            server_s = 0.0
            for chunk in import_prometheus(source, classes=fleet, step=STEP, start=START, end=end):
                samples, steps, server_s = (
                    samples + chunk.samples,
                    steps + chunk.demand.height,
                    server_s + chunk.server_s,
                )
            seconds = time.perf_counter() - began
    if steps < 0.99 * given.classes * given.days * 288:
        raise SystemExit(f"only {steps} steps were read")
    write(
        "prometheus",
        summary={
            "samples_per_s": samples / seconds,
            "waiting_share": server_s / seconds,
            "peak_memory_gib": peak_memory_gib(),
        },
        detail={
            "days": given.days,
            "classes": given.classes,
            "series": given.classes * given.replicas * len(METRICS),
            "scrape_interval_s": given.interval,
            "chunk": "2h",
            "concurrency": source.concurrency,
            "samples": samples,
            "steps": steps,
            "seconds": seconds,
        },
        out=given.json,
    )


if __name__ == "__main__":
    main()
