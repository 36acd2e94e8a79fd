"""From YAML text to a `Config`. Every fault names the file, the line, the key, the remedy and, unless it may hold a
secret, the value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from floorcast.config import Config
from floorcast.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_WORDS = {
    "missing": "is missing",
    "too_short": "is empty",
    "extra_forbidden": "unknown key",
    "tuple_type": "should be a list",
    "float_parsing": "should be a number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
}
"""In place of pydantic's own, which speaks of fields and tuples."""

_REMEDIES = {
    "missing": "add the key",
    "greater_than": "use a larger number",
    "greater_than_equal": "use a larger number",
    "less_than": "use a smaller number",
    "less_than_equal": "use a smaller number",
    "string_pattern_mismatch": "use lower-case letters, digits, and dots or dashes between them",
    "model_type": "write a mapping of keys, as in the example of `floorcast init`",
    "dict_type": "write a mapping of keys, as in the example of `floorcast init`",
    "tuple_type": "write a list, as in [a, b]",
    "too_short": "give at least one",
    "float_parsing": "write a number, without a unit",
    "float_type": "write a number, without a unit",
    "int_parsing": "write a whole number, without a unit",
    "int_from_float": "write a number without a fraction",
    "int_type": "write a whole number, without a unit",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "write a text, in quotes where it looks like a number",
}

_AMOUNT = re.compile(
    r"\s*(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?\s*([%kM]?)(?:\s*(?:tokens?|requests?|replicas?|gpus?))?(?:/s)?\s*",
    re.IGNORECASE,
)
_TIMES = {"": 1, "%": 0.01, "k": 1e3, "m": 1e6}
"""A number as people write it, as in `95%`, `3,000/s` or `12k`. Per minute it would be another."""

_UNSHOWN = {"missing", "value_error", "extra_forbidden", "model_type", "model_attributes_type", "dict_type"}
"""Faults that need no value to be understood. That of an unknown key may be a misspelt key's password."""

_SECRETS = {"basic_auth", "password", "bearer_token", "headers", "url", "database"}
"""Keys whose values are or hold secrets."""


