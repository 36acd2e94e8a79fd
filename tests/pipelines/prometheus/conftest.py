"""Two days of a fleet whose truth is known, in real servers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest
import yaml

from floorcast.source import PrometheusSource
from floorcast.workload import WorkloadClass
from pipelines.project import Project, load_project

DAY0 = datetime(2025, 3, 4, tzinfo=UTC)
DAYS_S = 2 * 86_400
HOUR = 3600
WEIRD = 'a"b\\c{d="e"}\nf'
SCRAPE_S = 15


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "server: needs Debian's prometheus and victoria-metrics")


@dataclass
class World:
    """Series as the servers hold them, and what was counted in each second, per class and metric."""

    series: list[tuple[dict[str, str], np.ndarray, np.ndarray]] = field(default_factory=list)
    truth: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    start: datetime = DAY0
    end: datetime = DAY0 + timedelta(seconds=DAYS_S)
    weird: str = WEIRD

    def count(self, name: str, metric: str, per_s: np.ndarray) -> None:
        self.truth[name, metric] = self.truth.get((name, metric), np.zeros(DAYS_S)) + per_s

    def scrape(self, labels: dict[str, str], times_s: np.ndarray, total: np.ndarray) -> None:
        """Samples of a counter whose value after each second is `total`; nothing is scraped in the great gap."""
        gap = (times_s > GAP[0]) & (times_s < GAP[1])
        times = times_s[~gap]
        self.series.append((labels, DAY0.timestamp() + times, total[np.floor(times).astype(int)]))

    def steps(self, name: str, metric: str, step_s: int = 300) -> pl.DataFrame:
        """Truth by step: step_start, truth."""
        sums = self.truth[name, metric].reshape(-1, step_s).sum(axis=1)
        starts = [DAY0 + timedelta(seconds=step_s * k) for k in range(len(sums))]
        return pl.DataFrame(
            {"step_start": starts, "truth": sums}, schema={"step_start": pl.Datetime("us", "UTC"), "truth": pl.Float64}
        )


GAP = (34 * HOUR + 450, 34 * HOUR + 1650)
ROLLOUT, RENAMED = 8 * HOUR, 28 * HOUR
METRICS = {
    "tokens_in": ("vllm:prompt_tokens_total", "vllm:prompt_tokens", 900),
    "tokens_out": ("vllm:generation_tokens_total", "vllm:generation_tokens", 350),
    "requests": ("vllm:request_success_total", "vllm:request_success", 2),
}


def _labels(metric: str, model: str, pod: str, address: int, *, old: bool = False, **more: str) -> dict[str, str]:
    extra = {"finished_reason": "stop"} if metric == "requests" else {}
    return (
        {
            "__name__": METRICS[metric][1 if old else 0],
            "model_name": model,
            "namespace": "llm",
            "pod": pod,
            "instance": f"10.0.{address // 250}.{address % 250}:8000",
            "job": "vllm",
            "engine": "0",
            "prometheus": "a",
        }
        | extra
        | more
    )


def _chat(world: World, rng: np.random.Generator) -> None:
    """Six replicas under load, through every fault; 15 s scrapes."""
    seconds = np.arange(DAYS_S)
    load = 1 + 0.6 * np.sin(2 * np.pi * seconds / 86_400)
    lives: list[tuple[str, int, int, bool, bool]] = []  # pod, from, to, old name, old and new name at once
    for n in range(6):
        moved, renamed = ROLLOUT + 90 * n, RENAMED + 90 * n
        lives += [
            (f"chat-a-{n}", -5000, moved, True, False),
            (f"chat-b-{n}", moved - 60, renamed, True, False),
            (f"chat-c-{n}", renamed - 60, DAYS_S + 100, False, n == 2),
        ]
    lives += [(f"chat-churn-{n}", 4 * HOUR + 300 * n, 4 * HOUR + 300 * n + 700, True, False) for n in range(10)]
    for address, (pod, born, died, old, both) in enumerate(lives):
        begin, end = max(born, 0), min(died, DAYS_S)
        phase, jitter = rng.uniform(0, SCRAPE_S), rng.normal(0, 0.02, DAYS_S // SCRAPE_S)
        times = phase + SCRAPE_S * np.arange(DAYS_S // SCRAPE_S) + jitter
        # Ready ten seconds after its birth; drained for the last twenty.
        times = np.round(times[(times > begin) & (times < end)], 3)
        resets = [2 * HOUR + 127, 2 * HOUR + 4 * 60] if pod == "chat-a-0" else []
        if pod == "chat-c-1":
            times = times[(times < 42 * HOUR + 180) | (times > 42 * HOUR + 900)]
        for metric, (_, _, mean) in METRICS.items():
            per_s = rng.poisson(mean * load).astype(float)
            per_s[: max(born + 10, 0)] = 0
            per_s[max(died - 20, 0) if died < DAYS_S else DAYS_S :] = 0
            for reset in resets:
                per_s[reset : reset + 10] = 0
            world.count("chat", metric, per_s)
            total = np.cumsum(per_s) + (5e7 if born < 0 else 0)
            for reset in resets:
                total[reset:] -= total[reset]
            make = {"old": old} | {"metric": metric, "model": "llama-70b", "pod": pod, "address": address}
            world.scrape(_labels(**make), times, total)
            if both:
                world.scrape(_labels(**make | {"old": True}), times[(times > 30 * HOUR) & (times < 32 * HOUR)], total)
            if pod.startswith("chat-b-") and pod[-1] in "012":
                window = times[(times > 10 * HOUR) & (times < 14 * HOUR)]
                world.scrape(_labels(**make, prometheus="b", prometheus_replica="b-0"), window[::2] + 4, total)
            if pod == "chat-b-3":
                window = times[(times > 10 * HOUR) & (times < 14 * HOUR)]
                world.scrape(_labels(**make, job="podmonitor", endpoint="http"), window + 1, total)


def _old_counter(world: World, rng: np.random.Generator) -> None:
    """A replica that has counted for months comes into view when somebody adds it to the scrape."""
    for metric, (_, _, mean) in METRICS.items():
        per_s = rng.poisson(mean, DAYS_S).astype(float)
        per_s[: 40 * HOUR] = 0
        world.count("chat", metric, per_s)
        times = np.arange(40 * HOUR + 4.0, DAYS_S, SCRAPE_S)
        world.scrape(_labels(metric, "llama-70b", "chat-hidden", 99), times, np.cumsum(per_s) + 9e9)


def _steady(world: World) -> None:
    """Two replicas at a constant rate, 30 s scrapes, renamed in place at 26:00."""
    for metric, (_, _, mean) in METRICS.items():
        for n in range(2):
            per_s = np.full(DAYS_S, float(mean))
            world.count("steady", metric, per_s)
            times = np.arange(7.0 + n, DAYS_S, 30)
            total = np.cumsum(per_s) - per_s
            for old in (True, False):
                part = times[times < 26 * HOUR] if old else times[times >= 26 * HOUR]
                world.scrape(_labels(metric, "qwen-8b", f"steady-{n}", 200 + n, old=old), part, total)


def _small(world: World) -> None:
    """An idle class, one with a strange name, and one whose samples are not numbers; 60 s scrapes."""
    times = np.arange(5.0, DAYS_S, 60)
    late = times[times > 44 * HOUR]
    for metric, (_, _, mean) in METRICS.items():
        world.count("idle", metric, np.zeros(DAYS_S))
        world.scrape(_labels(metric, "idle-model", "idle-0", 210), times, np.full(DAYS_S, 12345.0))
        per_s = np.full(DAYS_S, float(mean))
        world.count("weird", metric, per_s)
        world.scrape(_labels(metric, WEIRD, "weird-0", 211), late, np.cumsum(per_s))
        values = np.full(DAYS_S, np.nan)
        values[::2] = np.inf
        world.scrape(_labels(metric, "nan-model", "nan-0", 212), late, values)


def _mixed(world: World, rng: np.random.Generator) -> None:
    """Three replicas scraped every 15, 60 and 120 seconds, the last two up to a quarter of that too early or late.

    Of the slowest some scrapes are missing at 6:00, before it for longer than is looked at around a chunk at first.
    """
    for metric, (_, _, mean) in METRICS.items():
        for n, every in enumerate((15, 60, 120)):
            per_s = np.full(DAYS_S, float(mean))
            world.count("mixed", metric, per_s)
            times = np.arange(every / 2, DAYS_S - every / 2, every)
            times = times + (rng.uniform(-0.25, 0.25, times.size) * every if n else 0)
            if every == 120:
                edge = 6 * HOUR
                times = np.sort([*times[(times < edge - 600) | (times > edge + 300)], edge - 400, edge + 40])
            total = np.cumsum(per_s) - per_s
            world.scrape(_labels(metric, "mixed-model", f"mixed-{n}", 220 + n), np.floor(times), total)


@pytest.fixture(scope="session")
def world() -> World:
    built = World()
    rng = np.random.default_rng(20250304)
    _chat(built, rng)
    _old_counter(built, rng)
    _steady(built)
    _small(built)
    _mixed(built, rng)
    return built


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _lines(world: World, factor: int) -> Iterator[str]:
    """The text exposition of all samples, times as multiples of 1/`factor` s, each metric's series together."""
    for labels, times, values in sorted(world.series, key=lambda one: one[0]["__name__"]):
        inner = ",".join(f'{k}="{_quoted(v)}"' for k, v in labels.items() if k != "__name__")
        head = f"{labels['__name__']}{{{inner}}} "
        stamps = [f"{t:.3f}" for t in times] if factor == 1 else [f"{t * factor:.0f}" for t in times]
        yield from (f"{head}{v!r} {t}" for v, t in zip(values.tolist(), stamps, strict=True))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _serving(command: list[str], url: str, log: Path) -> Iterator[str]:
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    if httpx.get(f"{url}/health", timeout=1).status_code < 500:
                        break
                except httpx.TransportError:
                    pass
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(log.read_text())
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()


