"""KEDA's side of the external scaler: a client generated from the interface, over a real socket."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from floorcast.errors import ConfigError
from pipelines.service.board import Board, PoolDecision, Publication
from pipelines.service.external_scaler import METRIC, Tls, start_scaler
from pipelines.service.generated import externalscaler_pb2 as messages

ROOT = Path(__file__).parents[3]
PROTO = "pipelines/service/generated/externalscaler.proto"
NOW = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)

FIELDS = {
    "ScaledObjectRef": {"name": 1, "namespace": 2, "scalerMetadata": 3},
    "IsActiveResponse": {"result": 1},
    "GetMetricSpecResponse": {"metricSpecs": 1},
    "MetricSpec": {"metricName": 1, "targetSize": 2, "targetSizeFloat": 3},
    "GetMetricsRequest": {"scaledObjectRef": 1, "metricName": 2},
    "GetMetricsResponse": {"metricValues": 1},
    "MetricValue": {"metricName": 1, "metricValue": 2, "metricValueFloat": 3},
}
"""As in KEDA's own definition."""


def decision(pool: str, *, floor: int, desired: int) -> PoolDecision:
    return PoolDecision(
        pool=pool,
        decided_at=NOW,
        desired=desired,
        floor=floor,
        floor_source="schedule",
        ceiling=40,
        current=None,
        ready=None,
        starting=None,
        draining=None,
        alert=False,
        lost=(),
        triggers=(),
        rules=(),
        words="",
        window=None,
    )


def board_of(*decisions: PoolDecision) -> Board:
    return Board(
        now=NOW,
        started_at=NOW,
        ticks=1,
        tick_seconds=0.01,
        publication=Publication(schedule=None),
        decisions={one.pool: one for one in decisions},
    )


