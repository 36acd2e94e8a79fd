"""Files and folders of results, whichever tool wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from floorcast.errors import DataError, NotFoundError
from pipelines.calibration import aiperf, guidellm, inference_perf, vllm
from pipelines.calibration.shared import UnusableError
from scaling.calibration.sweep import LoadPoint

_SUFFIXES = (".json", ".jsonl", ".csv")
_TOOLS: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any], str], list[LoadPoint]]]] = {
    "guidellm": (guidellm.recognised, guidellm.points),
    "inference-perf": (inference_perf.recognised, inference_perf.points),
    "vllm": (vllm.recognised, vllm.points),
    "aiperf": (aiperf.recognised, aiperf.points),
}
KNOWN = "results of vllm bench serve, guidellm, AIPerf (JSON or CSV) or inference-perf (reports of stages)"


class Results(NamedTuple):
    """`tools` wrote the `points`; `passed_over` are the runs and the files of folders that show none, and why."""

    points: list[LoadPoint]
    tools: list[str]
    passed_over: dict[str, str]


def read_results(paths: Sequence[Path]) -> Results:
    """All runs in the files, and in the JSON, JSON lines and CSV files below the folders.

    Raises NotFoundError for a path that is not there. Raises DataError where a file that was named is not understood,
    or a folder holds none that is; in a folder what is not understood is passed over.
    """
    results = Results([], [], {})
    for path in paths:
        if not path.exists():
            raise NotFoundError("no such file or folder", where=str(path), remedy=f"name {KNOWN}")
        if path.is_file():
            _add(results, path)
            continue
        before = len(results.points)
        for file in _below(path):
            try:
                _add(results, file)
            except DataError as error:
                results.passed_over[str(file)] = error.what
        if len(results.points) == before:
            raise DataError("the folder holds no results that are understood", where=str(path), remedy=f"name {KNOWN}")
    if not results.points:
        where, why = next(iter(results.passed_over.items()))
        raise DataError(why, where=where, remedy="measure at a load that the server can bear")
    return results


def _below(folder: Path) -> Iterator[Path]:
    """The files of a folder that may be results. A table beside a document of the same name says the same again."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    documents = {file.with_suffix("") for file in files if file.suffix == ".json"}
    yield from (file for file in files if file.suffix != ".csv" or file.with_suffix("") not in documents)


def _add(results: Results, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"cannot be read: {reason}", where=str(path), remedy=f"name {KNOWN}") from None
    if aiperf.recognised_table(text):
        _take(results, "aiperf", partial(aiperf.table_points, text), str(path))
        return
    documents = _documents(text, path)
    for place, document in enumerate(documents, start=1):
        source = f"{path}, run {place}" if len(documents) > 1 else str(path)
        tool = next((name for name, (recognised, _) in _TOOLS.items() if recognised(document)), None)
        if tool is None:
            keys = ", ".join(list(document)[:5]) or "none"
            raise DataError(
                f"is not a result that is understood (its keys: {keys})", where=source, remedy=f"name {KNOWN}"
            )
        _take(results, tool, partial(_TOOLS[tool][1], document), source)


def _documents(text: str, path: Path) -> list[dict[str, Any]]:
    """One object, a list of them, or one a line."""
    try:
        parsed = [json.loads(text)]
    except ValueError:
        try:
            parsed = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise DataError(f"is not JSON: {error}", where=str(path), remedy=f"name {KNOWN}") from None
    flat = [one for document in parsed for one in (document if isinstance(document, list) else [document])]
    if not flat or not all(isinstance(one, dict) for one in flat):
        raise DataError("holds no JSON objects", where=str(path), remedy=f"name {KNOWN}")
    return flat


def _take(results: Results, tool: str, read: Callable[[str], list[LoadPoint]], source: str) -> None:
    """Add what `read` gives, with its faults named for a person. A run of which nothing completed shows no rate."""
    try:
        found = read(source)
    except UnusableError as error:
        raise DataError(error.what, where=source, remedy=error.remedy) from None
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        raise DataError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            where=source,
            remedy=f"use the file as {tool} wrote it; if it is, its version writes what is not understood here",
        ) from None
    for one in found:
        if one.requests and one.tokens_in and one.tokens_out:
            results.points.append(one)
        else:
            results.passed_over[one.source] = "no request of it completed with tokens in and out"
    if tool not in results.tools:
        results.tools.append(tool)
