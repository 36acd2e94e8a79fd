"""Two requests to a Kubernetes API server, with a time limit each, and what its refusals mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from floorcast.errors import PublishError
from pipelines.publishers.kubernetes_object import Kind, Object

AT_ONCE = 8
"""Objects that are read and written at the same time."""

_APPLY = "application/apply-patch+yaml"


class RefusedError(Exception):
    """The server will not do it however often it is asked."""


class MayNotPatchError(RefusedError):
    """Its credentials do not allow writing the object."""


class FieldHeldError(Exception):
    """Other field managers hold a field and want another value."""

    def __init__(self, managers: list[str]) -> None:
        self.managers = managers
        super().__init__(", ".join(managers))


class PassingError(Exception):
    """It may work when it is tried again, not before `after_s` where the server said so."""

    def __init__(self, what: str, *, after_s: float = 0.0) -> None:
        self.after_s = after_s
        super().__init__(what)


class Cluster:
    """One API server, as its kubeconfig or a pod's service account says."""

    def __init__(self, *, kubeconfig: Path | None, context: str | None, timeout_s: float) -> None:
        """Reads the credentials and asks nothing yet.

        Without `kubeconfig` and `context` it is the cluster that this process runs in: never by chance the one that
        someone's kubeconfig is pointed at. Raises PublishError where there is no such configuration.
        """
        settings = client.Configuration()
        try:
            if kubeconfig is None and context is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(
                    config_file=str(kubeconfig) if kubeconfig else None,
                    context=context,
                    client_configuration=settings,
                    persist_config=False,
                )
        except (config.ConfigException, OSError) as error:
            raise PublishError(
                f"no access to a cluster: {error}",
                where=str(kubeconfig or context or "in a pod"),
                remedy="run in a pod with a service account, or name a `kubeconfig` and a `context` of the publisher",
            ) from None
        settings.connection_pool_maxsize = AT_ONCE
        # Tried again is what was read anew, by the caller: never a write alone, and never without a limit in time.
        settings.retries = urllib3.Retry(total=False, redirect=False)
        self._objects = client.CustomObjectsApi(client.ApiClient(settings))
        self._timeout_s = timeout_s

    def close(self) -> None:
        self._objects.api_client.close()

    def read(self, kind: Kind, namespace: str, name: str) -> Object:
        """The object. Raises RefusedError or PassingError."""
        return self._ask("get", kind, namespace, name)

    def apply(self, kind: Kind, body: Mapping[str, Any], *, manager: str, dry_run: bool) -> Object:
        """The object as it is after the server-side apply of `body`, or would be after a dry run.

        It never forces. Raises FieldHeldError, RefusedError or PassingError.
        """
        metadata = body["metadata"]
        return self._ask(
            "patch",
            kind,
            metadata["namespace"],
            metadata["name"],
            body=body,
            field_manager=manager,
            _content_type=_APPLY,
            **({"dry_run": "All"} if dry_run else {}),
        )

    def _ask(self, verb: str, kind: Kind, namespace: str, name: str, **arguments: Any) -> Object:
        call = getattr(self._objects, f"{verb}_namespaced_custom_object")
        try:
            answer = call(
                kind.group, kind.version, namespace, kind.plural, name, _request_timeout=self._timeout_s, **arguments
            )
        except client.ApiException as error:
            raise _meant(error, verb, kind, namespace, name) from None
        except urllib3.exceptions.HTTPError as error:
            raise _unreachable(error, self._timeout_s) from None
        except (config.ConfigException, OSError) as error:
            raise RefusedError(f"its credentials cannot be read: {error}") from None
        if not isinstance(answer, dict) or answer.get("kind") != kind.name or not answer.keys() >= {"metadata", "spec"}:
            raise PassingError(f"the answer is no {kind.name}: is a proxy in front of the API server?")
        return answer


def _meant(error: client.ApiException, verb: str, kind: Kind, namespace: str, name: str) -> Exception:
    """What the refusal of a request means for whoever runs this."""
    status = _status(error)
    said = status.get("message") or error.reason or "no message"
    details = status.get("details") or {}
    if error.status == 409:
        causes = details.get("causes") or ()
        held = [cause.get("message", "") for cause in causes if cause.get("reason") == "FieldManagerConflict"]
        return FieldHeldError(sorted(set(map(_manager, held)))) if held else PassingError(f"changed meanwhile: {said}")
    if not error.status:
        # How the client tells of TLS.
        fault = str(error.reason)
        untrusted = "CERTIFICATE" in fault
        return RefusedError(f"its certificate is not to be trusted: {fault}") if untrusted else PassingError(fault)
    if error.status == 401:
        return PassingError("its token is not valid (401): it may have been replaced just now")
    if error.status == 429 or error.status >= 500:
        return PassingError(f"{error.status} {said}", after_s=_retry_after_s(error, details))
    if error.status == 403:
        refused = MayNotPatchError if verb == "patch" else RefusedError
        what = f"may not {verb} {kind.resource} {name} in namespace {namespace}"
        return refused(f"{what}: apply what `floorcast rbac` prints ({said})")
    if error.status == 404 and details.get("name"):
        what = f"no {kind.name} {name} in namespace {namespace}: make it first, without {kind.minimum}"
    elif error.status == 404:
        what = f"this cluster knows no {kind.resource}/{kind.version}: install it, or use the other `object`"
    else:
        what = f"{error.status} {said}"
    return RefusedError(what)


def _status(error: client.ApiException) -> dict[str, Any]:
    """The Status that the body should be; empty where a proxy answered."""
    try:
        status = json.loads(error.body or "")
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}


def _manager(message: str) -> str:
    """`kubectl-edit using autoscaling/v2` of `conflict with "kubectl-edit" using autoscaling/v2`."""
    return message.removeprefix("conflict with ").replace('"', "") or "a manager that is not named"


def _retry_after_s(error: client.ApiException, details: Mapping[str, Any]) -> float:
    given = (error.headers or {}).get("Retry-After") or details.get("retryAfterSeconds") or 0
    try:
        return max(float(given), 0.0)
    except ValueError:
        # A date: what HTTP allows and no API server sends.
        return 0.0


def _unreachable(error: urllib3.exceptions.HTTPError, timeout_s: float) -> Exception:
    cause = getattr(error, "reason", None) or error
    # A connection that is refused is a kind of timeout to urllib3.
    refused = isinstance(cause, urllib3.exceptions.NewConnectionError)
    if isinstance(cause, urllib3.exceptions.TimeoutError) and not refused:
        return PassingError(f"no answer within {timeout_s:g} s")
    return PassingError(f"cannot be reached: {cause}")
