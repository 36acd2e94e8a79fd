"""What the fleet's replicas export: `python -m benchmarks.closed_loop.exporter FOLDER PORT`.

FOLDER holds a file of each pool, replaced as it advances. `/sd` is what Prometheus discovers by HTTP: every pod, those
too that load their model and do not answer yet. `/pods/NAME/metrics` speaks vLLM's names, `/kube-state-metrics` those
of kube-state-metrics.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from benchmarks.closed_loop.fleet import ITL_BUCKETS_S, SECONDS_PER_TOKEN, TTFT_BUCKETS_S

NAMESPACE = "llm"


def _buckets(bounds: tuple[float, ...], counts: list[float]) -> list[tuple[str, float]]:
    total, made = 0.0, []
    for bound, number in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        total += number
        made.append((bound, total))
    return made


class Pod(Collector):
    """A replica that answers: ready, or draining and then without a queue."""

    def __init__(self, pool: dict[str, Any], replica: dict[str, Any]) -> None:
        self.pool, self.replica = pool, replica

    def collect(self) -> Iterator[Metric]:
        labels, values = ["model_name", "engine"], [self.pool["pool"], "0"]
        serving = self.replica in self.pool["ready"]
        counters = {"prompt_tokens": "tokens_in", "generation_tokens": "tokens_out"}
        for name, key in counters.items():
            counter = CounterMetricFamily(f"vllm:{name}", key, labels=labels)
            counter.add_metric(values, self.replica[key])
            yield counter
        done = CounterMetricFamily("vllm:request_success", "finished", labels=[*labels, "finished_reason"])
        done.add_metric([*values, "stop"], self.replica["requests"])
        yield done
        gauges = {"num_requests_running": "running", "num_requests_waiting": "waiting", "kv_cache_usage_perc": "kv"}
        for name, key in gauges.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", key, labels=labels)
            gauge.add_metric(values, self.pool["gauges"][key] if serving else 0.0)
            yield gauge
        first = HistogramMetricFamily("vllm:time_to_first_token_seconds", "time to first token", labels=labels)
        first.add_metric(values, _buckets(TTFT_BUCKETS_S, self.replica["ttft"]), sum_value=self.replica["ttft_sum"])
        yield first
        each = HistogramMetricFamily("vllm:inter_token_latency_seconds", "inter-token latency", labels=labels)
        counts = [
            self.replica["tokens_out"] if low < SECONDS_PER_TOKEN <= high else 0.0
            for low, high in zip((0.0, *ITL_BUCKETS_S), (*ITL_BUCKETS_S, float("inf")), strict=True)
        ]
        each.add_metric(values, _buckets(ITL_BUCKETS_S, counts), sum_value=self.replica["itl_sum"])
        yield each


class KubeState(Collector):
    """Deployments and pods that go, as kube-state-metrics tells them."""

    def __init__(self, pools: list[dict[str, Any]]) -> None:
        self.pools = pools

    def collect(self) -> Iterator[Metric]:
        names = ("spec_replicas", "status_replicas", "status_replicas_ready")
        families = [
            GaugeMetricFamily(f"kube_deployment_{name}", name, labels=["namespace", "deployment"]) for name in names
        ]
        for pool in self.pools:
            ready, starting = len(pool["ready"]), len(pool["starting"])
            for family, value in zip(families, (pool["wanted"], ready + starting, ready), strict=True):
                family.add_metric([NAMESPACE, pool["pool"]], value)
        yield from families
        leaving = GaugeMetricFamily("kube_pod_deletion_timestamp", "leaving", labels=["namespace", "pod"])
        for pool in self.pools:
            for replica in pool["draining"]:
                leaving.add_metric([NAMESPACE, replica["name"]], 1.0)
        yield leaving


class Files:
    """The pools' files, each read again when it was replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, dict[str, Any]]] = {}

    def pools(self) -> list[dict[str, Any]]:
        return [self._pool(file) for file in sorted(self._folder.glob("*.json"))]

    def pod(self, name: str) -> Pod | None:
        """A replica that answers, by the name of its pod."""
        file = self._folder / f"{name.rsplit('-', 2)[0]}.json"
        pool = self._pool(file) if file.exists() else {"ready": (), "draining": ()}
        found = [one for one in (*pool["ready"], *pool["draining"]) if one["name"] == name]
        return Pod(pool, found[0]) if found else None

    def _pool(self, file: Path) -> dict[str, Any]:
        changed = file.stat().st_mtime_ns
        known = self._read.get(file)
        if known is None or known[0] != changed:
            known = changed, json.loads(file.read_text(encoding="utf-8"))
            self._read[file] = known
        return known[1]


class Handler(BaseHTTPRequestHandler):
    files: Files
    port: int
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/sd":
            self._answer(json.dumps(list(self._targets())).encode(), "application/json")
        elif self.path == "/kube-state-metrics":
            self._metrics(KubeState(self.files.pools()))
        elif pod := self.files.pod(self.path.removeprefix("/pods/").removesuffix("/metrics")):
            self._metrics(pod)
        else:
            self.send_error(503, "not listening yet")

    def _targets(self) -> Iterator[dict[str, Any]]:
        address = f"127.0.0.1:{self.port}"
        yield {"targets": [address], "labels": {"__metrics_path__": "/kube-state-metrics", "job": "kube-state-metrics"}}
        for pool in self.files.pools():
            running = [replica["name"] for replica in (*pool["ready"], *pool["draining"])]
            for name in (*running, *pool["starting"]):
                labels = {"__metrics_path__": f"/pods/{name}/metrics", "job": "vllm", "instance": f"{name}:8000"}
                labels |= {"namespace": NAMESPACE, "pod": name}
                yield {"targets": [address], "labels": labels}

    def _metrics(self, collector: Collector) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        self._answer(generate_latest(registry), "text/plain; version=0.0.4; charset=utf-8")

    def _answer(self, body: bytes, media_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: Prometheus asks often."""


def main() -> None:
    Handler.files, Handler.port = Files(Path(sys.argv[1])), int(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", Handler.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
