"""What an autoscaler object says, as its API server answered: its minimum, who holds it, and what bounds it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of autoscaler, and the names of its two fields."""

    name: str
    group: str
    version: str
    plural: str
    minimum: str
    maximum: str
    unset_minimum: int
    unset_maximum: int

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    @property
    def resource(self) -> str:
        """As RBAC and error messages name it."""
        return f"{self.plural}.{self.group}"

    @property
    def field(self) -> Path:
        """The one field that is ours."""
        return ("spec", self.minimum)


SCALED_OBJECT = Kind(
    name="ScaledObject",
    group="keda.sh",
    version="v1alpha1",
    plural="scaledobjects",
    minimum="minReplicaCount",
    maximum="maxReplicaCount",
    unset_minimum=0,
    unset_maximum=100,
)
HPA = Kind(
    name="HorizontalPodAutoscaler",
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    minimum="minReplicas",
    maximum="maxReplicas",
    unset_minimum=1,
    unset_maximum=1,
)
KINDS = {"scaled_object": SCALED_OBJECT, "hpa": HPA}

_KEDA_NAME = "scaledobject.keda.sh/name"
_PAUSED = "autoscaling.keda.sh/paused"


def minimum_of(found: Object, kind: Kind) -> int:
    """The minimum in force, which is the API's default where the field is not set."""
    value = found["spec"].get(kind.minimum)
    return kind.unset_minimum if value is None else int(value)


def held_to(found: Object, kind: Kind, replicas: int) -> tuple[int, str]:
    """The nearest to `replicas` that the object accepts, and what a person should know of that."""
    maximum = found["spec"].get(kind.maximum)
    highest = kind.unset_maximum if maximum is None else int(maximum)
    if replicas > highest:
        # A minimum above the maximum is refused by the API, or makes replicas oscillate.
        what = f"{kind.maximum} {highest}" if maximum is not None else f"{highest}, which KEDA takes for no maximum"
        return highest, f"{replicas} wanted, held to {what}: raise it there to get the other {replicas - highest}"
    if kind is HPA and replicas < 1:
        return 1, "a HorizontalPodAutoscaler keeps 1 replica at least; only KEDA scales to zero"
    idle = found["spec"].get("idleReplicaCount")
    if idle is not None and replicas <= idle < highest:
        return idle + 1, f"KEDA wants more than idleReplicaCount {idle}"
    return replicas, ""


def keda_owner(found: Object) -> str | None:
    """The ScaledObject that made this HorizontalPodAutoscaler and takes back what others change in it."""
    metadata = found["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == SCALED_OBJECT.name:
            return str(owner["name"])
    label = (metadata.get("labels") or {}).get(_KEDA_NAME)
    return None if label is None else str(label)


def remarks(found: Object, kind: Kind) -> list[str]:
    """Why the minimum may have no effect though it is there."""
    said = []
    metadata = found["metadata"]
    if "deletionTimestamp" in metadata:
        said.append("the object is being deleted")
    for key, value in sorted((metadata.get("annotations") or {}).items()):
        if key.startswith(_PAUSED) and value != "false":
            effect = {
                _PAUSED: "KEDA scales nothing",
                f"{_PAUSED}-replicas": f"KEDA keeps {value} replicas",
                f"{_PAUSED}-scale-out": "KEDA adds no replica",
            }.get(key, "KEDA takes no replica away")
            said.append(f"paused by the annotation {key}={value}: {effect} until it is taken off")
    if kind is HPA and _scales_nothing(found.get("status") or {}):
        said.append("its target has 0 replicas, where an autoscaler is off whatever its minimum: scale the target to 1")
    return said


def holders(found: Object, kind: Kind, *, but: str) -> list[str]:
    """The field managers other than the applier `but` that hold our field."""
    return sorted(
        {entry["manager"] for entry, paths in _entries(found) if not _is_applier(entry, but) and kind.field in paths}
    )


def would_drop(found: Object, kind: Kind, *, manager: str) -> list[str]:
    """Fields that applying ours alone would take out of the object: those that this manager applied before, as with a
    whole manifest, and that no other manager holds."""
    own: set[Path] = set()
    others: set[Path] = set()
    for entry, paths in _entries(found):
        (own if _is_applier(entry, manager) else others).update(paths)
    return sorted(".".join(path) for path in own - others - {kind.field})


def patch(found: Object, kind: Kind, replicas: int) -> dict[str, Any]:
    """The server-side apply of our field.

    `uid` keeps it from making an object where this one was deleted meanwhile; `resourceVersion` keeps it from an
    object that was changed meanwhile, and a request that was held up on its way from undoing a later one.
    """
    metadata = {key: found["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": {kind.minimum: replicas},
    }


def _entries(found: Object) -> Iterator[tuple[Mapping[str, Any], set[Path]]]:
    """The managers of the object itself, not of its status, each with the paths that it holds."""
    for entry in found["metadata"].get("managedFields") or ():
        if not entry.get("subresource"):
            yield entry, set(_paths(entry.get("fieldsV1") or {}, ()))


def _is_applier(entry: Mapping[str, Any], manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Apply")


def _paths(fields: Mapping[str, Any], above: Path) -> Iterator[Path]:
    """The paths of the leaves of a FieldsV1, where `f:NAME` is a field and `.` the map above it itself."""
    names = [key for key in fields if key != "."]
    if not names and above:
        yield above
    for key in names:
        yield from _paths(fields[key], (*above, key.removeprefix("f:")))


def _scales_nothing(status: Object) -> bool:
    return any(
        condition["type"] == "ScalingActive" and condition.get("reason") == "ScalingDisabled"
        for condition in status.get("conditions") or ()
    )
