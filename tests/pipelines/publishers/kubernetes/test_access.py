"""What the service account may and may not do, and `mode: advisory`."""

from __future__ import annotations

import copy

import kubernetes_validate
import pytest
from kubernetes.config import incluster_config

from pipelines.publishers.kubernetes_rbac import roles


def _rules(cluster):
    return [one["rules"][0] for one in cluster.state.manifests if one["kind"] == "Role"]


def test_the_roles_are_valid_and_name_the_objects_alone(either):
    config = either.config()
    rendered = roles(config.publishers[0], config, service_account="floorcast", namespace="floorcast")
    for manifest in rendered:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    group, plural = {
        "scaled_object": ("keda.sh", "scaledobjects"),
        "hpa": ("autoscaling", "horizontalpodautoscalers"),
    }[either.object]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in rendered] == [
        ("Role", "code"),
        ("RoleBinding", "code"),
        ("Role", "llm"),
        ("RoleBinding", "llm"),
    ]
    assert [one["rules"] for one in rendered if one["kind"] == "Role"] == [
        [{"apiGroups": [group], "resources": [plural], "resourceNames": [name], "verbs": ["get", "patch"]}]
        for name in ("code-8b", "chat-70b")
    ]


def test_the_rendered_role_is_enough(either):
    either.make()
    assert either.publish(14).did == "applied"


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_no_verb_of_it_can_be_spared(either, verb):
    key = either.make()
    for rule in _rules(either):
        rule["verbs"].remove(verb)
    before = either.api.get(key)
    outcome = either.publish(14)
    assert outcome.did == "failed"
    assert f"may not {verb} " in outcome.note
    assert "chat-70b in namespace llm: apply what `floorcast rbac` prints" in outcome.note
    assert "system:serviceaccount:floorcast:floorcast" in outcome.note
    assert either.api.get(key) == before


@pytest.mark.parametrize("left_out", ["rule", "role", "binding", "name"])
def test_nothing_else_of_it_can_be_spared(either, left_out):
    either.make()
    manifests = either.state.manifests
    if left_out == "rule":
        for one in manifests:
            if one["kind"] == "Role":
                one["rules"] = []
    elif left_out == "name":
        for rule in _rules(either):
            rule["resourceNames"] = ["another"]
    else:
        kind = {"role": "Role", "binding": "RoleBinding"}[left_out]
        manifests[:] = [one for one in manifests if one["kind"] != kind]
    assert either.publish(14).did == "failed"


def test_it_does_not_reach_the_pools_of_another_namespace_or_other_objects(either):
    other = copy.deepcopy(either.state.manifests)
    either.state.manifests[:] = [one for one in other if one["metadata"]["namespace"] == "code"]
    either.make()
    assert either.publish(14).did == "failed"


def test_what_was_deleted_between_reading_and_writing_is_not_made_anew(either):
    """Server-side apply makes what does not exist: `uid` prevents it, and so does the Role, which grants no create."""
    key = either.make()
    either.fault("call", verb="patch", call=lambda: either.api.delete(key))
    outcome = either.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("no ")
    assert either.verbs() == ["get", "patch", "get"]
    assert not either.state.objects


def test_what_was_made_anew_between_reading_and_writing_is_read_again(either):
    key = either.make()

    def replace():
        either.api.delete(key)
        either.make(**{either.maximum: 10})

    either.fault("call", verb="patch", call=replace)
    outcome = either.publish(14)
    assert (outcome.did, outcome.after) == ("applied", 10)
    assert either.api.get(key)["spec"][either.minimum] == 10


def test_a_maximum_lowered_between_reading_and_writing_holds(either):
    """`resourceVersion` keeps a minimum that was right a moment ago from ending above the maximum."""
    key = either.make()
    either.fault("call", verb="patch", call=lambda: either.api.edit(key, ("spec", either.maximum), 9))
    outcome = either.publish(14)
    assert (outcome.did, outcome.after) == ("applied", 9)


def test_advisory_tries_on_the_server_and_changes_nothing(either):
    key = either.make()
    before = either.api.get(key)
    outcome = either.publish(14, mode="advisory")
    assert (outcome.did, outcome.before, outcome.after) == (
        "would_change",
        {"scaled_object": 0, "hpa": 1}[either.object],
        14,
    )
    assert either.state.requests[-1].query == {"fieldManager": ["floorcast"], "dryRun": ["All"]}
    assert either.api.get(key) == before
    assert either.publish(14).did == "applied"
    assert either.publish(14, mode="advisory").did == "unchanged"


def test_advisory_finds_the_conflict_that_applying_would_meet(either):
    either.make(minimum=3, by="argocd-controller")
    outcome = either.publish(14, mode="advisory")
    assert (outcome.did, outcome.before, outcome.after) == ("conflict", 3, 3)


def test_advisory_finds_what_the_api_would_refuse(cluster):
    """Only a try on the server knows what admission says."""
    key = cluster.make()
    cluster.state.admission = "the namespace is frozen"
    outcome = cluster.publish(14, mode="advisory")
    assert outcome.did == "failed"
    assert "the namespace is frozen" in outcome.note
    assert cluster.api.get(key)["spec"].get("minReplicaCount") is None


def test_the_role_of_advisory_allows_reading_alone_and_suffices(either):
    either.allow(mode="advisory")
    assert all(rule["verbs"] == ["get"] for rule in _rules(either))
    either.make()
    outcome = either.publish(14, mode="advisory")
    assert (outcome.did, outcome.after) == ("would_change", 14)
    assert "not tried on the server: may not patch" in outcome.note
    assert either.publish(14).did == "failed"


def test_it_then_tells_a_conflict_by_what_it_reads(either):
    either.allow(mode="advisory")
    either.make(minimum=3, by="argocd-controller")
    outcome = either.publish(14, mode="advisory")
    assert outcome.did == "conflict"
    assert "held by argocd-controller at 3" in outcome.note


def test_a_token_that_is_not_known_is_told_after_a_few_tries(either, certificate):
    either.make()
    either.write_kubeconfig(certificate[0], token="stale")
    outcome = either.publish(14)
    assert outcome.did == "failed"
    assert outcome.note.startswith("its token is not valid (401)")
    assert "stale" not in outcome.note


def test_a_token_replaced_meanwhile_is_taken_up(either, certificate):
    """As a pod's service account token is, each run reads it again."""
    either.make()
    either.write_kubeconfig(certificate[0], token="stale")
    assert either.publish(14).did == "failed"
    either.write_kubeconfig(certificate[0])
    assert either.publish(14).did == "applied"


def test_a_certificate_of_someone_else_is_not_trusted(either, other_certificate):
    either.make()
    either.write_kubeconfig(other_certificate)
    outcome = either.publish(14)
    assert outcome.did == "failed"
    assert "certificate is not to be trusted" in outcome.note
    assert either.verbs() == []


def test_in_a_pod_the_service_account_is_used(cluster, certificate, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("a-token-of-the-service-account")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certificate[0])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(cluster.wire.port))
    key = cluster.make()
    cluster.kubeconfig = None
    assert cluster.publish(14).did == "applied"
    assert cluster.api.get(key)["spec"]["minReplicaCount"] == 14


def test_a_context_may_be_named(cluster):
    cluster.make()
    assert cluster.publish(14, extra="    context: test\n").did == "applied"
