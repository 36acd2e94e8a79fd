"""Server-side apply as Kubernetes defines it, over maps; lists are atomic, as all those of the two kinds' specs are.

Paths are tuples of keys. A manager is the triple (name, operation, subresource) of a `managedFields` entry.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[str, ...]

_IDENTITY = {("apiVersion",), ("kind",)} | {
    ("metadata", key)
    for key in ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
}


class ApplyConflictError(Exception):
    """Of each conflict the manager's `managedFields` entry and the path."""

    def __init__(self, conflicts: list[tuple[dict[str, Any], Path]]) -> None:
        self.conflicts = conflicts
        super().__init__(conflicts)


def leaves(value: Any, above: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*above, key))
    elif above:
        yield above


def applied_paths(document: dict[str, Any]) -> set[Path]:
    return set(leaves(document)) - _IDENTITY - {p for p in leaves(document) if p[:2] == ("metadata", "managedFields")}


def fields_v1(paths: set[Path]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path in sorted(paths):
        at = root
        for key in path:
            at = at.setdefault(f"f:{key}", {})
    return root


def paths_of(entry: dict[str, Any]) -> set[Path]:
    return {tuple(key.removeprefix("f:") for key in path) for path in leaves(entry["fieldsV1"])}


def value_at(document: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def put_at(document: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = copy.deepcopy(value)


def remove_at(document: dict[str, Any], path: Path) -> None:
    holder = value_at(document, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
        if not holder and len(path) > 2:
            remove_at(document, path[:-1])


def is_applier(entry: dict[str, Any], manager: str) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, "Apply", "")


def apply(
    current: dict[str, Any], wanted: dict[str, Any], *, manager: str, force: bool, api_version: str, time: str
) -> dict[str, Any]:
    """The object after `manager` applied `wanted`. Raises ApplyConflictError."""
    result = copy.deepcopy(current)
    entries = result["metadata"].setdefault("managedFields", [])
    new = applied_paths(wanted)
    others = [entry for entry in entries if not is_applier(entry, manager)]
    own = next((paths_of(entry) for entry in entries if is_applier(entry, manager)), set())
    conflicts = [
        (entry, path)
        for entry in others
        for path in sorted(paths_of(entry) & new)
        if value_at(current, path) != value_at(wanted, path)
    ]
    if conflicts and not force:
        raise ApplyConflictError(conflicts)
    for entry, path in conflicts:
        entry["fieldsV1"] = fields_v1(paths_of(entry) - {path})
    for path in own - new - set().union(*map(paths_of, others), set()):
        remove_at(result, path)
    for path in new:
        put_at(result, path, value_at(wanted, path))
    result["metadata"]["managedFields"] = [
        *(entry for entry in others if entry["fieldsV1"]),
        *([entry_of(manager, "Apply", new, api_version=api_version, time=time)] if new else []),
    ]
    return result


def update(
    current: dict[str, Any],
    changed: dict[str, Any],
    *,
    manager: str,
    api_version: str,
    time: str,
    subresource: str = "",
) -> dict[str, Any]:
    """The object after `manager` wrote `changed` in its place: it takes what it changed from all others."""
    result = copy.deepcopy(changed)
    both = applied_paths(current) | applied_paths(changed)
    touched = {path for path in both if value_at(current, path) != value_at(changed, path)}
    kept = []
    own: set[Path] = {path for path in touched if value_at(changed, path) is not None}
    for entry in current.get("metadata", {}).get("managedFields", []):
        if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, "Update", subresource):
            own |= paths_of(entry) - touched
        elif left := paths_of(entry) - touched:
            kept.append({**entry, "fieldsV1": fields_v1(left)})
    if own:
        kept.append(entry_of(manager, "Update", own, api_version=api_version, time=time, subresource=subresource))
    result["metadata"]["managedFields"] = kept
    return result


def entry_of(
    manager: str, operation: str, paths: set[Path], *, api_version: str, time: str, subresource: str = ""
) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields_v1(paths),
        **({"subresource": subresource} if subresource else {}),
    }
