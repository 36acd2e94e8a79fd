"""Which series tell of the same counter, and series as frames."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from floorcast.source import PrometheusSource
from pipelines.sources.prometheus.client import Series
from pipelines.sources.prometheus.counters import SAMPLES

_SCRAPERS = frozenset({"__name__", "prometheus", "prometheus_replica", "receive", "receive_replica", "tenant_id"})
"""Labels that say who stored a series and under which name, not what was counted."""

_PATHS = frozenset({"replica", "__replica__", "monitor", "job", "endpoint", "service", "metrics_path"})
"""Labels that say how a target was reached, once `pod` or `instance` says which target it is."""

_ENOUGH = 8
"""Samples, and different values of them, that tell whether two series are copies."""

_ABOUT = ("workload_class", "metric", "counter", "series")

Identity = tuple[tuple[str, str], ...]


def copy_labels(source: PrometheusSource) -> list[str]:
    """Labels in which copies of one series differ, but for the metric's name."""
    return sorted((_SCRAPERS | _PATHS | set(source.copies)) - {"__name__", *source.distinct})


def identity(labels: Mapping[str, str], *, copies: Collection[str] = (), distinct: Collection[str] = ()) -> Identity:
    """What tells one counter from another, whoever scraped it and whatever its metric is called.

    Where `pod` names the target, only the port of `instance` still matters: two servers may share a pod. The labels
    named by `copies` never matter, those of `distinct` always do.

    >>> identity({"__name__": "a", "job": "x", "pod": "p-0", "instance": "10.0.0.1:8000", "prometheus": "k8s-1"})
    (('instance', '8000'), ('pod', 'p-0'))
    """
    kept = {name: value for name, value in labels.items() if name in distinct or name not in _SCRAPERS | set(copies)}
    if "pod" in kept or "instance" in kept:
        kept = {name: value for name, value in kept.items() if name in distinct or name not in _PATHS}
    if "pod" in kept and "instance" in kept and "instance" not in distinct:
        port = kept.pop("instance").rpartition(":")[2]
        if port.isdigit():
            kept["instance"] = port
    return tuple(sorted(kept.items()))


def to_samples(
    found: Iterable[tuple[str, str, list[Series]]], *, copies: Collection[str] = (), distinct: Collection[str] = ()
) -> pl.DataFrame:
    """Series with their class and metric as a frame of `counters.SAMPLES`; NaN and infinities are left out.

    For `copies` and `distinct` see `identity`.
    """
    counters: dict[tuple[str, str, Identity], int] = {}
    about: list[tuple[str, str, int, int]] = []
    pairs = [np.empty((0, 2))]
    for workload_class, metric, series in found:
        # Servers answer in any order; between equal copies the order decides.
        for one in sorted(series, key=lambda one: sorted(one.metric.items())):
            who = identity(one.metric, copies=copies, distinct=distinct)
            counter = counters.setdefault((workload_class, metric, who), len(counters))
            about.append((workload_class, metric, counter, len(about)))
            pairs.append(np.array(one.values, dtype=float).reshape(-1, 2))
    numbers = np.repeat(np.arange(len(about)), [len(block) for block in pairs[1:]])
    heads = pl.DataFrame(about, schema={name: SAMPLES[name] for name in _ABOUT}, orient="row")
    times, values = np.concatenate(pairs).T
    samples = heads[numbers].with_columns(t=pl.Series(np.rint(times * 1000).astype(np.int64)), value=pl.Series(values))
    return samples.filter(pl.col("value").is_finite())


def merged_by(series: Iterable[Series], source: PrometheusSource) -> list[str]:
    """Labels in which series of one class and metric differ that are taken for the same counter."""
    by_counter: dict[Identity, list[Mapping[str, str]]] = {}
    for one in series:
        who = identity(one.metric, copies=source.copies, distinct=source.distinct)
        by_counter.setdefault(who, []).append(one.metric)
    return sorted({label for copies in by_counter.values() for label in _differing(copies)})


def _differing(copies: Sequence[Mapping[str, str]]) -> list[str]:
    names = {name for labels in copies for name in labels}
    return sorted(name for name in names if len({labels.get(name) for labels in copies}) > 1)


def doubts(series: list[Series], source: PrometheusSource) -> list[str]:
    """What speaks against the way that series of one class and metric were told apart, with the remedy.

    Scrapes of one counter, put together in the order of their times, fall no more often than those of one scraper do.
    """
    known = [(identity(one.metric, copies=source.copies, distinct=source.distinct), one) for one in series]
    ordered = sorted((pair for pair in known if pair[1].values), key=lambda pair: pair[1].values[-1][1])
    by_counter: dict[Identity, list[Series]] = {}
    for who, one in ordered:
        by_counter.setdefault(who, []).append(one)
    # Copies end with nearly the same value, so that they are neighbours.
    double = [
        (one, other)
        for (who, one), (next_, other) in pairwise(ordered)
        if who != next_ and _same_counter(one, other) is True
    ]
    mixed = [pair for copies in by_counter.values() for pair in pairwise(copies) if _same_counter(*pair) is False]
    return [
        *_doubt(double, "rise alike and are both counted; if they are copies, name in `copies`"),
        *_doubt(mixed, "are taken for copies and do not rise alike; if they are none, name in `distinct`"),
    ]


def _doubt(pairs: list[tuple[Series, Series]], what: str) -> list[str]:
    if not pairs:
        return []
    labels = _differing([series.metric for series in pairs[0]])
    pair = "pair" if len(pairs) == 1 else "pairs"
    return [f"{len(pairs)} {pair} of series, which {what} what tells them apart: {', '.join(labels)}"]


def _same_counter(one: Series, other: Series) -> bool | None:
    """None where it is not to be told: too few samples at the same time, or too little counted."""
    ours, theirs = np.array(one.values, dtype=float), np.array(other.values, dtype=float)
    low, high = max(ours[0, 0], theirs[0, 0]), min(ours[-1, 0], theirs[-1, 0])
    ours, theirs = (block[(block[:, 0] >= low) & (block[:, 0] <= high)] for block in (ours, theirs))
    if min(len(ours), len(theirs)) < _ENOUGH:
        return None
    both = np.concatenate([ours, theirs])
    both = both[np.argsort(both[:, 0], kind="stable")]
    falls = [int((np.diff(block[:, 1]) < 0).sum()) for block in (ours, theirs, both)]
    # Of two scrapes within a millisecond the order is not certain.
    more = (falls[2] - max(falls[:2])) / len(both)
    if more > 0.2:
        return False
    return True if more < 0.05 and len(np.unique(both[:, 1])) >= _ENOUGH else None
