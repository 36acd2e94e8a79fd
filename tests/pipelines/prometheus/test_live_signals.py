"""Live signals of a small fleet that a real Prometheus scrapes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipelines.project import Project, load_project
from pipelines.publishers.overlay_file import OverlayFacts, PastLoad, write_overlay_facts
from pipelines.service.board import Board
from pipelines.service.live import LiveReader, LiveReading
from pipelines.service.loop import Loop
from scaling.overlay.signals import Kind

pytestmark = pytest.mark.server

BEGAN_S = time.time()
PODS = ("chat-a", "chat-b", "agent-a", "code-a")
MODELS = {"chat-a": "chat", "chat-b": "chat", "agent-a": "agent", "code-a": "code"}
RATES = {"chat-a": (1000, 200), "chat-b": (500, 100), "agent-a": (300, 50), "code-a": (800, 400)}
WAITING = {"chat-a": 6, "chat-b": 2, "agent-a": 4, "code-a": 0}
KV = {"chat-a": 0.9, "chat-b": 0.5, "agent-a": 0.1, "code-a": 0.3}
SCALED = {"deployment": {"assistants": (5, 3), "coders": (1, 1)}}

CONFIG = """
mode: apply
sources:
  - {{name: prod, kind: prometheus, url: "{url}", scrape_interval: 2s}}
service:
  tick: 1m
  queries:
    gpu_utilization:
      promql: 'label_replace(avg by (model_name) (gpu_busy), "pool", "assistants", "model_name", "chat")'
pools:
  assistants: &pool
    gpu: {{type: H100}}
    capacity: {{prefill_tokens_per_s: 1000, decode_tokens_per_s: 200}}
    startup: {{p90: 2m}}
    bounds: {{min: 1, max: 40}}
    overlay: {{also: [lookahead], targets: {{ttft: 1s, gpu_utilization: 90%}}}}
    target: {{namespace: llm}}
  coders: *pool
classes:
  chat: {{pools: [assistants], match: {{model_name: chat}}}}
  agent: {{pools: [assistants], match: {{model_name: agent}}}}
  code: {{pools: [coders], match: {{model_name: code}}}}
"""


def exposed(pod: str, now_s: float) -> str:
    """Samples with their own time, so that a busy machine does not change a rate.

    A vLLM replica's metrics; `code-a` is of a version with the old names. A fifth of the prompt tokens is cached; a
    request has 100 prompt tokens. Of the first tokens a tenth takes 1 to 2 s, the others under 1 s."""
    model, (rate_in, rate_out) = f'model_name="{MODELS[pod]}",engine="0"', RATES[pod]
    total = "" if pod == "code-a" else "_total"
    usage = "gpu_cache_usage_perc" if pod == "code-a" else "kv_cache_usage_perc"
    seconds = now_s - BEGAN_S
    requests = rate_in / 100 * seconds
    lines = [
        f"vllm:prompt_tokens{total}{{{model}}} {rate_in * seconds}",
        f"vllm:generation_tokens{total}{{{model}}} {rate_out * seconds}",
        f'vllm:request_success{total}{{{model},finished_reason="stop"}} {requests}',
        f"vllm:num_requests_waiting{{{model}}} {WAITING[pod]}",
        f"vllm:{usage}{{{model}}} {KV[pod]}",
        f'vllm:time_to_first_token_seconds_bucket{{{model},le="1"}} {0.9 * requests}',
        f'vllm:time_to_first_token_seconds_bucket{{{model},le="2"}} {requests}',
        f'vllm:time_to_first_token_seconds_bucket{{{model},le="+Inf"}} {requests}',
        f"vllm:time_to_first_token_seconds_count{{{model}}} {requests}",
        f"gpu_busy{{{model}}} 0.7",
    ]
    if pod != "code-a":
        lines.append(f"vllm:prompt_tokens_cached_total{{{model}}} {0.2 * rate_in * seconds}")
    return "".join(f"{line} {round(now_s * 1000)}\n" for line in lines)


def workloads() -> str:
    lines = []
    for name, (wanted, ready) in SCALED["deployment"].items():
        labels = f'namespace="llm",deployment="{name}"'
        lines.append(f"kube_deployment_spec_replicas{{{labels}}} {wanted}")
        lines.append(f"kube_deployment_status_replicas_ready{{{labels}}} {ready}")
    lines.append('kube_pod_deletion_timestamp{namespace="llm",pod="assistants-7d9c6b8f5d-x2x4z"} 1')
    return "\n".join(lines) + "\n"


class Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/")
        body = (workloads() if name == "kube" else exposed(name, time.time())).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def exporter() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def project(folder: Path, url: str) -> Project:
    file = folder / "floorcast.yaml"
    file.write_text(CONFIG.format(url=url))
    return load_project(file, environment={})


@pytest.fixture(scope="module")
def told(
    tools: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveReading, LiveReading, Project, Board]]:
    """What was read after ten seconds of scraping, what then with the server gone, the project, and what its service
    decided before that."""
    tools.needs("prometheus")
    folder = tmp_path_factory.mktemp("live")
    with exporter() as port:

        def job(name: str, path: str, **labels: str) -> dict[str, Any]:
            target = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
            return {"job_name": name, "metrics_path": path, "static_configs": [target]}

        jobs = [job(pod, f"/{pod}", namespace="llm", pod=pod) for pod in PODS]
        # The same replica by another way: counted once.
        jobs += [job("again", "/chat-a", namespace="llm", pod="chat-a"), job("kube", "/kube") | {"honor_labels": True}]
        scrape = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs}
        with tools.prometheus(folder, yaml.safe_dump(scrape)) as url:
            made = project(folder, url)
            reader = LiveReader(made)
            until = time.monotonic() + 60
            while True:
                time.sleep(2)
                before = reader.read()
                if not np.isnan(before.signals.live[Kind.TTFT_P95_S]).any() or time.monotonic() > until:
                    break
            # Until a rate's window is full of samples.
            time.sleep(12)
            before = reader.read()
            write_overlay_facts(facts(), made.output)
            loop = Loop(made, lambda: made)
            board = loop.once()
            loop.close()
        after = reader.read()
        reader.close()
        yield before, after, made, board


def facts() -> OverlayFacts:
    """A week in which assistants had a load of 1.75 replicas all along but for 12 from now to half an hour later."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    load = np.full(7 * 288, 1.75)
    for begins in range(0, len(load), 288):
        load[begins : begins + 6] = 12.0
    past = PastLoad(start=now - timedelta(days=7), step_s=300, load=tuple(load.tolist()))
    return OverlayFacts(as_of=now, past={"assistants": past})


