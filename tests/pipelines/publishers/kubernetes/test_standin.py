"""The stand-in itself: what it says of server-side apply is what Kubernetes' documentation and sources say."""

from __future__ import annotations

import copy
import json

import kubernetes_validate
import pytest
from kubernetes import client, config


@pytest.fixture
def objects(cluster):
    """The client's own API for objects of any kind."""
    settings = client.Configuration()
    config.load_kube_config(str(cluster.kubeconfig), client_configuration=settings)
    with client.ApiClient(settings) as api:
        yield client.CustomObjectsApi(api)


def _apply(objects, body, *, manager="floorcast", **arguments):
    return objects.patch_namespaced_custom_object(
        "keda.sh",
        "v1alpha1",
        "llm",
        "scaledobjects",
        "chat-70b",
        body,
        field_manager=manager,
        _content_type="application/apply-patch+yaml",
        **arguments,
    )


def _of(spec, **metadata):
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "chat-70b", "namespace": "llm", **metadata},
        "spec": spec,
    }


def _managers(document):
    return {entry["manager"]: entry["fieldsV1"].get("f:spec") for entry in document["metadata"]["managedFields"]}


def test_a_conflict_is_answered_as_by_kubernetes(cluster, objects):
    """The shape of `NewApplyConflict` in apimachinery, the words of `NewConflictError` in managedfields."""
    cluster.make(minimum=3, by="argocd-controller")
    with pytest.raises(client.ApiException) as refusal:
        _apply(objects, _of({"minReplicaCount": 14}))
    assert refusal.value.status == 409
    assert json.loads(refusal.value.body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "argocd-controller": .spec.minReplicaCount',
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "argocd-controller"',
                    "field": ".spec.minReplicaCount",
                }
            ]
        },
        "code": 409,
    }


def test_a_field_held_by_an_update_names_its_version_and_time(cluster, objects):
    key = cluster.make()
    cluster.api.edit(key, ("spec", "minReplicaCount"), 3)
    with pytest.raises(client.ApiException, match=r'kubectl-edit\\" using keda.sh/v1alpha1 at 2026-11-30T08:00:00Z'):
        _apply(objects, _of({"minReplicaCount": 14}))


def test_the_same_value_is_shared_and_what_all_leave_out_is_removed(cluster, objects):
    cluster.make(minimum=3)
    shared = _apply(objects, _of({"minReplicaCount": 3}))
    assert _managers(shared)["floorcast"] == {"f:minReplicaCount": {}}
    assert "f:minReplicaCount" in _managers(shared)["git"]
    left = _apply(objects, _of({"cooldownPeriod": 300}))
    assert left["spec"]["minReplicaCount"] == 3
    rest = {name: value for name, value in left["spec"].items() if name != "minReplicaCount"}
    gone = _apply(objects, _of(rest, labels={"team": "llm"}), manager="git")
    assert "minReplicaCount" not in gone["spec"]


def test_force_takes_the_field_and_is_kept_against_whoever_asked_for_it(cluster, objects):
    cluster.make(minimum=3)
    taken = _apply(objects, _of({"minReplicaCount": 14}), force=True)
    assert taken["spec"]["minReplicaCount"] == 14
    assert "f:minReplicaCount" not in _managers(taken)["git"]
    assert cluster.state.improper == ["force=true"]
    cluster.state.improper.clear()


def test_a_dry_run_answers_what_would_be_and_leaves_what_is(cluster, objects):
    key = cluster.make()
    before = cluster.api.get(key)
    assert _apply(objects, _of({"minReplicaCount": 14}), dry_run="All")["spec"]["minReplicaCount"] == 14
    assert cluster.api.get(key) == before


def test_versions_and_generations_count_changes_and_nothing_else(cluster, objects):
    cluster.make()
    first = _apply(objects, _of({"minReplicaCount": 14}))["metadata"]
    again = _apply(objects, _of({"minReplicaCount": 14}))["metadata"]
    other = _apply(objects, _of({"minReplicaCount": 15}))["metadata"]
    assert again == first
    assert (first["generation"], other["generation"]) == (2, 3)
    assert int(other["resourceVersion"]) > int(first["resourceVersion"])


@pytest.mark.parametrize(
    ("metadata", "why"),
    [({"resourceVersion": "1"}, "the object has been modified"), ({"uid": "another"}, "Precondition failed: UID")],
)
def test_an_object_other_than_the_one_read_is_a_conflict_without_causes(cluster, objects, metadata, why):
    cluster.make()
    with pytest.raises(client.ApiException) as refusal:
        _apply(objects, _of({"minReplicaCount": 14}, **metadata))
    status = json.loads(refusal.value.body)
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert why in status["message"]
    assert status["details"] == {"name": "chat-70b", "group": "keda.sh", "kind": "scaledobjects"}


def test_without_a_uid_it_would_make_the_object_if_that_were_allowed(cluster, objects):
    whole = _of({"scaleTargetRef": {"name": "vllm"}, "triggers": [{"type": "cpu", "metadata": {"value": "50"}}]})
    with pytest.raises(client.ApiException, match=r'cannot create resource \\"scaledobjects\\"'):
        _apply(objects, whole)
    for manifest in cluster.state.manifests:
        if manifest["kind"] == "Role":
            manifest["rules"][0]["verbs"].append("create")
    assert _apply(objects, whole)["metadata"]["uid"]
    cluster.state.objects.clear()
    with pytest.raises(client.ApiException, match=r"uid mismatch: the provided object specified uid"):
        _apply(objects, _of(whole["spec"], uid="gone"))


@pytest.mark.parametrize(
    "spec",
    [{"minReplicaCount": 41}, {"minReplicaCount": "many"}, {"minReplicas": 3}, {"idleReplicaCount": 5}],
)
def test_what_kedas_schema_and_webhook_refuse_is_refused(cluster, objects, spec):
    cluster.make()
    with pytest.raises(client.ApiException) as refusal:
        _apply(objects, _of(spec))
    assert refusal.value.status == 422


def test_a_request_that_is_no_server_side_apply_is_refused_and_kept(cluster, objects):
    cluster.make()
    with pytest.raises(client.ApiException) as refusal:
        objects.patch_namespaced_custom_object(
            "keda.sh", "v1alpha1", "llm", "scaledobjects", "chat-70b", {"spec": {"minReplicaCount": 14}}
        )
    assert refusal.value.status == 415
    with pytest.raises(client.ApiException):
        objects.list_namespaced_custom_object("keda.sh", "v1alpha1", "llm", "scaledobjects")
    with pytest.raises(client.ApiException):
        objects.delete_namespaced_custom_object("keda.sh", "v1alpha1", "llm", "scaledobjects", "chat-70b")
    assert len(cluster.state.improper) == 3
    cluster.state.improper.clear()


@pytest.mark.parametrize("fault", ["none", "minimum", "unknown", "metric"])
def test_its_schema_of_an_hpa_is_that_of_kubernetes_validate(cluster, standin, fault):
    cluster.object = "hpa"
    document = copy.deepcopy(cluster.api.get(cluster.make()))
    if fault == "minimum":
        document["spec"]["minReplicas"] = "3"
    elif fault == "unknown":
        document["spec"]["minReplicaCount"] = 3
    elif fault == "metric":
        del document["spec"]["metrics"][0]["type"]
    try:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        valid = True
    except kubernetes_validate.ValidationError:
        valid = False
    assert valid == (fault == "none")
    assert standin.hpa_validator().is_valid(document) == valid