def _needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install prometheus victoria-metrics openssl)")


@contextmanager
def run_prometheus(folder: Path, config: str = "{}") -> Iterator[str]:
    _needs("prometheus", "promtool")
    (folder / "prometheus.yml").write_text(config)
    port = _free_port()
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += ["--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"]
    with _serving(command, f"http://127.0.0.1:{port}", folder / "log") as url:
        yield url


@contextmanager
def run_victoria_metrics(folder: Path, *options: str) -> Iterator[str]:
    _needs("victoria-metrics")
    port = _free_port()
    command = ["victoria-metrics", f"-storageDataPath={folder / 'data'}", "-retentionPeriod=100y", *options]
    command.append(f"-httpListenAddr=127.0.0.1:{port}")
    with _serving(command, f"http://127.0.0.1:{port}", folder / "log") as url:
        yield url


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "faults.md"
PAGE_HEAD = """\
# Faults of a Prometheus source

<!-- Written by the tests: `UPDATE_GOLDENS=1 .venv/bin/pytest tests/pipelines/prometheus`. Do not edit. -->

What each fault comes to when `floorcast ingest` or `floorcast check` meets it. Each row is a test case: it passes when
the row holds what was seen. Nothing becomes a zero, and nothing that was stored is lost: chunks before a failure stand,
and the next run goes on from them. See [Prometheus](../prometheus.md) for how counters are read.
"""


