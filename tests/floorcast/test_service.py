"""The configuration's `service`."""

import pytest

from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

BASE = """
pools:
  chat:
    gpu: {type: H100, per_replica: 1}
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 1, max: 4}
classes: {chat: {pools: [chat], match: {model_name: a}}}
"""
SOURCE = 'sources: [{name: prod, kind: prometheus, url: "http://prometheus:9090"}]\n'
QUERY = 'service: {queries: {gpu_utilization: {promql: "gpu"%s}}}\n'


def parsed(text: str):
    return parse_config(BASE + text, file="floorcast.yaml", environment={}).service


def test_ticks_every_15_seconds_on_the_loopback_address_unless_told() -> None:
    service = parsed("")
    assert (service.host, service.port, service.tick.total_seconds()) == ("127.0.0.1", 8480, 15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("service: {tick: 10m}\n", "tick 10m is not from 100ms to 5m"),
        ("service: {tick: 0s}\n", "tick 0s is not from"),
        ("service: {timeout: 0s}\n", "timeout is under 100ms"),
        ("service: {porrt: 80}\n", "did you mean `port`"),
        ("service: {host: 0.0.0.0, grpc_port: 9090}\n", "gRPC on 0.0.0.0 would serve any client"),
        ("service: {host: '::', grpc_port: 9090, grpc_tls: {cert: a, key: b}}\n", "give `grpc_tls` with `client_ca`"),
        (QUERY % "", "the Prometheus sources are none"),
        (SOURCE + QUERY % ", source: prd", "asks source prd, and the Prometheus sources are prod"),
    ],
)
def test_what_cannot_be_run_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parsed(text)


def test_a_query_asks_the_only_source_there_is() -> None:
    assert parsed(SOURCE + QUERY % "").queries["gpu_utilization"].source is None


@pytest.mark.parametrize(
    "service", ["grpc_port: 9090", "host: 0.0.0.0, grpc_port: 9090, grpc_tls: {cert: a, key: b, client_ca: c}"]
)
def test_grpc_is_for_this_machine_or_for_clients_with_a_certificate(service: str) -> None:
    assert parsed(f"service: {{{service}}}\n").grpc_port == 9090
