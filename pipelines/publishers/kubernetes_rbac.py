"""What a service account must be allowed for the Kubernetes publishers of a configuration, and nothing beyond it."""

from __future__ import annotations

from typing import Any

from floorcast.config import Config
from floorcast.publisher import KubernetesPublisher, pools_of
from pipelines.publishers.kubernetes_object import KINDS

_GROUP = "rbac.authorization.k8s.io"


def roles(entry: KubernetesPublisher, config: Config, *, service_account: str, namespace: str) -> list[dict[str, Any]]:
    """A Role and a RoleBinding in every namespace that holds an object of the entry, for the service account in
    `namespace`.

    The objects are named. With `mode: advisory` they may be read alone, so that nothing can be changed by mistake;
    with `mode: apply` patched too. Nothing may be listed, watched, made or deleted, for none of it is needed.
    """
    kind = KINDS[entry.object]
    objects: dict[str, list[str]] = {}
    for pool in pools_of(config, entry):
        where, name = entry.object_of(pool, config.pools[pool].target)
        objects.setdefault(where, []).append(name)
    rendered = []
    for where, names in sorted(objects.items()):
        name = f"floorcast-{entry.label}"
        rules = [
            {
                "apiGroups": [kind.group],
                "resources": [kind.plural],
                "resourceNames": sorted(names),
                "verbs": ["get", "patch"] if config.mode == "apply" else ["get"],
            }
        ]
        role = {"apiGroup": _GROUP, "kind": "Role", "name": name}
        subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
        rendered += [
            {"apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": _metadata(name, where), "rules": rules},
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": "RoleBinding",
                "metadata": _metadata(name, where),
                "roleRef": role,
                "subjects": [subject],
            },
        ]
    return rendered


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "floorcast"}}
