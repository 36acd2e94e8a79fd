"""Where a source that is read chunk by chunk goes on, class by class. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl

from floorcast.source import PrometheusSource, SqlSource
from floorcast.units import floor_to_step
from floorcast.workload import WorkloadClass
from pipelines.sources import Chunk
from pipelines.sources.prometheus.importer import questions
from pipelines.sources.prometheus.presets import CACHED

WHOLE = ""
"""Stands for all classes of a query, which are read together."""


@dataclass(frozen=True)
class Leg:
    """A stretch of time, up to the present where it has no end, and the classes to read in it."""

    start: datetime
    end: datetime | None
    classes: frozenset[str]


def asked(source: PrometheusSource | SqlSource, classes: Mapping[str, WorkloadClass]) -> dict[str, str]:
    """By class a hash of what the source is asked for: other labels or another query may have another history.

    Raises ConfigError where labels or queries cannot be used.
    """
    parts: dict[str, list[object]] = {}
    if isinstance(source, SqlSource):
        parts[WHOLE] = [source.query, source.columns.model_dump(), source.classes, source.workload_class]
    else:
        for question in questions(source, classes):
            # The share of cached tokens is of lately: a source that begins to tell it is not read anew for it.
            if question.metric == CACHED:
                continue
            parts.setdefault(question.workload_class, []).append([question.metric, question.promql])
    return {name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest() for name, part in parts.items()}


def lagging(
    source: PrometheusSource | SqlSource, classes: Collection[str], known: Mapping[str, datetime], *, now: datetime
) -> dict[str, datetime]:
    """The classes of a live source that need more than its newest chunks, and from when on."""
    if isinstance(source, SqlSource):
        return {}
    soon = now - source.allowed_lateness - source.chunk
    since = {name: max(known.get(name, now - source.history), _oldest(source, known, now)) for name in classes}
    return {name: begin for name, begin in since.items() if begin < soon}


def legs(
    source: PrometheusSource | SqlSource,
    classes: Collection[str],
    known: Mapping[str, datetime],
    seen: Mapping[str, datetime | None],
    *,
    now: datetime,
    step: timedelta,
) -> list[Leg]:
    """What to read for each of the classes to have all up to `now`, in time order.

    A class goes on from where it is `known` to be, one that is not from `history` before `now`; or from when it is next
    `seen`, if that was looked for: None where it is not, so that nothing needs to be read. What the allowed lateness
    before holds is read again.

    Of Prometheus chunks are read whole, since what is credited to a replica that is born at a chunk's edge depends on
    what is seen around it. Of a query's rows a step needs only its own, and a gateway that has deleted rows since would
    make a step of them partial: no more is read than must be.
    """
    starts: dict[str, datetime] = {}
    for name in classes:
        begin = now - source.history
        if name in known:
            begin = max(known[name], _oldest(source, known, now)) - source.allowed_lateness
        if name in seen:
            begin = max(begin, (seen[name] or now) - source.allowed_lateness)
        starts[name] = floor_to_step(begin, step if name in known and isinstance(source, SqlSource) else source.chunk)
    moments: list[datetime | None] = [*sorted(set(starts.values())), None]
    return [
        Leg(start, end, frozenset(name for name, begin in starts.items() if begin <= start))
        for start, end in pairwise(moments)
        if start is not None
    ]


def _oldest(source: PrometheusSource | SqlSource, known: Mapping[str, datetime], now: datetime) -> datetime:
    """How far back a class that lags behind the others is looked for: `history` before them. It may have ended."""
    return max(known.values(), default=now) - source.history


def reached(source: PrometheusSource | SqlSource, chunk: Chunk, *, step: timedelta) -> Iterator[tuple[str, datetime]]:
    """The classes that a chunk takes further, and to where: of Prometheus to the end of the last step that has any of
    the class. What was not there yet, for a label mistyped or a collection that had stopped, is looked for again."""
    if isinstance(source, SqlSource):
        yield WHOLE, chunk.end
        return
    last = chunk.demand.group_by("workload_class").agg(pl.col("step_start").max())
    yield from ((name, start + step) for name, start in last.iter_rows())
