from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from cloudcoil.models.keda.v1alpha1 import ScaledObject

from floorcast.errors import NotFoundError, PublishError
from floorcast.publisher import KubernetesPublisher
from pipelines.publishers.manifests import horizontal_pod_autoscaler, scaled_object, short_reason, write_manifests

GOLDENS = Path(__file__).parent / "goldens"
NAMES = [f"{kind}/{pool}.yaml" for pool in ("chat-70b", "code-8b", "batch.405b") for kind in ("keda", "hpa")]


@pytest.fixture
def written(tmp_path, fleet, config):
    """The folder of manifests at 08:55."""
    write_manifests(fleet, config, tmp_path, fleet.issued_at + timedelta(minutes=5))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_manifests_are_as_reviewed(written, name):
    text = (written / name).read_text()
    golden = GOLDENS / name
    if os.environ.get("UPDATE_GOLDENS"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), (
        "if the change is meant: UPDATE_GOLDENS=1 .venv/bin/pytest tests/pipelines/publishers/test_manifests.py"
    )


def test_the_paths_of_all_pools_are_returned_and_nothing_else_is_written(tmp_path, fleet, config):
    paths = write_manifests(fleet, config, tmp_path, fleet.issued_at)
    assert [str(path.relative_to(tmp_path)) for path in paths] == NAMES
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(paths)


def test_manifests_of_pools_that_are_gone_are_removed_and_files_of_others_kept(written, fleet, config):
    gone = written / "keda" / "renamed.yaml"
    gone.write_text((written / "keda/chat-70b.yaml").read_text())
    own = written / "hpa" / "mine.yaml"
    own.write_text("kind: ConfigMap\n")
    write_manifests(fleet, config, written, fleet.issued_at)
    assert not gone.exists()
    assert own.exists()
    assert all((written / name).exists() for name in NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("hpa")])
def test_an_hpa_is_valid_for_kubernetes(written, name):
    """Against the API's own schemas, unknown keys refused, old and new."""
    manifest = yaml.safe_load((written / name).read_text())
    assert manifest["apiVersion"] == "autoscaling/v2"
    for version in ("1.27", kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("keda")])
def test_a_scaled_object_is_valid_for_keda(written, name):
    """KEDA's models ignore unknown keys, so a key that does not come back is one KEDA does not know."""
    manifest = yaml.safe_load((written / name).read_text())
    known = ScaledObject.model_validate(manifest).model_dump(by_alias=True, exclude_none=True, mode="json")
    assert known == manifest


@pytest.mark.parametrize(
    ("floor", "bounds", "minimums"),
    [
        (7, (2, 40), (7, 7)),
        (50, (2, 40), (40, 40)),  # the API rejects min above max
        (1, (2, 40), (2, 2)),  # planned under bounds since raised
        (0, (1, 40), (1, 1)),  # at 0 replicas an autoscaler is off
        (0, (0, 40), (0, 1)),  # scale to zero is for KEDA alone
        (3, (0, 40), (3, 3)),
    ],
)
def test_the_floor_is_the_minimum_inside_what_the_cluster_accepts(fleet, config, floor, bounds, minimums):
    """Minimums of the ScaledObject and of the HPA."""
    low, high = bounds
    pool = config.pools["chat-70b"]
    pool = pool.model_copy(update={"bounds": pool.bounds.model_copy(update={"min": low, "max": high})})
    window = fleet.pools["chat-70b"].windows[0].model_copy(update={"min_replicas": floor})
    keda = scaled_object("chat-70b", pool, window, fleet, prometheus_url="http://p:9090")["spec"]
    hpa = horizontal_pod_autoscaler("chat-70b", pool, window, fleet)["spec"]
    assert (keda["minReplicaCount"], hpa["minReplicas"]) == minimums
    assert (keda["maxReplicaCount"], hpa["maxReplicas"]) == (high, high)


def test_a_floor_that_may_exceed_the_maximum_raises_it(fleet, config):
    pool = config.pools["chat-70b"]
    pool = pool.model_copy(update={"bounds": pool.bounds.model_copy(update={"exceed_by": 5})})
    window = fleet.pools["chat-70b"].windows[0].model_copy(update={"min_replicas": 43})
    keda = scaled_object("chat-70b", pool, window, fleet, prometheus_url="http://p:9090")["spec"]
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (43, 43)


@pytest.mark.parametrize(("minutes", "floor"), [(0, 14), (5, 14), (14, 14), (15, 13), (19, 13)])
def test_the_manifest_holds_the_floor_due(tmp_path, fleet, config, minutes, floor):
    """Before the first window (08:55) its floor is asked for already."""
    write_manifests(fleet, config, tmp_path, fleet.issued_at + timedelta(minutes=minutes))
    keda = yaml.safe_load((tmp_path / "keda/chat-70b.yaml").read_text())
    assert keda["spec"]["minReplicaCount"] == floor


