"""Which series tell of the same counter, and series as frames."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import polars as pl

from pipelines.sources.prometheus.client import Series
from pipelines.sources.prometheus.counters import SAMPLES

_SCRAPERS = frozenset({"__name__", "prometheus", "prometheus_replica", "receive", "receive_replica", "tenant_id"})
"""Labels that say who stored a series and under which name, not what was counted."""

_PATHS = frozenset({"replica", "__replica__", "monitor", "job", "endpoint", "service", "metrics_path"})
"""Labels that say how a target was reached, once `pod` or `instance` says which target it is."""

COPIES = tuple(sorted((_SCRAPERS | _PATHS) - {"__name__"}))
"""Labels in which copies of one series differ."""

_ABOUT = ("workload_class", "metric", "counter", "series")

Identity = tuple[tuple[str, str], ...]


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
