"""What two servers scraped live from a churning fleet, against what its replicas counted.

What nobody can know remains: tokens counted between a replica's last scrape and its kill, one scrape interval of one
replica at the most, are lost.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from floorcast.source import PrometheusSource
from floorcast.workload import WorkloadClass
from pipelines.sources.prometheus import examine, import_prometheus
from pipelines.sources.prometheus.client import PrometheusClient

pytestmark = pytest.mark.server

MINUTE = timedelta(minutes=1)
MODELS = {"chat": "llama-70b", "real": "real"}
CLASSES = {name: WorkloadClass(pools=("pool",), match={"model_name": model}) for name, model in MODELS.items()}
METRICS = ("tokens_in", "tokens_out", "requests")
NAMES = {"prometheus": "vllm_prompt_tokens_total", "victoria_metrics": "vllm:prompt_tokens_total"}


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def read(server: str, fleet: Any) -> Any:
    def call(name: str, start: datetime, end: datetime, **keys: Any) -> pl.DataFrame:
        document = {"name": "live", "kind": "prometheus", "url": fleet.urls[server]} | keys
        source = PrometheusSource.model_validate(document)
        chunks = import_prometheus(source, classes={name: CLASSES[name]}, step=MINUTE, start=start, end=end)
        return pl.concat([chunk.demand for chunk in chunks])

    return call


@pytest.fixture(scope="module")
def chat(read: Any, fleet: Any) -> pl.DataFrame:
    """Steps of a minute of virtual time, as read and as counted; `minute` since the beginning, less its edge."""
    demand = read("chat", fleet.start_time + MINUTE, fleet.end_time, scrape_interval="20s")
    starts = [moment.timestamp() for moment in demand["step_start"]]
    truth = {f"true_{m}": pl.Series([fleet.truth("llama-70b", m, low, low + 60) for low in starts]) for m in METRICS}
    minute = (pl.col("step_start") - fleet.start_time).dt.total_minutes()
    return demand.with_columns(**truth, minute=minute)


def around(fleet: Any, event: str) -> list[int]:
    """The minute of an event, that of the last scrape before it, and that of the first after it."""
    moment = (fleet.events[event] - fleet.start_time) / MINUTE
    return sorted({int(moment - 0.5), int(moment), int(moment + 0.5)})


@pytest.mark.parametrize("metric", METRICS)
def test_each_minute_agrees_with_what_was_counted(chat: pl.DataFrame, fleet: Any, metric: str) -> None:
    """Through a rollout, copies from a second job, and an old name beside the new. The truth lies between what was
    read and what that comes to if the unobserved share was like the rest, give or take a percent."""
    killed = around(fleet, "killed and restarted") + around(fleet, "killed for good")
    silent = range(around(fleet, "silent")[0], around(fleet, "heard again")[-1] + 1)
    assert chat.height >= 17
    calm = chat.filter(~pl.col("minute").is_in([*killed, *silent]))
    assert calm.height >= 8
    assert (calm[metric] <= calm[f"true_{metric}"] * 1.01).all()
    assert (calm[metric] / calm["observed_fraction"] >= calm[f"true_{metric}"] * 0.99).all()


def test_a_kill_costs_what_was_counted_since_the_last_scrape(chat: pl.DataFrame, fleet: Any) -> None:
    """One replica at its peak for one interval (and what a busy machine adds); never more, and nothing is invented."""
    most = 900 * 1.5 * 20 * 1.3
    for event in ("killed and restarted", "killed for good"):
        steps = chat.filter(pl.col("minute").is_in(around(fleet, event)))
        lost = steps["true_tokens_in"].sum() - steps["tokens_in"].sum()
        assert -0.01 * steps["true_tokens_in"].sum() < lost < most + 0.01 * steps["true_tokens_in"].sum()


def test_a_replica_that_goes_silent_is_missing_not_idle(chat: pl.DataFrame, fleet: Any) -> None:
    """One of four is stopped, its counters unseen: a quarter is unobserved, and the rest tells the rate."""
    first, last = ((fleet.events[event] - fleet.start_time) / MINUTE for event in ("silent", "heard again"))
    inner = range(math.ceil(first), int(last))
    steps = chat.filter(pl.col("minute").is_in(inner))
    assert steps.height >= 1
    assert steps["observed_fraction"].to_list() == pytest.approx([0.75] * steps.height, abs=0.01)
    scaled = steps["tokens_out"] / steps["observed_fraction"]
    assert scaled.to_list() == pytest.approx(steps["true_tokens_out"].to_list(), rel=0.01)


def test_all_minutes_add_up_within_a_percent(chat: pl.DataFrame) -> None:
    for metric in METRICS:
        read = (chat[metric] / chat["observed_fraction"]).sum()
        assert read == pytest.approx(chat[f"true_{metric}"].sum(), rel=0.01)


def test_at_the_speed_of_clocks_all_tokens_since_the_first_scrape_are_read(read: Any, server: str, fleet: Any) -> None:
    """Two replicas, one restarted after it drained, scraped as they come, until both have drained and ended."""
    now = datetime.now(UTC)
    source = PrometheusSource.model_validate({"name": "live", "kind": "prometheus", "url": fleet.urls[server]})
    with PrometheusClient(source) as client:
        series = client.samples(f'{{__name__="{NAMES[server]}",model_name="real"}}', end=now, span=5 * MINUTE)
    firsts = {one.metric["pod"]: one.values[0][0] for one in series}
    assert set(firsts) == {"real-0", "real-1"}
    assert all(one.values[-1][0] - one.values[0][0] > 40 for one in series)
    low = datetime.fromtimestamp(fleet.epoch, UTC) - MINUTE
    demand = read("real", low, now + 5 * MINUTE, scrape_interval="1s", allowed_lateness="1s")
    for metric in METRICS:
        truth = sum(fleet.truth("real", metric, first, now.timestamp(), pod=pod) for pod, first in firsts.items())
        assert demand[metric].sum() == pytest.approx(truth, rel=0.01)


def test_counters_and_signals_are_found_by_the_name_the_server_keeps(server: str, fleet: Any) -> None:
    """Asked by Prometheus for OpenMetrics, Python's client library makes underscores of colons."""
    source = PrometheusSource.model_validate({"name": "live", "kind": "prometheus", "url": fleet.urls[server]})
    found = {one.workload_class: one for one in examine(source, CLASSES, datetime.now(UTC))}
    counters = {one.metric: one for one in found["chat"].counters}
    assert counters["tokens_in"].names == (NAMES[server],)
    assert counters["tokens_in"].first is not None
    signals = {one.signal: one for one in found["chat"].signals}
    assert signals["waiting_requests"].series == 5, "one of four replicas is scraped by two jobs"
    assert signals["waiting_requests"].value == 3 * 4
    assert signals["kv_cache_usage"].value == pytest.approx(0.41)
    assert signals["ttft_s"].value == pytest.approx(0.3, abs=0.02), "one in ten requests took 0.2 to 0.4 s"
    assert signals["e2e_s"].names == ()
    both = signals["kv_cache_usage"].names
    assert [name.replace(":", "_") for name in both] == ["vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc"]
