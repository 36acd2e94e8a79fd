"""A strict stand-in for a Kubernetes API server: HTTPS, tokens, RBAC, validation, server-side apply, faults.

It serves the two paths that the publisher needs, as `kube-apiserver` would, and holds what it was asked against it:
any other request, and any `force`, is kept in `improper`. No part of Kubernetes runs here.
"""

from __future__ import annotations

import copy
import functools
import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import kubernetes_validate
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from referencing import Registry, Resource

APPLY = "application/apply-patch+yaml"
RESOURCES = {
    ("keda.sh", "v1alpha1", "scaledobjects"): "ScaledObject",
    ("autoscaling", "v2", "horizontalpodautoscalers"): "HorizontalPodAutoscaler",
}
PLURALS = {kind: plural for (_, _, plural), kind in RESOURCES.items()}
NOW = "2026-11-30T08:00:00Z"


@functools.cache
def hpa_validator() -> jsonschema.protocols.Validator:
    """What `kubernetes_validate.validate(hpa, latest, strict=True)` uses, which reads 2 MB of definitions each time."""
    folder = f"kubernetes-json-schema/v{kubernetes_validate.latest_version()}-local-strict"
    schema, definitions = (
        kubernetes_validate.utils.schema_contents(f"{folder}/{name}.json", "")
        for name in ("horizontalpodautoscaler-autoscaling-v2", "_definitions")
    )
    registry = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


Key = tuple[str, str, str]
"""Plural, namespace, name."""


