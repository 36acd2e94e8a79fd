"""A fleet of exporters that lives through restarts, deaths and a rollout while real servers scrape it.

At 20 times the speed of clocks, samples carry their own times: a minute of scraping once a second is 20 minutes scraped
every 20 s. Two more replicas go at the speed of clocks, scraped as they come.
"""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

EXPORTER = Path(__file__).with_name("exporter.py")
counted = runpy.run_path(str(EXPORTER))["counted"]
SPEED, SCRAPED_FOR_S = 20, 60
VIRTUAL_S = SPEED * SCRAPED_FOR_S
PODS = ("chat-a-0", "chat-a-1", "chat-a-2", "chat-a-3", "chat-a-4", "chat-b-0", "chat-b-1")
REAL = ("real-0", "real-1")
TWICE = ("chat-a-0", "chat-a-1")


@dataclass
class Fleet:
    folder: Path
    ports: dict[str, int]
    epoch: float
    origin: float
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: dict[str, float] = field(default_factory=dict)
    """Virtual time of a kill by the name of its life's file."""
    events: dict[str, datetime] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    @property
    def start_time(self) -> datetime:
        return datetime.fromtimestamp(self.origin, UTC)

    @property
    def end_time(self) -> datetime:
        return datetime.fromtimestamp(self.origin + VIRTUAL_S, UTC)

    def virtual(self) -> float:
        return self.origin + (time.time() - self.epoch) * SPEED

    def start(self, pod: str, *, names: str = "new") -> None:
        real = pod in REAL
        spec = {"port": self.ports[pod], "model": "real" if real else "llama-70b", "pod": pod, "names": names}
        spec |= {"lives": str(self.folder), "speed": 1 if real else SPEED}
        spec |= {"epoch": self.epoch, "origin": self.epoch if real else self.origin}
        self.processes[pod] = subprocess.Popen([sys.executable, str(EXPORTER), json.dumps(spec)])

    def signal(self, pod: str, number: signal.Signals, event: str) -> None:
        process = self.processes[pod]
        process.send_signal(number)
        self.events[event] = datetime.fromtimestamp(self.virtual(), UTC)
        if number == signal.SIGKILL:
            self.killed[f"{pod}-{process.pid}.json"] = self.virtual()
            process.wait()

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def sleep_until(self, second: float) -> None:
        time.sleep(max(self.epoch + second - time.time(), 0))

    def lives(self, model: str, pod: str | None = None) -> list[tuple[float, float]]:
        """From when to when each replica counted, virtual seconds since 1970."""
        found = []
        for file in self.folder.glob("*.json"):
            life = json.loads(file.read_text())
            if life["model"] == model and pod in (None, life["pod"]):
                found.append((life["born"], life["stopped"] or self.killed.get(file.name, float("inf"))))
        return found

    def truth(self, model: str, metric: str, low: float, high: float, *, pod: str | None = None) -> float:
        """What the replicas of a model, or its one replica `pod`, counted from `low` to `high`."""
        spans = [(max(born, low), min(stopped, high)) for born, stopped in self.lives(model, pod)]
        return float(sum(counted(metric, a, b) for a, b in spans if b > a))


def scrape_config(ports: dict[str, int]) -> str:
    def job(name: str, pods: tuple[str, ...]) -> dict[str, Any]:
        targets = [{"targets": [f"127.0.0.1:{ports[pod]}"], "labels": {"pod": pod}} for pod in pods]
        return {"job_name": name, "honor_timestamps": True, "static_configs": targets}

    jobs = [job("vllm", PODS + REAL), job("podmonitor", TWICE)]
    return yaml.safe_dump({"global": {"scrape_interval": "1s", "scrape_timeout": "900ms"}, "scrape_configs": jobs})


def live_through(fleet: Fleet) -> None:
    """A minute. Replicas are born before the servers look."""
    at = fleet.sleep_until
    at(14)
    fleet.signal("chat-a-2", signal.SIGKILL, "killed and restarted")
    at(16)
    fleet.start("chat-a-2")
    at(20)
    fleet.signal("real-1", signal.SIGTERM, "real restart")
    at(24)
    fleet.signal("chat-a-3", signal.SIGKILL, "killed for good")
    fleet.processes["real-1"].wait()
    fleet.start("real-1")
    at(32)
    fleet.start("chat-b-0")
    fleet.start("chat-b-1", names="old")
    at(34)
    fleet.signal("chat-a-0", signal.SIGTERM, "rollout")
    fleet.signal("chat-a-4", signal.SIGTERM, "rollout")
    at(44)
    fleet.signal("chat-a-1", signal.SIGSTOP, "silent")
    at(51)
    fleet.signal("chat-a-1", signal.SIGCONT, "heard again")
    at(SCRAPED_FOR_S)
    for pod in REAL:
        fleet.signal(pod, signal.SIGTERM, "real end")
    for pod in REAL:
        fleet.processes[pod].wait()


@pytest.fixture(scope="session")
def fleet(tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The fleet after its minute, with `urls` of both servers that scraped it."""
    tools.needs("prometheus", "victoria-metrics")
    folder = tmp_path_factory.mktemp("fleet")
    for name in ("lives", "prometheus", "victoria"):
        (folder / name).mkdir()
    ports = {pod: tools.free_port() for pod in PODS + REAL}
    config = folder / "scrape.yml"
    config.write_text(scrape_config(ports))
    with ExitStack() as stack:
        epoch = time.time() + 5
        origin = float(int(epoch - VIRTUAL_S) // 60 * 60)
        fleet = Fleet(folder / "lives", ports, epoch, origin)
        stack.callback(fleet.end)
        for pod in (*PODS[:5], *REAL):
            fleet.start(pod)
        prometheus = tools.prometheus(folder / "prometheus", config.read_text())
        victoria = tools.victoria_metrics(folder / "victoria", f"-promscrape.config={config}")
        fleet.urls["prometheus"] = stack.enter_context(prometheus)
        fleet.urls["victoria_metrics"] = stack.enter_context(victoria)
        live_through(fleet)
        httpx.get(f"{fleet.urls['victoria_metrics']}/internal/force_flush", timeout=30).raise_for_status()
        yield fleet