def parse_config(
    text: str, *, file: str, environment: Mapping[str, str], settings: Mapping[str, str] | None = None
) -> Config:
    """Validate a whole configuration.

    `settings` are values put in place of the file's, by key as in `pools.chat-70b.startup.p90`, each YAML of its own;
    a fault in one names it as `--set`.

    `${NAME}` and `${NAME:-default}` inside strings are taken from `environment`, so that secrets and paths
    stay out of the file. Raises ConfigError listing every fault found.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else file
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(
            f"not YAML: {problem}", where=place, remedy="check the indentation and quotes near that line"
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            "the file is empty or not a mapping of keys", where=file, remedy="start from `floorcast init`"
        )
    try:
        _refuse_duplicate_keys(node, file)
    except RecursionError:
        raise ConfigError("an alias refers to itself", where=file, remedy="write the value out") from None
    data = _expand(yaml.safe_load(text), environment=environment, file=file, path=())
    put = {tuple(_put(data, key, value)): key for key, value in (settings or {}).items()}
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        faults = [_describe(fault, node=node, file=file, put=put) for fault in _apart(error.errors())]
        raise ConfigError("\n".join(faults)) from None


def _expand(value: Any, *, environment: Mapping[str, str], file: str, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _expand(v, environment=environment, file=file, path=(*path, str(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [_expand(v, environment=environment, file=file, path=(*path, str(i))) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def lookup(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = environment.get(name, default)
        if found is None:
            raise ConfigError(
                f"environment variable {name} is not set",
                where=f"{file}: {'.'.join(path)}",
                remedy=f"export {name}=..., or write ${{{name}:-default}}",
            )
        return found

    return _VARIABLE.sub(lookup, value)


def _put(data: Any, key: str, text: str) -> list[str]:
    """Put a value into the document and return its path. Names may hold dots: the longest that is there counts."""
    where = f"--set {key}"
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"not a value: {text!r}", where=where, remedy="quote it as in a YAML file") from None
    path: list[str] = []
    parts = key.split(".")
    while parts:
        if isinstance(data, list):
            known = [str(position) for position in range(len(data))]
        elif isinstance(data, dict):
            known = [str(name) for name in data]
        else:
            raise ConfigError(f"{'.'.join(path)} is a value and has no keys", where=where, remedy="set it as a whole")
        lengths = [length for length in range(len(parts), 0, -1) if ".".join(parts[:length]) in known]
        length = lengths[0] if lengths else 1
        part = ".".join(parts[:length])
        if not lengths and (isinstance(data, list) or path in (["pools"], ["classes"])):
            near = difflib.get_close_matches(part, known, n=1)
            raise ConfigError(
                f"no {part} in {'.'.join(path)}",
                where=where,
                remedy=f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}",
            )
        parts, path = parts[length:], [*path, part]
        place = int(part) if isinstance(data, list) else part
        if not parts:
            data[place] = value
        elif not isinstance(data, list) and data.get(part) is None:
            data[part] = {}
        data = data[place]
    return path


def _describe(fault: ErrorDetails, *, node: yaml.MappingNode, file: str, put: Mapping[tuple[str, ...], str]) -> str:
    path = [str(part) for part in fault["loc"]]
    if path[:1] in (["sources"], ["publishers"]):
        # pydantic names the kind of the entry after its position; the file does not.
        del path[2:3]
    context = fault.get("ctx", {})
    secret = bool(_SECRETS & set(path))
    hint = context.get("hint") or (None if secret else _hint(fault))
    # What concerns several keys is found by the whole, which says where to look.
    path += context.get("at", ())
    remedy = hint or _REMEDIES.get(fault["type"], "correct it as the message says")
    message = _WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
    value = "" if secret or fault["type"] in _UNSHOWN else _shown(fault["input"])
    if fault["type"] == "extra_forbidden":
        near = _near_key(path)
        remedy = f"did you mean `{near}`?" if near else f"known keys here: {', '.join(sorted(_known_keys(path[:-1])))}"
    key = ".".join(path) or "(whole file)"
    # What was set, or a part of what a fault is about.
    given = next((name for at, name in put.items() if path and all(map(str.__eq__, path, at))), None)
    where = f"{file}:{_line_of(node, path)}" if given is None else f"--set {given}"
    return f"{where}: {key}: {message}{value}\n  remedy: {remedy}"


def _apart(faults: Sequence[ErrorDetails]) -> Iterator[ErrorDetails]:
    """The faults that are not what another makes of the same mistake: a key that is missing since it is misspelt, a
    list that is empty since its entries are wrong."""
    places = [tuple(map(str, fault["loc"])) for fault in faults]
    misspelt = {
        (*place[:-1], _near_key(place))
        for fault, place in zip(faults, places, strict=True)
        if fault["type"] == "extra_forbidden"
    }
    for fault, place in zip(faults, places, strict=True):
        below = any(other[: len(place)] == place and len(other) > len(place) for other in places)
        if not (fault["type"] == "missing" and place in misspelt) and not (fault["type"] == "too_short" and below):
            yield fault


def _hint(fault: ErrorDetails) -> str | None:
    """What was likely meant: a share in percent, a number with its unit, a list of one, or the nearest of the words."""
    value, context = fault["input"], fault.get("ctx", {})
    if fault["type"] in ("less_than", "less_than_equal") and isinstance(value, int | float):
        # From 2 on: 1.5 is rather a share that is too large than 1.5 %.
        if max(context.get("le", 0), context.get("lt", 0)) <= 1 and 2 <= value <= 100:
            return f"did you mean {value / 100:g}, which is {value:g} %?"
    elif fault["type"] == "tuple_type" and isinstance(value, str | int | float):
        return f"write [{value}]"
    elif fault["type"] in ("float_parsing", "int_parsing") and (meant := _AMOUNT.fullmatch(str(value))):
        number = round(float(meant[1].replace(",", "") + (meant[2] or "")) * _TIMES[meant[3].lower()], 9)
        if number.is_integer() or fault["type"] == "float_parsing":
            return f"write {int(number) if number.is_integer() else number}"
    elif fault["type"] == "literal_error" and isinstance(value, str):
        words = re.findall(r"'([^']*)'", str(context["expected"]))
        near = [word for word in words if len(value) > 2 and (word.startswith(value) or value.startswith(word))]
        near = near or difflib.get_close_matches(value, words, n=1)
        return f"did you mean {near[0]}?" if near else None
    return None


def _near_key(path: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(path[-1], sorted(_known_keys(path[:-1])), n=1, cutoff=0.5)
    return near[0] if near else None


def _known_keys(path: Sequence[str]) -> set[str]:
    """The keys that the configuration knows at `path`, whose names of pools, classes and positions are free."""
    models: list[type[BaseModel]] = [Config]
    for part in path:
        fields = [f for m in models for name, f in m.model_fields.items() if part in (name, f.alias)]
        models = [m for f in fields for m in _models_in(f.annotation)] or models
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _shown(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return ""
    return f" (value {value!r})" if isinstance(value, str | int | float | bool | None) else ""


def _line_of(node: yaml.Node, path: list[str]) -> int:
    """The line of the deepest part of `path` that the file has."""
    line = node.start_mark.line + 1
    for part in path:
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                if str(key.value) == part:
                    line, node = key.start_mark.line + 1, child
                    break
            else:
                return line
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
    return line


def _refuse_duplicate_keys(node: yaml.Node, file: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, child in node.value:
            if key.value in seen:
                raise ConfigError(
                    f"key `{key.value}` appears twice",
                    where=f"{file}:{key.start_mark.line + 1}",
                    remedy="delete or rename one of the two",
                )
            seen.add(key.value)
            _refuse_duplicate_keys(child, file)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _refuse_duplicate_keys(child, file)