class RefusalError(Exception):
    """A refusal, with the Status that the real server answers."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.code = code
        self.headers = headers or {}
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({"details": details} if details else {}),
            "code": code,
        }
        super().__init__(message)


@dataclass
class Fault:
    """What goes wrong with one request. `verb` picks the next request of that verb; any unless given."""

    what: str
    """status, plain, slow, drop, lost, html, cut or call."""
    verb: str | None = None
    code: int = 503
    retry_after: int | None = None
    seconds: float = 0.0
    call: Callable[[], None] | None = None


@dataclass
class Request:
    verb: str
    path: str
    query: dict[str, list[str]]
    content_type: str | None
    body: Any
    user: str | None
    code: int | None = None


@dataclass
class State:
    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    writes: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    """Of each write over HTTP the object before and after."""
    improper: list[str] = field(default_factory=list)
    keda_installed: bool = True
    admission: str | None = None
    """Why a webhook refuses every write."""
    version: int = 1000


class ApiServer:
    """What the server knows and answers; `ownership` is the module beside this one, and `wire` serves it."""

    def __init__(self, ownership: Any) -> None:
        self.state = State()
        self.own = ownership
        self.lock = threading.RLock()

    # What the tests do as other users of the cluster.

    def create(self, document: dict[str, Any], *, manager: str = "kubectl-create", operation: str = "Update") -> Key:
        document = copy.deepcopy(document)
        metadata = document["metadata"]
        metadata.pop("managedFields", None)
        paths = self.own.applied_paths(document)
        entry = self.own.entry_of(manager, operation, paths, api_version=document["apiVersion"], time=NOW)
        metadata |= {
            "uid": str(uuid.uuid4()),
            "creationTimestamp": NOW,
            "generation": 1,
            "managedFields": [entry],
        }
        key = (PLURALS[document["kind"]], metadata["namespace"], metadata["name"])
        with self.lock:
            self._default(document)
            self._validate(document)
            self._store(key, document)
        return key

    def edit(
        self, key: Key, path: tuple[str, ...], value: Any, *, manager: str = "kubectl-edit", subresource: str = ""
    ) -> None:
        with self.lock:
            current = self.state.objects[key]
            changed = copy.deepcopy(current)
            if value is None:
                self.own.remove_at(changed, path)
            else:
                self.own.put_at(changed, path, value)
            result = self.own.update(
                current,
                changed,
                manager=manager,
                api_version=current["apiVersion"],
                time=NOW,
                subresource=subresource,
            )
            self._finish(key, current, result)

    def apply(self, document: dict[str, Any], *, manager: str, force: bool = False) -> None:
        metadata = document["metadata"]
        key = (PLURALS[document["kind"]], metadata["namespace"], metadata["name"])
        with self.lock:
            if key not in self.state.objects:
                self.create(document, manager=manager, operation="Apply")
                return
            self._apply(key, document, manager=manager, force=force, dry_run=False)

    def delete(self, key: Key) -> None:
        with self.lock:
            del self.state.objects[key]

    def get(self, key: Key) -> dict[str, Any]:
        with self.lock:
            return copy.deepcopy(self.state.objects[key])

    # What a request does.

    def answer(self, request: Request) -> dict[str, Any]:
        with self.lock:
            if request.user is None:
                raise RefusalError(401, "Unauthorized", "Unauthorized")
            key = self._key(request)
            self._authorize(request, key)
            if key[0] == "scaledobjects" and not self.state.keda_installed:
                raise RefusalError(404, "NotFound", "the server could not find the requested resource", {})
            current = self.state.objects.get(key)
            if request.verb == "get":
                if current is None:
                    raise self._not_found(key)
                return copy.deepcopy(current)
            return self._patch(request, key, current)

    def _key(self, request: Request) -> Key:
        parts = request.path.strip("/").split("/")
        if len(parts) == 7 and parts[0] == "apis" and parts[3] == "namespaces":
            group, version, namespace, plural, name = parts[1], parts[2], *parts[4:7]
            if (group, version, plural) in RESOURCES:
                return plural, namespace, name
        self.state.improper.append(f"{request.verb} {request.path}")
        raise RefusalError(404, "NotFound", "the server could not find the requested resource")

    def _patch(self, request: Request, key: Key, current: dict[str, Any] | None) -> dict[str, Any]:
        query = {name: values[-1] for name, values in request.query.items()}
        if request.content_type != APPLY:
            self.state.improper.append(f"content type {request.content_type}")
            raise RefusalError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        if "force" in query:
            self.state.improper.append(f"force={query['force']}")
        if not query.get("fieldManager"):
            raise RefusalError(
                422,
                "Invalid",
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
            )
        body = request.body
        metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
        if query.get("dryRun", "All") != "All" or metadata.get("managedFields"):
            raise RefusalError(400, "BadRequest", "dryRun is All, and managedFields are the server's")
        if (metadata.get("namespace"), metadata.get("name")) != key[1:]:
            raise RefusalError(400, "BadRequest", "the name of the object does not match the name on the URL")
        if self.state.admission:
            message = f'admission webhook "policy.test" denied the request: {self.state.admission}'
            raise RefusalError(400, "BadRequest", message)
        if current is None:
            if metadata.get("uid"):
                raise self._modified(
                    key,
                    f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was "
                    "found",
                )
            self._authorize(request, key, verb="create")
            self.create(body, manager=query["fieldManager"], operation="Apply")
            return self.get(key)
        if metadata.get("uid") not in (None, current["metadata"]["uid"]):
            raise self._modified(key, "Precondition failed: UID in precondition and UID in object meta differ")
        if metadata.get("resourceVersion") not in (None, current["metadata"]["resourceVersion"]):
            raise self._modified(
                key,
                "the object has been modified; please apply your changes to the latest version and try again",
            )
        force, dry_run = query.get("force") == "true", "dryRun" in query
        result = self._apply(key, body, manager=query["fieldManager"], force=force, dry_run=dry_run)
        if not dry_run:
            self.state.writes.append((current, copy.deepcopy(result)))
        return copy.deepcopy(result)

    def _apply(self, key: Key, body: dict[str, Any], *, manager: str, force: bool, dry_run: bool) -> dict[str, Any]:
        current = self.state.objects[key]
        try:
            result = self.own.apply(
                current, body, manager=manager, force=force, api_version=body["apiVersion"], time=NOW
            )
        except self.own.ApplyConflictError as error:
            raise _apply_conflict(error.conflicts) from None
        return self._finish(key, current, result, dry_run=dry_run)

    def _finish(
        self, key: Key, current: dict[str, Any], result: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        self._default(result)
        self._validate(result)
        if result["spec"] != current["spec"]:
            result["metadata"]["generation"] += 1
        if dry_run or result == current:
            return result
        self._store(key, result)
        return result

    def _store(self, key: Key, document: dict[str, Any]) -> None:
        self.state.version += 1
        document["metadata"]["resourceVersion"] = str(self.state.version)
        self.state.objects[key] = document

    @staticmethod
    def _default(document: dict[str, Any]) -> None:
        if document["kind"] == "HorizontalPodAutoscaler":
            document["spec"].setdefault("minReplicas", 1)

    @staticmethod
    def _validate(document: dict[str, Any]) -> None:
        """By the published schemas, and by the rules that they cannot say."""
        kind, spec, name = document["kind"], document["spec"], document["metadata"]["name"]
        fault = None
        if kind == "HorizontalPodAutoscaler":
            fault = next((error.message for error in hpa_validator().iter_errors(document)), None)
            low, high = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
            if fault is None and low < 1:
                fault = "spec.minReplicas: Invalid value: must be greater than or equal to 1"
        else:
            try:
                model = ScaledObject.model_validate(document)
                known = model.model_dump(by_alias=True, exclude_none=True, mode="json")["spec"]
                fault = None if known == spec else "spec: unknown field"
            except ValueError as error:
                fault = str(error)
            low, high = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
            idle = spec.get("idleReplicaCount")
            if fault is None and idle is not None and idle >= low:
                fault = f"IdleReplicaCount={idle} must be less than MinReplicaCount={low}"
        if fault is None and low > high:
            fault = f"spec: the minimum {low} is above the maximum {high}"
        if fault:
            details = {"name": name, "group": document["apiVersion"].split("/")[0], "kind": kind}
            raise RefusalError(422, "Invalid", f'{kind}.{details["group"]} "{name}" is invalid: {fault}', details)

    def _authorize(self, request: Request, key: Key, *, verb: str | None = None) -> None:
        plural, namespace, name = key
        group = next(group for group, _, known in RESOURCES if known == plural)
        verb = verb or request.verb
        for rule in self._rules(request.user, namespace):
            if (
                group in rule["apiGroups"]
                and plural in rule["resources"]
                and verb in rule["verbs"]
                and name in rule.get("resourceNames", [name])
            ):
                return
        raise RefusalError(
            403,
            "Forbidden",
            f'{plural}.{group} "{name}" is forbidden: User "{request.user}" cannot {verb} resource "{plural}" in API '
            f'group "{group}" in the namespace "{namespace}"',
            {"name": name, "group": group, "kind": plural},
        )

    def _rules(self, user: str | None, namespace: str) -> list[dict[str, Any]]:
        roles = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one["rules"]
            for one in self.state.manifests
            if one["kind"] == "Role"
        }
        return [
            rule
            for one in self.state.manifests
            if one["kind"] == "RoleBinding" and one["metadata"]["namespace"] == namespace
            for subject in one["subjects"]
            if f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == user
            for rule in roles.get((namespace, one["roleRef"]["name"]), [])
        ]

    @staticmethod
    def _details(key: Key) -> dict[str, Any]:
        return {"name": key[2], "group": next(g for g, _, p in RESOURCES if p == key[0]), "kind": key[0]}

    def _not_found(self, key: Key) -> RefusalError:
        details = self._details(key)
        return RefusalError(404, "NotFound", f'{key[0]}.{details["group"]} "{key[2]}" not found', details)

    def _modified(self, key: Key, why: str) -> RefusalError:
        details = self._details(key)
        message = f'Operation cannot be fulfilled on {key[0]}.{details["group"]} "{key[2]}": {why}'
        return RefusalError(409, "Conflict", message, details)


def _apply_conflict(conflicts: list[tuple[dict[str, Any], tuple[str, ...]]]) -> RefusalError:
    def printed(entry: dict[str, Any]) -> str:
        by = f'"{entry["manager"]}"'
        if entry.get("subresource"):
            by += f' with subresource "{entry["subresource"]}"'
        return f"{by} using {entry['apiVersion']} at {entry['time']}" if entry["operation"] == "Update" else by

    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {printed(entry)}",
            "field": "." + ".".join(path),
        }
        for entry, path in conflicts
    ]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        told = "\n".join(f"{c['message'].replace('conflict', 'conflicts', 1)}:\n- {c['field']}" for c in causes)
        message = f"Apply failed with {len(conflicts)} conflicts: {told}"
    return RefusalError(409, "Conflict", message, {"causes": causes})
