from __future__ import annotations

import copy
import importlib.util
import ipaddress
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from floorcast.config import Config
from floorcast.parsing import parse_config
from pipelines.publishers.kubernetes import Kubernetes
from pipelines.publishers.kubernetes_rbac import roles
from pipelines.publishers.outcome import Outcome, Wanted

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
TOKEN = "a-token-of-the-service-account"
CONFIG = """
mode: {mode}
pools:
  chat-70b:
    gpu: {{type: H100, per_replica: 2}}
    capacity: {{prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}}
    startup: {{p90: 4m}}
    bounds: {{min: 2, max: 40}}
    target: {{namespace: llm}}
  code-8b:
    gpu: {{type: L40S}}
    capacity: {{prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}}
    startup: {{p90: 2m}}
    bounds: {{min: 0, max: 6}}
    scale_to_zero: {{wake_up: 10m, below_tokens_per_s: 5}}
    target: {{namespace: code}}
classes:
  chat: {{kind: chat, pools: [chat-70b]}}
  code: {{kind: code_generation, pools: [code-8b]}}
publishers:
  - kind: kubernetes
    object: {object}
    {kubeconfig}
    timeout: {timeout}
    deadline: {deadline}
"""
OBJECTS = {
    "scaled_object": {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "chat-70b", "namespace": "llm", "labels": {"team": "llm"}},
        "spec": {
            "scaleTargetRef": {"name": "vllm-chat"},
            "maxReplicaCount": 40,
            "cooldownPeriod": 300,
            "triggers": [{"type": "prometheus", "metadata": {"query": "up", "threshold": "5"}}],
        },
    },
    "hpa": {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "chat-70b", "namespace": "llm", "labels": {"team": "llm"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllm-chat"},
            "maxReplicas": 40,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
                }
            ],
        },
    },
}


def _beside(name: str) -> ModuleType:
    """A module in this folder: tests are no package, and do not import each other."""
    spec = importlib.util.spec_from_file_location(f"kubernetes_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def standin() -> ModuleType:
    return _beside("standin")


@pytest.fixture(scope="session")
def ownership() -> ModuleType:
    return _beside("ownership")


@pytest.fixture(scope="session")
def wire() -> ModuleType:
    return _beside("wire")


def _certificate(folder: Path) -> tuple[str, str]:
    """A self-signed certificate of 127.0.0.1 and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
    made = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - timedelta(days=1))
        .not_valid_after(made + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return _certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _certificate(tmp_path_factory.mktemp("other-tls"))[0]


class Cluster:
    """A stand-in that serves, what a test does in it, and the publisher pointed at it."""

    def __init__(self, api: Any, wire: Any, standin: ModuleType, folder: Path, certificate: str) -> None:
        self.api, self.wire, self.standin, self.folder = api, wire, standin, folder
        self.state = api.state
        self.api_now = NOW
        self.object = "scaled_object"
        # Long enough for a busy machine; a test of a limit sets its own.
        self.timeout, self.deadline = "30s", "2m"
        self.kubeconfig: Path | None = self.write_kubeconfig(certificate)
        self.state.tokens[TOKEN] = "system:serviceaccount:floorcast:floorcast"

    def write_kubeconfig(self, certificate: str, *, token: str = TOKEN) -> Path:
        path = self.folder / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{self.wire.port}",
                        "certificate-authority": certificate,
                    },
                }
            ],
            "users": [{"name": "floorcast", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "floorcast"}}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def config_text(self, *, mode: str = "apply", extra: str = "") -> str:
        kubeconfig = f"kubeconfig: {self.kubeconfig}" if self.kubeconfig else ""
        text = CONFIG.format(
            mode=mode, object=self.object, kubeconfig=kubeconfig, timeout=self.timeout, deadline=self.deadline
        )
        return text + extra

    def config(self, *, mode: str = "apply", extra: str = "") -> Config:
        return parse_config(self.config_text(mode=mode, extra=extra), file="floorcast.yaml", environment={})

    def allow(self, *, mode: str = "apply", extra: str = "") -> None:
        """Exactly what `floorcast rbac` prints."""
        config = self.config(mode=mode, extra=extra)
        self.state.manifests[:] = roles(
            config.publishers[0], config, service_account="floorcast", namespace="floorcast"
        )

    def make(self, *, minimum: int | None = None, by: str = "git", operation: str = "Apply", **spec: Any) -> Any:
        """The object of chat-70b, whose minimum another manager holds where it is given."""
        document = copy.deepcopy(OBJECTS[self.object])
        document["spec"] |= spec
        if minimum is not None:
            document["spec"][self.minimum] = minimum
        return self.api.create(document, manager=by, operation=operation)

    @property
    def minimum(self) -> str:
        return {"scaled_object": "minReplicaCount", "hpa": "minReplicas"}[self.object]

    @property
    def maximum(self) -> str:
        return {"scaled_object": "maxReplicaCount", "hpa": "maxReplicas"}[self.object]

    def fault(self, what: str, **settings: Any) -> None:
        self.state.faults.append(self.standin.Fault(what, **settings))

    def publish(
        self,
        *replicas: int,
        mode: str = "apply",
        now: datetime = NOW,
        extra: str = "",
        pools: tuple[str, ...] = (),
        only_raises: bool = False,
    ) -> Outcome | list[Outcome]:
        """What the publisher does for chat-70b, or for `pools`."""
        names = pools or ("chat-70b",)
        config = self.config(mode=mode, extra=extra)
        outcomes = Kubernetes(config.publishers[0], config).publish(
            [
                wanted_of(name, number).model_copy(update={"only_raises": only_raises})
                for name, number in zip(names, replicas, strict=True)
            ],
            apply=mode == "apply",
            now=now,
        )
        return outcomes if pools else outcomes[0]

    def verbs(self) -> list[str]:
        return [request.verb for request in self.state.requests]


def wanted_of(pool: str, replicas: int) -> Wanted:
    return Wanted(
        pool=pool,
        replicas=replicas,
        floor=replicas,
        max_replicas=40,
        version=42,
        valid_until=NOW + timedelta(hours=2),
        reason="21300 tokens_out/s",
    )


@pytest.fixture
def cluster(
    standin: ModuleType, ownership: ModuleType, wire: ModuleType, certificate: tuple[str, str], tmp_path: Path
) -> Iterator[Cluster]:
    """A cluster with KEDA and nothing in it; nobody may have forced, or asked for anything else."""
    api = standin.ApiServer(ownership)
    served = wire.Wire(api, standin, *certificate)
    made = Cluster(api, served, standin, tmp_path, certificate[0])
    made.allow()
    yield made
    served.stop()
    assert not api.state.improper


@pytest.fixture(params=["scaled_object", "hpa"])
def either(cluster: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The same with the objects of KEDA, and with plain ones."""
    cluster.object = request.param
    cluster.allow()
    return cluster


@pytest.fixture(scope="session")
def wanted() -> Callable[[str, int], Wanted]:
    return wanted_of


@pytest.fixture(scope="session")
def without() -> Callable[[Any, set[tuple[str, ...]]], Any]:
    """A copy of a document without the fields at some paths."""

    def remove(document: Any, paths: set[tuple[str, ...]]) -> Any:
        document = copy.deepcopy(document)
        for *above, last in paths:
            at = document
            for key in above:
                at = at.get(key, {})
            at.pop(last, None)
        return document

    return remove