class Boards:
    """What the loop would put there."""

    def __init__(self) -> None:
        self.now: Board | None = board_of(
            decision("chat-70b", floor=7, desired=9),
            decision("big", floor=21, desired=21),
            decision("idle", floor=0, desired=0),
        )

    def __call__(self) -> Board | None:
        return self.now

    def put(self, one: PoolDecision) -> None:
        assert self.now is not None
        self.now = replace(self.now, decisions={**self.now.decisions, one.pool: one})


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the compiler makes of the interface today."""
    folder = tmp_path_factory.mktemp("generated")
    outs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outs, PROTO], cwd=ROOT, check=True)
    return (folder / PROTO).parent


@pytest.fixture(scope="session")
def stubs(generated: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("keda_client", generated / "externalscaler_pb2_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def boards() -> Boards:
    return Boards()


@pytest.fixture
def client(boards: Boards, stubs: ModuleType) -> Iterator[Any]:
    scaler = start_scaler(boards, "127.0.0.1:0")
    with grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        yield stubs.ExternalScalerStub(channel)
    scaler.stop()


def ref(name: str = "chat-70b", **metadata: str) -> messages.ScaledObjectRef:
    return messages.ScaledObjectRef(name=name, namespace="llm", scalerMetadata=metadata)


def value(client: Any, asked: messages.ScaledObjectRef) -> float:
    request = messages.GetMetricsRequest(scaledObjectRef=asked, metricName=METRIC)
    [metric] = client.GetMetrics(request, timeout=10).metricValues
    assert metric.metricName == METRIC
    return metric.metricValueFloat


def error_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["externalscaler_pb2.py", "externalscaler_pb2.pyi"])
def test_the_generated_code_is_what_the_interface_gives(generated: Path, kind: str) -> None:
    committed = ROOT / PROTO
    made = (generated / kind).read_text()
    assert (committed.parent / kind).read_text() == made, (
        f"regenerate: .venv/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. {PROTO}"
    )


def test_names_and_field_numbers_are_those_of_keda() -> None:
    file = messages.DESCRIPTOR
    assert file.package == "externalscaler"
    found = {name: {f.name: f.number for f in kind.fields} for name, kind in file.message_types_by_name.items()}
    assert found == FIELDS
    types = {f.name: f.type for f in file.message_types_by_name["MetricValue"].fields}
    assert types["metricValueFloat"] == types["metricValue"] - 2 == 1  # double and int64
    [service] = file.services_by_name.values()
    assert service.full_name == "externalscaler.ExternalScaler"
    assert [method.name for method in service.methods] == ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"]


def test_the_metric_asks_for_one_replica_for_each_one_of_it(client: Any) -> None:
    [spec] = client.GetMetricSpec(ref(), timeout=10).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat, spec.targetSize) == (METRIC, 1.0, 0)


def test_a_floor_is_the_value_of_the_pool_called_as_the_scaled_object(client: Any) -> None:
    assert value(client, ref()) == 7


def test_a_trigger_may_name_its_pool_and_ask_for_the_decision(client: Any) -> None:
    assert value(client, ref("chat-scaler", pool="chat-70b", value="decision")) == 9


def test_a_floor_is_raised_past_the_tolerance_unless_the_trigger_says_otherwise(client: Any) -> None:
    """1.1 x 20 = 22, so 23 is the least that moves 20 replicas; 1.05 x 20 = 21, so 22."""
    assert value(client, ref("big")) == 23
    assert value(client, ref("big", tolerance="0.05")) == 22
    assert value(client, ref("big", tolerance="0")) == 21


def test_a_decision_under_the_floor_is_never_given(boards: Boards, client: Any) -> None:
    boards.put(decision("chat-70b", floor=7, desired=3))
    assert value(client, ref(value="decision")) == 7


def test_a_pool_is_active_while_it_wants_any_replica(client: Any) -> None:
    assert client.IsActive(ref(), timeout=10).result is True
    assert client.IsActive(ref("idle"), timeout=10).result is False


def test_a_stream_tells_at_once_and_then_of_each_change(boards: Boards, client: Any) -> None:
    stream = client.StreamIsActive(ref("idle"), timeout=20)
    assert next(stream).result is False
    boards.put(decision("idle", floor=2, desired=2))
    assert next(stream).result is True
    boards.put(decision("idle", floor=0, desired=0))
    assert next(stream).result is False
    stream.cancel()


def test_an_unknown_pool_is_not_found_and_the_nearest_is_named(client: Any) -> None:
    code, details = error_of(lambda: value(client, ref("chat-7b")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "no pool chat-7b" in details
    assert "did you mean chat-70b?" in details
    assert error_of(lambda: next(client.StreamIsActive(ref("chat-7b"), timeout=10)))[0] is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("nothing", [None, board_of()], ids=["no tick", "no decision"])
def test_before_the_first_decision_there_is_no_answer_rather_than_zero(
    boards: Boards, client: Any, nothing: Board | None
) -> None:
    boards.now = nothing
    for call in (lambda: value(client, ref()), lambda: client.IsActive(ref()), lambda: client.GetMetricSpec(ref())):
        assert error_of(call)[0] is grpc.StatusCode.UNAVAILABLE


def test_metadata_that_make_no_sense_are_refused(client: Any) -> None:
    for metadata in ({"value": "max"}, {"tolerance": "1.5"}, {"tolerance": "ten"}, {"tolerance": "nan"}):
        code, details = error_of(lambda metadata=metadata: value(client, ref(**metadata)))  # type: ignore[misc]
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert next(iter(metadata.values())) in details
    request = messages.GetMetricsRequest(scaledObjectRef=ref(), metricName="other")
    assert error_of(lambda: client.GetMetrics(request))[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_calls_above_the_limit_are_refused_and_served_again_after(boards: Boards, stubs: ModuleType) -> None:
    scaler = start_scaler(boards, "127.0.0.1:0", most_calls=3, most_streams=3)
    with grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        client = stubs.ExternalScalerStub(channel)
        streams = [client.StreamIsActive(ref(), timeout=20) for _ in range(3)]
        assert all(next(stream).result for stream in streams)
        assert error_of(lambda: value(client, ref()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        for stream in streams:
            stream.cancel()
        retried = threading.Event()
        for _ in range(50):
            if not retried.wait(0.1):
                try:
                    assert value(client, ref()) == 7
                except grpc.RpcError:
                    continue
                break
        else:
            pytest.fail("never served again")
    scaler.stop()


def test_streams_above_their_limit_are_refused_and_other_calls_served(boards: Boards, stubs: ModuleType) -> None:
    """2 streams of at most 2, again after one ends; a refused one does not count."""
    scaler = start_scaler(boards, "127.0.0.1:0", most_calls=10, most_streams=2)
    with grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        client = stubs.ExternalScalerStub(channel)
        streams = [client.StreamIsActive(ref(), timeout=20) for _ in range(2)]
        assert all(next(stream).result for stream in streams)
        for _ in range(2):
            code, details = error_of(lambda: next(client.StreamIsActive(ref(), timeout=20)))
            assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "2 streams are open")
        assert value(client, ref()) == 7
        streams[0].cancel()
        retried = threading.Event()
        for _ in range(50):
            try:
                assert next(client.StreamIsActive(ref(), timeout=20)).result
                break
            except grpc.RpcError:
                retried.wait(0.1)
        else:
            pytest.fail("never served again")
    scaler.stop()


def test_stopping_ends_open_streams_and_frees_the_port(boards: Boards, stubs: ModuleType) -> None:
    scaler = start_scaler(boards, "127.0.0.1:0")
    with grpc.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        stream = stubs.ExternalScalerStub(channel).StreamIsActive(ref(), timeout=20)
        assert next(stream).result
        scaler.stop()
        assert list(stream) == []
    again = start_scaler(boards, f"127.0.0.1:{scaler.port}")
    assert again.port == scaler.port
    again.stop()


def test_a_port_in_use_is_told_with_what_to_do(boards: Boards) -> None:
    scaler = start_scaler(boards, "127.0.0.1:0")
    with pytest.raises(ConfigError, match=r"service\.grpc_port"):
        start_scaler(boards, f"127.0.0.1:{scaler.port}")
    scaler.stop()


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's and a client's certificate, both signed by themselves."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "client"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
            ],
            check=True,
            capture_output=True,
        )
    return folder


def test_with_tls_only_clients_with_a_certificate_are_served(boards: Boards, stubs: ModuleType, pki: Path) -> None:
    tls = Tls(cert=pki / "server.crt", key=pki / "server.key", client_ca=pki / "client.crt")
    scaler = start_scaler(boards, "localhost:0", tls=tls)
    root, key, cert = ((pki / name).read_bytes() for name in ("server.crt", "client.key", "client.crt"))
    with grpc.secure_channel(f"localhost:{scaler.port}", grpc.ssl_channel_credentials(root, key, cert)) as channel:
        assert value(stubs.ExternalScalerStub(channel), ref()) == 7
    for stranger in (grpc.ssl_channel_credentials(root), None):
        target = f"localhost:{scaler.port}"
        with grpc.secure_channel(target, stranger) if stranger else grpc.insecure_channel(target) as channel:
            code, _ = error_of(lambda channel=channel: value(stubs.ExternalScalerStub(channel), ref()))  # type: ignore[misc]
            assert code is grpc.StatusCode.UNAVAILABLE
    scaler.stop()


def test_a_certificate_that_is_not_there_is_named(boards: Boards, pki: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.crt"):
        start_scaler(boards, "127.0.0.1:0", tls=Tls(cert=pki / "missing.crt", key=pki / "server.key"))