@pytest.mark.parametrize(
    ("name", "matched", "others"),
    [
        ("chat-70b", ["chat-70b-6f7c9d5b8-x2x4k"], ["chat-70b-canary-6f7c9d5b8-x2x4k", "chat-70b-0"]),
        ("code-8b", ["vllm-code-0", "vllm-code-11"], ["vllm-code-0-1", "code-8b-0"]),
        ("batch.405b", ["batch.405b-0"], ["batchx405b-0", "batch.405b-0-1"]),
    ],
)
def test_the_trigger_reads_the_pods_of_its_own_target_only(fleet, config, name, matched, others):
    """PromQL anchors its patterns; a LeaderWorkerSet's requests wait at its leader."""
    window = fleet.pools[name].windows[0]
    keda = scaled_object(name, config.pools[name], window, fleet, prometheus_url="http://p:9090")
    trigger = keda["spec"]["triggers"][0]
    assert trigger["metadata"]["serverAddress"] == "http://p:9090"
    pattern = re.search(r'pod=~"([^"]+)"', trigger["metadata"]["query"])[1]
    assert [pod for pod in (*matched, *others) if re.fullmatch(pattern, pod)] == matched
    assert f'namespace="{config.pools[name].target.namespace}"' in trigger["metadata"]["query"]


@pytest.mark.parametrize(
    ("step_down", "every_min", "policy"),
    [
        (1, 10, ("Pods", 1, 600)),
        (3, 30, ("Pods", 3, 1800)),
        (8, 120, ("Pods", 2, 1800)),
        (2, 120, ("Pods", 1, 1800)),
        (1, 0, ("Pods", 1, 1)),
        (0.2, 30, ("Percent", 20, 1800)),
        (0.2, 120, ("Percent", 5, 1800)),
        (0.001, 30, ("Percent", 1, 1800)),
    ],
)
def test_replicas_come_down_as_the_pool_says_within_the_longest_period_allowed(
    fleet, config, step_down, every_min, policy
):
    """8 replicas in 2 hours are 2 in half an hour, and 20 % are 5 %; less than one of either cannot be said."""
    shape = {"step_down": step_down, "every": timedelta(minutes=every_min), "dwell": timedelta(hours=3)}
    pool = config.pools["chat-70b"]
    pool = pool.model_copy(update={"shape": pool.shape.model_copy(update=shape)})
    window = fleet.pools["chat-70b"].windows[0]
    down = horizontal_pod_autoscaler("chat-70b", pool, window, fleet)["spec"]["behavior"]["scaleDown"]
    assert tuple(down["policies"][0][key] for key in ("type", "value", "periodSeconds")) == policy
    assert down["stabilizationWindowSeconds"] == 3600


@pytest.mark.parametrize(
    ("kind", "path", "field"),
    [("scaled_object", "keda", "minReplicaCount"), ("hpa", "hpa", "minReplicas")],
)
def test_the_minimum_that_a_publisher_applies_is_left_out(tmp_path, fleet, config, kind, path, field):
    """Whoever applied it with the file would hold the field, and the publisher meet a conflict."""
    entry = KubernetesPublisher(kind="kubernetes", name="prod", object=kind, pools=("chat-70b",))
    write_manifests(fleet, config.model_copy(update={"publishers": (entry,)}), tmp_path, fleet.issued_at)
    carried = (tmp_path / path / "chat-70b.yaml").read_text()
    assert field not in yaml.safe_load(carried)["spec"]
    assert "The minimum is left out: publisher prod applies it, and must hold that field alone." in carried
    assert f"  kubectl apply --server-side -f {path}/chat-70b.yaml\n" in carried
    others = [name for name in NAMES if name != f"{path}/chat-70b.yaml"]
    for name in others:
        spec = yaml.safe_load((tmp_path / name).read_text())["spec"]
        assert {"minReplicaCount", "minReplicas"} & set(spec)


def test_an_expired_schedule_writes_nothing(tmp_path, fleet, config):
    with pytest.raises(PublishError, match="expired at 2026-11-30T10:50:00Z"):
        write_manifests(fleet, config, tmp_path, fleet.valid_until)
    assert not list(tmp_path.iterdir())


def test_a_schedule_of_which_one_pool_ran_out_of_windows_writes_nothing(tmp_path, schedule_of, config):
    steps = [(1, 0.5), (2, 1.5), (1, 0.5)]
    schedule = schedule_of({"chat-70b": steps, "code-8b": steps, "batch.405b": steps[:2]})
    with pytest.raises(NotFoundError, match=r"no floor for batch\.405b at 2026-11-30T09:06:00Z"):
        write_manifests(schedule, config, tmp_path, schedule.issued_at + timedelta(minutes=16))
    assert not list(tmp_path.iterdir())


def test_a_schedule_of_other_pools_is_refused(tmp_path, schedule_of, config):
    schedule = schedule_of({"chat-70b": [(1, 0.5)], "code-8b": [(1, 0.5)]})
    with pytest.raises(PublishError, match=r"pool `batch\.405b` is only in one"):
        write_manifests(schedule, config, tmp_path, schedule.issued_at)


def test_the_short_reason_is_one_line_with_the_numbers(fleet):
    reason = fleet.pools["chat-70b"].windows[0].reason
    text = "22425 tokens_out/s at quantile 0.95 needs 11.50 replicas by 2026-11-30T09:09:00Z"
    assert short_reason(reason) == text
    clamped = reason.model_copy(update={"clamped": "max_replicas", "shortfall_replicas": 3})
    assert short_reason(clamped) == f"{text}; clamped to max_replicas, 3 short"
    summed = reason.model_copy(update={"binding": "sum"})
    assert short_reason(summed).startswith("22425 tokens_in+tokens_out/s")
    fallback = reason.model_copy(update={"binding": "fallback_replicas"})
    assert short_reason(fallback) == "no usable forecast: fallback_replicas, by 2026-11-30T09:09:00Z"