def figure(reading: LiveReading, kind: Kind) -> list[float]:
    return [round(float(value), 6) for value in reading.signals.live[kind]]


def test_every_source_answers(told: tuple[LiveReading, LiveReading, Project, Board]) -> None:
    reading, _, _, _ = told
    assert [(one.name, one.fault) for one in reading.sources] == [("prod", None)]
    assert reading.faults == ()


def test_token_rates_of_all_classes_add_up_without_cached_tokens(told: tuple[LiveReading, ...]) -> None:
    """assistants: (1000 + 500 + 300) x 0.8 = 1440 in, 350 out; coders, whose engine counts no cached ones: 800, 400."""
    reading = told[0]
    assert figure(reading, Kind.TOKENS_IN_PER_S) == pytest.approx([1440, 800], rel=0.1)
    assert figure(reading, Kind.TOKENS_OUT_PER_S) == pytest.approx([350, 400], rel=0.1)


def test_what_waits_counts_in_requests_and_tokens(told: tuple[LiveReading, ...]) -> None:
    """12 requests of 80 tokens to compute each; as 18 requests a second make 350 tokens, 19.4 of answers each."""
    reading = told[0]
    assert figure(reading, Kind.WAITING_REQUESTS) == [12, 0]
    assert figure(reading, Kind.WAITING_TOKENS_IN) == pytest.approx([12 * 80, 0], rel=0.1)
    assert figure(reading, Kind.WAITING_TOKENS_OUT) == pytest.approx([12 * 350 / 18, 0], rel=0.1)


def test_cache_use_is_a_mean_of_replicas_and_latency_a_quantile_of_all(told: tuple[LiveReading, ...]) -> None:
    """(0.9 + 0.5 + 0.1) / 3; p95 half-way through the bucket of 1 to 2 s that holds the last tenth."""
    reading = told[0]
    assert figure(reading, Kind.KV_CACHE_USAGE) == [0.5, 0.3]
    assert figure(reading, Kind.TTFT_P95_S) == pytest.approx([1.5, 1.5], rel=0.05)


def test_a_query_of_the_users_own_names_the_pool(told: tuple[LiveReading, ...]) -> None:
    busy = told[0].signals.live[Kind.GPU_UTILIZATION]
    assert busy[0] == pytest.approx(0.7)
    assert np.isnan(busy[1])


def test_replicas_are_those_of_the_workloads(told: tuple[LiveReading, ...]) -> None:
    """3 engines tell of assistants' 3 ready pods; 5 are asked for, so that 2 start; one is being deleted."""
    signals = told[0].signals
    assert signals.ready.tolist() == [3, 1]
    assert signals.starting.tolist() == [2, 0]
    assert signals.draining.tolist() == [1, 0]
    assert signals.requested.tolist() == [5, 1]


def test_every_value_is_as_old_as_its_samples(told: tuple[LiveReading, ...]) -> None:
    """Scraped every two seconds; a busy machine may miss some."""
    reading = told[0]
    known = ~np.isnan(reading.signals.live)
    assert known[Kind.TOKENS_IN_PER_S].all()
    assert (reading.signals.age_s[known] < 15).all()
    assert (reading.signals.age_s[Kind.WAITING_REQUESTS] > 0).all()


def test_without_the_server_all_is_missing_and_the_source_says_why(told: tuple[LiveReading, ...]) -> None:
    before, after = told[:2]
    assert np.isnan(after.signals.live).all()
    assert np.isnan(after.signals.ready).all()
    [health] = after.sources
    assert health.fault is not None
    assert "the connection failed" in health.fault
    assert health.last_success_at == before.sources[0].last_success_at


def test_a_pool_that_looks_ahead_is_ready_for_what_every_day_brought(
    told: tuple[LiveReading, LiveReading, Project, Board],
) -> None:
    """In two minutes each day went on with 12, which 3 replicas are to bear; coders have no past to look at."""
    decisions = told[3].decisions
    votes = {name: {one["name"]: one for one in decisions[name].triggers} for name in ("assistants", "coders")}
    assert votes["assistants"]["lookahead"]["value"] == pytest.approx(12 / 3, rel=0.1)
    assert votes["assistants"]["lookahead"]["vote"] == "out"
    assert votes["coders"]["lookahead"]["value"] == pytest.approx(votes["coders"]["backlog"]["value"])
