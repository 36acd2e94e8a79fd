"""NVIDIA AIPerf's `profile_export_aiperf.json` or `.csv`, one run each; GenAI-Perf's have the same layout.

Metrics are objects of unit and statistics, under their tag. The earliest versions put them under `records` with shorter
tags, and had no totals: those follow from means and counts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, ValidationError

from pipelines.calibration.shared import Lenient, UnusableError
from scaling.calibration.sweep import Latency, LoadPoint

_SHORT = {"ttft": "time_to_first_token", "isl": "input_sequence_length", "osl": "output_sequence_length"}
_LATENCIES: Mapping[Latency, str] = {
    "ttft": "time_to_first_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}
_HEADERS = {
    "Time to First Token": "time_to_first_token",
    "Inter Token Latency": "inter_token_latency",
    "Request Latency": "request_latency",
    "Request Throughput": "request_throughput",
    "Request Count": "request_count",
    "Error Request Count": "error_request_count",
    "Benchmark Duration": "benchmark_duration",
    "Input Sequence Length": "input_sequence_length",
    "Output Sequence Length": "output_sequence_length",
    "Total Input Sequence Length": "total_isl",
    "Total Output Sequence Length": "total_osl",
}
_NAMED = re.compile(r"(?P<name>[^(]+?)(?: \((?P<unit>[^()]+)\))?")


class _Metric(Lenient):
    """Statistics beside `avg` are kept as extras, `p99` and the like."""

    model_config = ConfigDict(extra="allow")

    unit: str = ""
    avg: float | None = None


def recognised(document: dict[str, Any]) -> bool:
    return "request_throughput" in document or isinstance(document.get("records"), dict)


def recognised_table(text: str) -> bool:
    return text.startswith("Metric,") and "Request Throughput" in text


def points(document: dict[str, Any], source: str) -> list[LoadPoint]:
    if document.get("was_cancelled"):
        raise UnusableError("was cancelled before its end", "run it to the end")
    metrics = {}
    for tag, value in document.get("records", document).items():
        if isinstance(value, dict) and "avg" in value:
            metrics[_SHORT.get(tag, tag)] = _Metric.model_validate(value)
    setting = document.get("input_config") or {}
    return [_point(metrics, source, *_load(setting))]


def table_points(text: str, source: str) -> list[LoadPoint]:
    """The CSV export: a table of statistics, then one of single values."""
    metrics, header = {}, ["Metric"]
    for row in csv.reader(io.StringIO(text)):
        if not row or (row[0] != "Metric" and len(row) != len(header)):
            continue
        if row[0] == "Metric":
            header = ["avg" if name == "Value" else name for name in row]
            continue
        named = _NAMED.fullmatch(row[0])
        if named and named["name"] in _HEADERS:
            values = {name: cell for name, cell in zip(header[1:], row[1:], strict=True) if cell}
            metrics[_HEADERS[named["name"]]] = _Metric.model_validate({"unit": named["unit"] or "", **values})
    return [_point(metrics, source, None, None)]


def _point(
    metrics: Mapping[str, _Metric], source: str, offered_per_s: float | None, concurrency: float | None
) -> LoadPoint:
    def value(*tags: str) -> float | None:
        return next((metrics[tag].avg for tag in tags if tag in metrics), None)

    requests, throughput = value("request_count"), value("request_throughput")
    duration_s = _seconds(metrics["benchmark_duration"]).get("avg") if "benchmark_duration" in metrics else None
    if duration_s is None and requests and throughput:
        duration_s = requests / throughput
    mean_in, mean_out = value("input_sequence_length"), value("output_sequence_length")
    if not requests or not duration_s or mean_in is None or mean_out is None:
        raise UnusableError(
            "lacks one of request_count, benchmark_duration, input_sequence_length and output_sequence_length",
            "export the summary of a run that completed requests",
        )
    return LoadPoint(
        source=source,
        offered_per_s=offered_per_s,
        concurrency=concurrency,
        requests=round(requests),
        failed=round(value("error_request_count") or 0),
        duration_s=duration_s,
        tokens_in=value("total_isl") or mean_in * requests,
        tokens_out=value("total_osl") or mean_out * requests,
        latencies={kind: _percentiles(metrics[tag]) for kind, tag in _LATENCIES.items() if tag in metrics},
    )


def _percentiles(metric: _Metric) -> dict[float, float]:
    return {float(name[1:]): value for name, value in _seconds(metric).items() if re.fullmatch(r"p\d+", name)}


def _seconds(metric: _Metric) -> dict[str, float]:
    """The metric's statistics in seconds. Raises UnusableError for a unit that is not one of time."""
    if metric.unit not in _UNITS_S:
        raise UnusableError(f"has a time in {metric.unit!r}, which is not known", f"use one of {', '.join(_UNITS_S)}")
    values = {"avg": metric.avg, **(metric.model_extra or {})}
    found = {}
    for name, value in values.items():
        if isinstance(value, int | float | str):
            found[name] = float(value) * _UNITS_S[metric.unit]
    return found


class _Phase(Lenient):
    exclude_from_results: bool = False
    rate: float | None = None
    concurrency: float | None = None


class _Loadgen(Lenient):
    request_rate: float | None = None
    concurrency: float | None = None


class _Config(Lenient):
    """`loadgen` up to 0.9, `phases` after it."""

    loadgen: _Loadgen | None = None
    phases: tuple[_Phase, ...] = ()


def _load(setting: object) -> tuple[float | None, float | None]:
    """Rate offered and concurrency, as far as the configuration that is kept beside the results tells."""
    try:
        config = _Config.model_validate(setting)
    except ValidationError:
        return None, None
    if config.loadgen is not None:
        return config.loadgen.request_rate, config.loadgen.concurrency
    measured = [phase for phase in config.phases if not phase.exclude_from_results]
    return (measured[-1].rate, measured[-1].concurrency) if measured else (None, None)
