"""One replica of a serving engine, as seen by a scraper: vLLM's metric names over HTTP, tokens by a known law.

`python exporter.py SPEC` with a JSON object: port, model, pod, lives (a folder), origin and epoch (seconds since 1970),
speed, names ("new" or "old"). Virtual time is origin + (now - epoch) * speed; at a speed other than 1 samples carry it.
On SIGTERM the replica drains: it counts no more, is scraped for a while, and ends. When it was born and when it stopped
counting is written to a file in `lives`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

MEAN = {"tokens_in": 900.0, "tokens_out": 350.0, "requests": 2.0}
PERIOD_S = 600.0
NAMES = {
    "new": {
        "tokens_in": "vllm:prompt_tokens",
        "tokens_out": "vllm:generation_tokens",
        "kv": "vllm:kv_cache_usage_perc",
    },
    "old": {
        "tokens_in": "vllm:prompt_tokens",
        "tokens_out": "vllm:generation_tokens",
        "kv": "vllm:gpu_cache_usage_perc",
    },
}
DRAIN_S = 2.5


def counted(metric: str, low: float, high: float) -> float:
    """What a replica counts from `low` to `high`, seconds since 1970: a wave about its mean."""
    turn = 2 * math.pi / PERIOD_S
    return MEAN[metric] * (high - low + 0.5 / turn * (math.cos(turn * low) - math.cos(turn * high)))


class Replica(Collector):
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.born = self.now()
        self.stopped: float | None = None
        self.file = Path(spec["lives"]) / f"{spec['pod']}-{os.getpid()}.json"
        self.write()

    def now(self) -> float:
        return float(self.spec["origin"] + (time.time() - self.spec["epoch"]) * self.spec["speed"])

    def write(self) -> None:
        life = {key: self.spec[key] for key in ("model", "pod")} | {"born": self.born, "stopped": self.stopped}
        self.file.write_text(json.dumps(life))

    def drain(self) -> None:
        self.stopped = self.now()
        self.write()

    def collect(self) -> Iterator[Metric]:
        now = self.now()
        until = now if self.stopped is None else self.stopped
        stamp = None if self.spec["speed"] == 1 else now
        names, labels, values = NAMES[self.spec["names"]], ["model_name", "engine"], [self.spec["model"], "0"]
        for metric in ("tokens_in", "tokens_out"):
            counter = CounterMetricFamily(names[metric], metric, labels=labels)
            counter.add_metric(values, counted(metric, self.born, until), timestamp=stamp)
            yield counter
        done = CounterMetricFamily("vllm:request_success", "finished", labels=[*labels, "finished_reason"])
        total = counted("requests", self.born, until)
        for reason, share in (("stop", 0.9), ("length", 0.1)):
            done.add_metric([*values, reason], total * share, timestamp=stamp)
        yield done
        for name, value in (("vllm:num_requests_running", 12), ("vllm:num_requests_waiting", 3), (names["kv"], 0.41)):
            gauge = GaugeMetricFamily(name, name, labels=labels)
            gauge.add_metric(values, value, timestamp=stamp)
            yield gauge
        first = HistogramMetricFamily("vllm:time_to_first_token_seconds", "time to first token", labels=labels)
        buckets = [("0.1", 0.0), ("0.2", total * 0.9), ("0.4", total), ("+Inf", total)]
        first.add_metric(values, buckets, sum_value=total * 0.15, timestamp=stamp)
        yield first


def main() -> None:
    replica, ending = Replica(json.loads(sys.argv[1])), threading.Event()
    registry = CollectorRegistry()
    registry.register(replica)
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    start_http_server(replica.spec["port"], addr="127.0.0.1", registry=registry)
    ending.wait()
    replica.drain()
    time.sleep(DRAIN_S)


if __name__ == "__main__":
    main()