class FaultTable:
    """The page of faults: a test hands in what it saw, which must be what the page says."""

    def __init__(self) -> None:
        self.update = bool(os.environ.get("UPDATE_GOLDENS"))
        self.columns = ("fault", "what happens", "what the user sees")
        self.sections: dict[str, dict[str, str]] = {}
        for block in (PAGE.read_text(encoding="utf-8") if PAGE.exists() else "").split("\n## ")[1:]:
            title, _, rows = block.partition("\n")
            found = [line for line in rows.splitlines() if line.startswith("| ")][2:]
            self.sections[title] = {line[2:].partition(" |")[0]: line for line in found}

    def saw(self, section: str, fault: str, happens: str, seen: str) -> None:
        """One row. `seen` is what is printed, or empty where nothing is."""
        cells = [fault, happens, seen or "nothing"]
        row = f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"
        if self.update:
            self.sections.setdefault(section, {})[fault] = row
            self.write()
        assert self.sections.get(section, {}).get(fault) == row, f"{PAGE.name} is out of date: set UPDATE_GOLDENS=1"

    def holds_only(self, section: str, faults: Iterable[str]) -> None:
        faults = list(faults)
        if self.update:
            self.sections[section] = {fault: self.sections[section][fault] for fault in faults}
            self.write()
        assert list(self.sections[section]) == faults

    def write(self) -> None:
        head = f"| {' | '.join(self.columns)} |\n| --- | --- | --- |\n"
        blocks = [f"\n## {title}\n\n{head}" + "\n".join(rows.values()) + "\n" for title, rows in self.sections.items()]
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(PAGE_HEAD + "".join(blocks), encoding="utf-8")


