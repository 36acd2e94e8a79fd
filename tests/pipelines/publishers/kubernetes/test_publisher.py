"""Every outcome, over HTTPS and the real client, against the stand-in, as the service account that `rbac` allows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from floorcast.errors import PublishError
from pipelines.publishers.kubernetes import Kubernetes

OWN = {"name": "chat-70b", "namespace": "llm"}
META = ("resourceVersion", "generation", "managedFields")


def test_a_floor_is_applied_and_nothing_else_in_the_object_changes(either, without):
    key = either.make()
    before = either.api.get(key)
    outcome = either.publish(14)
    after = either.api.get(key)
    assert (outcome.publisher, outcome.pool, outcome.did) == ("kubernetes", "chat-70b", "applied")
    assert (outcome.before, outcome.after) == ({"scaled_object": 0, "hpa": 1}[either.object], 14)
    assert after["spec"][either.minimum] == 14
    ours = {("spec", either.minimum), *(("metadata", key) for key in META)}
    assert without(after, ours) == without(before, ours)
    fields = {entry["manager"]: entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
    assert fields["floorcast"] == {"f:spec": {f"f:{either.minimum}": {}}}


def test_the_request_names_one_field_and_the_object_that_was_read(either):
    key = either.make()
    found = either.api.get(key)["metadata"]
    either.publish(14)
    read, write = either.state.requests
    assert (read.verb, write.verb) == ("get", "patch")
    assert write.content_type == "application/apply-patch+yaml"
    assert write.query == {"fieldManager": ["floorcast"]}
    assert write.body["spec"] == {either.minimum: 14}
    assert write.body["metadata"] == {name: found[name] for name in ("name", "namespace", "uid", "resourceVersion")}


def test_what_is_there_already_is_not_written(either):
    key = either.make()
    either.publish(14)
    version = either.api.get(key)["metadata"]["resourceVersion"]
    outcome = either.publish(14)
    assert (outcome.did, outcome.before, outcome.after, outcome.note) == ("unchanged", 14, 14, "")
    assert either.verbs() == ["get", "patch", "get"]
    assert either.api.get(key)["metadata"]["resourceVersion"] == version


def test_a_minimum_of_ours_may_be_lowered(either):
    key = either.make()
    either.publish(14)
    outcome = either.publish(5)
    assert (outcome.did, outcome.before, outcome.after) == ("applied", 14, 5)
    assert either.api.get(key)["spec"][either.minimum] == 5


def test_a_lower_minimum_of_another_manager_is_a_conflict_that_is_told_and_not_forced(either):
    key = either.make(minimum=3, by="argocd-controller")
    before = either.api.get(key)
    outcome = either.publish(14)
    assert (outcome.did, outcome.before, outcome.after) == ("conflict", 3, 3)
    assert outcome.note == (
        f"spec.{either.minimum} is held by argocd-controller at 3, under the 14 wanted, and is not forced: see "
        "docs/kubernetes.md, Conflicts, for how to hand it over"
    )
    assert either.api.get(key) == before


def test_a_minimum_that_someone_raised_by_hand_is_left_above(either):
    key = either.make()
    either.publish(14)
    either.api.edit(key, ("spec", either.minimum), 20, manager="kubectl-edit")
    outcome = either.publish(15)
    assert (outcome.did, outcome.before, outcome.after) == ("left_above", 20, 20)
    assert "held by kubectl-edit using" in outcome.note
    assert either.api.get(key)["spec"][either.minimum] == 20


def test_one_that_someone_lowered_by_hand_is_a_conflict(either):
    key = either.make()
    either.publish(14)
    either.api.edit(key, ("spec", either.minimum), 6, manager="kubectl-edit")
    assert either.publish(14).did == "conflict"
    assert either.api.get(key)["spec"][either.minimum] == 6


def test_a_field_is_handed_over_without_a_dip(either):
    """As docs/kubernetes.md says: hold it too at the value it has, let Git leave it out, publish."""
    key = either.make(minimum=3, by="argocd-controller")
    document = either.api.get(key)
    ours = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": OWN}
    either.api.apply(ours | {"spec": {either.minimum: 3}}, manager="floorcast")
    assert either.publish(14).did == "conflict"
    git = ours | {"metadata": OWN | {"labels": {"team": "llm"}}}
    git["spec"] = {field: value for field, value in document["spec"].items() if field != either.minimum}
    either.api.apply(git, manager="argocd-controller")
    assert either.api.get(key)["spec"][either.minimum] == 3
    assert either.publish(14).did == "applied"
    either.api.apply(git, manager="argocd-controller")
    assert either.api.get(key)["spec"][either.minimum] == 14


def test_a_field_that_git_leaves_out_before_it_is_held_falls_to_the_default(either):
    """Why that order: what its only applier leaves out is removed."""
    key = either.make(minimum=3, by="argocd-controller")
    document = either.api.get(key)
    git = {name: document[name] for name in ("apiVersion", "kind")} | {"metadata": OWN | {"labels": {"team": "llm"}}}
    git["spec"] = {field: value for field, value in document["spec"].items() if field != either.minimum}
    either.api.apply(git, manager="argocd-controller")
    assert either.api.get(key)["spec"].get(either.minimum) == {"scaled_object": None, "hpa": 1}[either.object]


def test_what_git_holds_at_the_same_value_is_unchanged_and_told(either):
    either.make(minimum=14, by="argocd-controller")
    outcome = either.publish(14)
    assert outcome.did == "unchanged"
    assert outcome.note == "also held by argocd-controller, so that another floor will meet a conflict"
    assert either.verbs() == ["get"]


def test_what_our_manager_applied_as_a_whole_manifest_is_not_taken_out_by_the_one_field(either):
    """Server-side apply removes what a manager applied before and leaves out now."""
    key = either.make(minimum=3, by="floorcast")
    before = either.api.get(key)
    outcome = either.publish(14)
    assert outcome.did == "conflict"
    assert "`floorcast` applied metadata.labels.team, spec." in outcome.note
    assert either.api.get(key) == before
    assert either.verbs() == ["get"]


def test_once_another_manager_holds_the_rest_the_one_field_is_applied(either, without):
    key = either.make(minimum=3, by="floorcast")
    before = either.api.get(key)
    metadata = {name: before["metadata"][name] for name in ("name", "namespace", "labels")}
    rest = {"apiVersion": before["apiVersion"], "kind": before["kind"], "metadata": metadata}
    rest["spec"] = {field: value for field, value in before["spec"].items() if field != either.minimum}
    either.api.apply(rest, manager="kubectl")
    assert either.publish(14).did == "applied"
    ours = {("spec", either.minimum), *(("metadata", name) for name in META)}
    assert without(either.api.get(key), ours) == without(before, ours)


def test_another_field_manager_may_be_named(either):
    key = either.make(minimum=3, by="floorcast")
    outcome = either.publish(14, extra="    field_manager: floorcast-eu\n")
    assert outcome.did == "conflict"
    assert "held by floorcast at 3" in outcome.note
    assert either.state.requests[-1].query == {"fieldManager": ["floorcast-eu"]}
    assert either.api.get(key)["spec"][either.minimum] == 3


@pytest.mark.parametrize(("wanted", "held"), [(41, 40), (400, 40), (40, 40)])
def test_a_floor_above_the_maximum_there_is_held_to_it_and_told(either, wanted, held):
    key = either.make()
    outcome = either.publish(wanted)
    assert (outcome.did, outcome.after, either.api.get(key)["spec"][either.minimum]) == ("applied", held, held)
    assert ("held to max" in outcome.note) == (wanted > held)
    assert either.api.get(key)["spec"].get("maxReplicaCount", either.api.get(key)["spec"].get("maxReplicas")) == 40


def test_a_scaled_object_without_a_maximum_has_kedas(cluster):
    key = cluster.make()
    cluster.api.edit(key, ("spec", "maxReplicaCount"), None, manager="git")
    outcome = cluster.publish(150)
    assert outcome.after == 100
    assert (
        outcome.note == "150 wanted, held to 100, which KEDA takes for no maximum: raise it there to get the other 50"
    )


def test_keda_wants_a_minimum_above_its_idle_replicas(cluster):
    cluster.make(minimum=None, idleReplicaCount=0, minReplicaCount=3, by="floorcast")
    # One who owns the rest, so that ours is the one field.
    document = cluster.api.get(("scaledobjects", "llm", "chat-70b"))
    rest = {**document, "metadata": {**OWN, "labels": {"team": "llm"}}}
    rest["spec"] = {field: value for field, value in document["spec"].items() if field != "minReplicaCount"}
    cluster.api.apply(rest, manager="git")
    outcome = cluster.publish(0)
    assert (outcome.did, outcome.after, outcome.note) == ("applied", 1, "KEDA wants more than idleReplicaCount 0")


def test_a_floor_of_zero_scales_to_zero_with_keda_alone(either):
    key = either.make()
    either.publish(2)
    outcome = either.publish(0)
    lowest = {"scaled_object": 0, "hpa": 1}[either.object]
    assert (outcome.did, either.api.get(key)["spec"][either.minimum]) == ("applied", lowest)
    assert ("only KEDA scales to zero" in outcome.note) == (either.object == "hpa")


@pytest.mark.parametrize("by", ["label", "owner"])
def test_an_hpa_that_keda_made_is_refused_with_what_to_name_instead(cluster, by):
    cluster.object = "hpa"
    cluster.allow()
    key = cluster.make(by="keda")
    if by == "label":
        cluster.api.edit(key, ("metadata", "labels", "scaledobject.keda.sh/name"), "chat", manager="keda")
    else:
        owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "chat", "uid": "1"}
        cluster.api.edit(key, ("metadata", "ownerReferences"), [owner], manager="keda")
    outcome = cluster.publish(14)
    assert outcome.did == "conflict"
    assert outcome.note == (
        "KEDA made chat-70b for its ScaledObject chat and takes back what others change in it: use "
        "`object: scaled_object` and name chat"
    )
    assert cluster.verbs() == ["get"]


@pytest.mark.parametrize(
    ("annotation", "value", "effect"),
    [
        ("paused", "true", "KEDA scales nothing"),
        ("paused-replicas", "4", "KEDA keeps 4 replicas"),
        ("paused-scale-out", "true", "KEDA adds no replica"),
        ("paused-scale-in", "true", "KEDA takes no replica away"),
        ("paused", "false", None),
    ],
)
def test_a_paused_scaled_object_is_told(cluster, annotation, value, effect):
    key = cluster.make()
    cluster.api.edit(key, ("metadata", "annotations", f"autoscaling.keda.sh/{annotation}"), value)
    outcome = cluster.publish(14)
    assert (outcome.did, outcome.after) == ("applied", 14)
    told = f"paused by the annotation autoscaling.keda.sh/{annotation}={value}: {effect} until it is taken off"
    assert outcome.note == (told if effect else "")


def test_a_target_without_replicas_is_told(cluster):
    cluster.object = "hpa"
    cluster.allow()
    key = cluster.make()
    condition = {"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled", "message": "no replicas"}
    status = {"currentReplicas": 0, "desiredReplicas": 0, "conditions": [condition]}
    cluster.api.edit(key, ("status",), status, manager="kube-controller-manager", subresource="status")
    outcome = cluster.publish(14)
    assert outcome.did == "applied"
    assert outcome.note.startswith("its target has 0 replicas, where an autoscaler is off")


def test_an_expired_schedule_is_not_applied_and_the_last_floor_stays(either):
    key = either.make()
    either.publish(14)
    late = either.publish(3, now=either.api_now + timedelta(hours=2))
    assert (late.did, late.before, late.after) == ("expired", None, None)
    assert late.note == "version 42 expired at 2026-11-30T11:00:00Z; the minimum there stays"
    assert either.publish(15, now=either.api_now + timedelta(minutes=119)).did == "applied"
    assert either.api.get(key)["spec"][either.minimum] == 15


def test_after_an_expiry_a_minimum_is_raised_and_never_lowered(either):
    key = either.make()
    either.publish(14)
    assert either.publish(12, only_raises=True).did == "left_above"
    assert either.api.get(key)["spec"][either.minimum] == 14
    assert either.publish(16, only_raises=True).did == "applied"
    assert either.api.get(key)["spec"][either.minimum] == 16


def test_an_object_elsewhere_or_of_another_name_is_the_one_named(either):
    extra = "    pools: [code-8b]\n    objects: {code-8b: {namespace: llm, name: chat-70b}}\n"
    either.allow(extra=extra)
    key = either.make()
    [outcome] = either.publish(4, pools=("code-8b",), extra=extra)
    assert (outcome.pool, outcome.did) == ("code-8b", "applied")
    assert either.api.get(key)["spec"][either.minimum] == 4


def test_one_pools_fault_is_its_own(either):
    either.make()
    missing, fine = either.publish(2, 14, pools=("code-8b", "chat-70b"))
    assert (missing.pool, missing.did, fine.pool, fine.did) == ("code-8b", "failed", "chat-70b", "applied")
    kind = {"scaled_object": "ScaledObject", "hpa": "HorizontalPodAutoscaler"}[either.object]
    assert missing.note == (
        f"no {kind} code-8b in namespace code: make it first, without {either.minimum}; the minimum there stays"
    )
    assert not any(key[2] == "code-8b" for key in either.state.objects)


def test_no_credentials_are_an_error_of_all(cluster, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    cluster.kubeconfig.unlink()
    with pytest.raises(PublishError, match=r"no access to a cluster"):
        cluster.publish(14)
    config = cluster.config()
    entry = config.publishers[0].model_copy(update={"kubeconfig": None})
    with pytest.raises(PublishError, match=r"in a pod: no access"):
        Kubernetes(entry, config).publish([], apply=True, now=cluster.api_now)
    assert cluster.verbs() == []
