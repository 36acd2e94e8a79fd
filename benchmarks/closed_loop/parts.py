"""The real parts of a run, each a process: exporter, Prometheus, publisher, service; and their folders."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import yaml

from benchmarks.closed_loop.clock import Clock
from benchmarks.closed_loop.scenario import SCRAPE, history, planning_config, service_config
from floorcast.errors import ConfigError
from floorcast.units import format_duration

PATIENCE_S = 90.0
"""How long a part may take to answer on a busy machine."""
DISK_BYTES = 24 * 2**20
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Part:
    """A process that is started, frozen, killed and started again by the same command."""

    def __init__(self, name: str, command: list[str], *, log: Path, url: str = "", path: str = "") -> None:
        self.name, self._command, self._log, self._url, self._path = name, command, log, url, path
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | self.environment
            )

    def answers(self, path: str | None = None) -> None:
        """Wait until it does, at its own `path` or another. Raises ConfigError with the end of its log."""
        deadline = time.monotonic() + PATIENCE_S
        while self._url:
            try:
                if httpx.get(self._url + (path or self._path), timeout=2).status_code < 500:
                    return
            except httpx.HTTPError:
                pass
            if (self._process and self._process.poll() is not None) or time.monotonic() > deadline:
                tail = self._log.read_text(errors="replace")[-2000:]
                raise ConfigError(f"does not answer:\n{tail}", where=self.name, remedy="see its log above")
            time.sleep(0.1)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def terminate(self, *, within_s: float = 20.0) -> int | None:
        """Its exit code, or None where it had to be killed."""
        if self._process is None:
            return None
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class Parts:
    """All of them, in a folder: `disk` is a file system of its own with the publication and the service's state."""

    def __init__(self, folder: Path, *, speed: float) -> None:
        self.folder, self.speed = folder, speed
        self.disk, self.plan = folder / "disk", folder / "plan"
        self.published, self.state = self.disk / "published", self.disk / "state"
        for each in (self.disk, self.plan, folder / "fleet", folder / "kept", folder / "logs", folder / "prometheus"):
            each.mkdir(parents=True, exist_ok=True)
        self.own_disk = _mount(self.disk)
        for each in (self.published, self.state):
            each.mkdir(exist_ok=True)
        self.ports = {name: free_port() for name in ("exporter", "prometheus", "service")}
        self.config = folder / "floorcast.yaml"
        self._write()
        ours = [sys.executable, "-m"]
        exporter = ["benchmarks.closed_loop.exporter", str(folder / "fleet"), str(self.ports["exporter"])]
        self.exporter = self._part("exporter", [*ours, *exporter], "/sd")
        self.prometheus = self._part("prometheus", self._prometheus(), "/-/ready")
        self.publisher = self._part("publisher", [*ours, "benchmarks.closed_loop.publisher", str(folder), "run"])
        serve = ["pipelines.cli.main", "serve", "--config", str(self.config)]
        self.service = self._part("service", [*ours, *serve], "/healthz")
        self.time_file = folder / "service-clock"
        self.set_clock(0)
        if FAKETIME.exists():
            self.service.environment = clock_environment(self.time_file)

    def url(self, part: str) -> str:
        return f"http://127.0.0.1:{self.ports[part]}"

    def set_clock(self, ahead_s: float) -> None:
        """Move the clock of the service."""
        part = self.time_file.with_suffix(".part")
        part.write_text(f"{ahead_s:+g}\n")
        part.replace(self.time_file)

    def prepare(self) -> None:
        """Ingest the history and fit its models, unless that is there already."""
        if (self.plan / "prepared").exists():
            return
        (self.plan / "floorcast.yaml").write_text(planning_config(), encoding="utf-8")
        history(MOST_MINUTES).write_parquet(self.plan / "trace.parquet")
        subprocess.run(
            [sys.executable, "-m", "benchmarks.closed_loop.publisher", str(self.folder), "prepare"], check=True
        )
        (self.plan / "prepared").touch()

    def begin(self, clock: Clock) -> None:
        clock.save(self.folder / "clock.json")

    def end(self) -> None:
        for part in (self.service, self.publisher, self.prometheus, self.exporter):
            part.terminate()
        if self.own_disk:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=False)

    def _part(self, name: str, command: list[str], path: str = "") -> Part:
        log = self.folder / "logs" / f"{name}.log"
        return Part(name, command, log=log, url=self.url(name) if path else "", path=path)

    def _write(self) -> None:
        text = service_config(
            speed=self.speed,
            prometheus_url=self.url("prometheus"),
            port=self.ports["service"],
            output=self.published,
            state=self.state,
        )
        self.config.write_text(text, encoding="utf-8")

    def _prometheus(self) -> list[str]:
        interval = format_duration(SCRAPE / self.speed)
        discovery = {"url": self.url("exporter") + "/sd", "refresh_interval": "500ms"}
        job = {"job_name": "fleet", "http_sd_configs": [discovery]}
        often = {"scrape_interval": interval, "scrape_timeout": interval}
        document = {"global": often, "scrape_configs": [job]}
        config = self.folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        address = self.url("prometheus").removeprefix("http://")
        return [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'prometheus'}",
            f"--web.listen-address={address}",
            "--scrape.discovery-reload-interval=500ms",
        ]


MOST_MINUTES = 24 * 60


def clock_environment(time_file: Path) -> dict[str, str]:
    """libfaketime over the calendar's clock, not over the monotonic one, as a clock that somebody sets."""
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(time_file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def _mount(folder: Path) -> bool:
    """A small file system in memory, where this user may mount one; else the folder stays what it is."""
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "floorcast-closed-loop", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def missing() -> list[str]:
    """What this machine lacks."""
    lacks = [] if shutil.which("prometheus") else ["prometheus (apt-get install prometheus)"]
    return lacks + ([] if FAKETIME.exists() else ["libfaketime (apt-get install faketime)"])