@pytest.fixture(scope="session")
def fault_table() -> FaultTable:
    return FaultTable()


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """What tests need: programs are skipped for, ports found, servers started, samples written as text."""
    return SimpleNamespace(
        needs=_needs,
        free_port=_free_port,
        prometheus=run_prometheus,
        victoria_metrics=run_victoria_metrics,
        lines=_lines,
    )


@pytest.fixture(scope="session")
def prometheus(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prometheus server that holds the world."""
    _needs("prometheus", "promtool")
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "world.om").write_text("\n".join([*_lines(world, 1), "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=48h", "--quiet", "openmetrics"]
    subprocess.run([*command, str(folder / "world.om"), str(folder / "data")], check=True, capture_output=True)
    with run_prometheus(folder) as url:
        yield url


@pytest.fixture(scope="session")
def victoria_metrics(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a VictoriaMetrics server that holds the world."""
    with run_victoria_metrics(tmp_path_factory.mktemp("victoria")) as url:
        text = "\n".join(_lines(world, 1000)) + "\n"
        httpx.post(f"{url}/api/v1/import/prometheus", content=text.encode(), timeout=60).raise_for_status()
        httpx.get(f"{url}/internal/force_flush", timeout=30).raise_for_status()
        yield url


@pytest.fixture(scope="session")
def classes() -> dict[str, WorkloadClass]:
    models = {"chat": "llama-70b", "steady": "qwen-8b", "idle": "idle-model", "weird": WEIRD, "mixed": "mixed-model"}
    models |= {"nan": "nan-model", "absent": "no-such-model"}
    return {name: WorkloadClass(pools=("pool",), match={"model_name": model}) for name, model in models.items()}


POOL = {
    "gpu": {"type": "H100"},
    "capacity": {"prefill_tokens_per_s": 5000, "decode_tokens_per_s": 2500},
    "startup": {"p90": "4m"},
    "bounds": {"min": 1, "max": 40},
}


@pytest.fixture(scope="session")
def write_project() -> Callable[..., Project]:
    """`write_project(folder, {class: model}, url=..., **keys)`: a source of these keys, and a pool for all classes."""

    def write(folder: Path, models: dict[str, str], **keys: Any) -> Project:
        config = {
            "sources": [{"name": "prod", "kind": "prometheus"} | keys],
            "pools": {"pool": POOL},
            "classes": {name: {"pools": ["pool"], "match": {"model_name": model}} for name, model in models.items()},
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "floorcast.yaml"
        file.write_text(yaml.safe_dump(config))
        return load_project(file, environment={})

    return write


MakeSource = Callable[..., PrometheusSource]


@pytest.fixture(scope="session")
def make_source() -> MakeSource:
    def make(url: str, **keys: Any) -> PrometheusSource:
        return PrometheusSource.model_validate({"name": "prod", "kind": "prometheus", "url": url} | keys)

    return make
