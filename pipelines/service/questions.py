"""What the Prometheus sources are asked each tick: one query for each signal over all pools whose series have the same
labels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from floorcast.config import Config
from floorcast.source import PrometheusSource
from pipelines.sources.prometheus.presets import CACHED, PRESETS, Signal, any_of, matchers
from pipelines.sources.prometheus.series import copy_labels
from pipelines.sources.prometheus.startups import POD_NAMES

PART = "floorcast_part"
"""The label that tells the values of one answer apart."""
AGE = "age"
USER = "user "
"""What the signals of queries of the user's own begin with."""
_MOST_NAMED = 100
"""Label values above which a query asks for all there are: a pattern of thousands costs a server more."""
_RATE_SCRAPES = 4
"""Scrape intervals that a rate is over: with one scrape missed it still has two samples."""

Counted = Literal["prompt", "cached", "generated", "requests"]
COUNTED: dict[Counted, str] = {
    "prompt": "tokens_in",
    "cached": CACHED,
    "generated": "tokens_out",
    "requests": "requests",
}
"""What counters count, as presets and queries of the user's own call it."""


class Component(NamedTuple):
    """Series that make up some of a pool's signals: those with these labels."""

    lane: int
    labels: tuple[tuple[str, str], ...]
    cached_share: float | None = None
    """Of its prompt tokens, where the configuration says so and counters are not asked."""


@dataclass(frozen=True, eq=False)
class Question:
    """One query. Its answer's series belong to the components that `owners` has under their values of `by`; `parts` are
    the values of the label PART, each of which is a figure of the signal."""

    signal: str
    promql: str
    by: tuple[str, ...]
    owners: Mapping[tuple[str, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Asked:
    """All questions to one source."""

    source: PrometheusSource
    components: tuple[Component, ...]
    questions: tuple[Question, ...]


class NotTold(NamedTuple):
    """A pool whose series cannot be told from those of others."""

    pool: str
    why: str

    def __str__(self) -> str:
        return f"pool {self.pool} has no live signals: {self.why}; give it `overlay.match`"


def ask_of(config: Config, latencies: bool) -> tuple[list[Asked], list[NotTold]]:
    """The questions to each Prometheus source; those about latencies only where they are wanted.

    Raises ConfigError where labels cannot be used.
    """
    sources = [source for source in config.sources if isinstance(source, PrometheusSource)]
    untold = list(_untold(config)) if sources else []
    left_out = {one.pool for one in untold}
    asked = []
    for source in sources:
        components = tuple(_components(config, source, left_out))
        questions = [
            *_of_engines(source, components, latencies=latencies),
            *_of_kubernetes(config),
            *_of_user(config, source, alone=len(sources) == 1),
        ]
        asked.append(Asked(source, components, tuple(questions)))
    return asked, untold


def _untold(config: Config) -> Iterable[NotTold]:
    for name, pool in config.pools.items():
        if pool.overlay.match:
            continue
        for one in config.classes_of(name):
            if not config.classes[one].match:
                yield NotTold(name, f"class {one} has no `match`")
                break
            if len(config.classes[one].pools) > 1:
                yield NotTold(name, f"class {one} has several pools")
                break


def _components(config: Config, source: PrometheusSource, left_out: set[str]) -> Iterable[Component]:
    for lane, (name, pool) in enumerate(config.pools.items()):
        classes = [one for one in config.classes_of(name) if not source.classes or one in source.classes]
        if name in left_out or not classes:
            continue
        shares = {config.classes[one].prefix_cache.share for one in classes}
        if pool.overlay.match:
            yield Component(lane, _sorted(pool.overlay.match), shares.pop() if len(shares) == 1 else None)
            continue
        for one in classes:
            spec = config.classes[one]
            yield Component(lane, _sorted(spec.match), spec.prefix_cache.share)


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _of_engines(source: PrometheusSource, components: Sequence[Component], *, latencies: bool) -> Iterable[Question]:
    preset = PRESETS[source.preset]
    for by, owners in _alike(components).items():
        labels = ",".join(
            filter(None, [matchers(source.match.items(), where=f"source {source.name}: match"), _named(by, owners)])
        )
        for signal, metric in COUNTED.items():
            names = preset.cached if metric == CACHED else preset.counters.get(metric, ())
            if source.queries is not None:
                continue
            if names:
                yield Question(signal, _rate(source, names, by, labels), by, owners)
        for name in ("waiting_requests", "kv_cache_usage"):
            if gauge := preset.signals.get(name):
                yield Question(name, _gauge(source, gauge, by, labels), by, owners)
        for name in ("ttft_s", "itl_s") if latencies else ():
            if histogram := preset.signals.get(name):
                yield Question(name, _buckets(source, histogram, by, labels), by, owners)
    if source.queries is not None:
        yield from _of_classes(source, components)


def _alike(components: Sequence[Component]) -> dict[tuple[str, ...], dict[tuple[str, ...], tuple[int, ...]]]:
    """By the names of their labels, and then by the values, the places of the components."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], tuple[int, ...]]] = {}
    for place, one in enumerate(components):
        names = tuple(name for name, _ in one.labels)
        values = tuple(value for _, value in one.labels)
        owners = found.setdefault(names, {})
        owners[values] = (*owners.get(values, ()), place)
    return found


def _named(by: Sequence[str], values: Iterable[tuple[str, ...]]) -> str:
    """Matchers that leave out most of what nobody asks for; labels decide when the answer is read."""
    parts = []
    for label, found in zip(by, zip(*values, strict=True), strict=True):
        several = sorted(set(found))
        parts.append(any_of(label, several) if len(several) <= _MOST_NAMED else f'{label}!=""')
    return ",".join(parts)


def _rate(source: PrometheusSource, names: Sequence[str], by: Sequence[str], labels: str) -> str:
    window_s = max(round(_RATE_SCRAPES * source.scrape_interval.total_seconds()), 1)
    rates = " or ".join(f"rate({name}{{{labels}}}[{window_s}s])" for name in names)
    return _parts({"sum": f"sum {_by(by)} ({_once(source, by, rates)})", AGE: _age(by, names, labels)})


def _gauge(source: PrometheusSource, gauge: Signal, by: Sequence[str], labels: str) -> str:
    own = ",".join(filter(None, [labels, matchers(gauge.labels.items(), where="preset")]))
    values = _once(source, by, " or ".join(f"{name}{{{own}}}" for name in gauge.names))
    targets = f"max {_by((*by, 'namespace', 'pod', 'instance'))} ({values})"
    return _parts(
        {
            "sum": f"sum {_by(by)} ({values})",
            "count": f"count {_by(by)} ({values})",
            "targets": f"count {_by(by)} ({targets})",
            AGE: _age(by, gauge.names, own),
        },
    )


def _buckets(source: PrometheusSource, histogram: Signal, by: Sequence[str], labels: str) -> str:
    window_s = max(round(_RATE_SCRAPES * source.scrape_interval.total_seconds()), 1)
    rates = " or ".join(f"rate({name}_bucket{{{labels}}}[{window_s}s])" for name in histogram.names)
    counts = [f"{name}_count" for name in histogram.names]
    return _parts({"bucket": f"sum {_by((*by, 'le'))} ({_once(source, by, rates)})", AGE: _age(by, counts, labels)})


def _of_classes(source: PrometheusSource, components: Sequence[Component]) -> Iterable[Question]:
    """The user's own rates, a class or pool at a time, since only they know what is in them."""
    for place, one in enumerate(components):
        labels = ",".join(
            filter(None, [matchers([*source.match.items(), *one.labels], where=f"source {source.name}: match")])
        )
        for signal, metric in COUNTED.items():
            promql = getattr(source.queries, metric)
            if promql is not None:
                summed = _parts({"sum": f"sum({promql.replace('$selector', labels)})"})
                yield Question(signal, summed, (), {(): (place,)})


_WORKLOADS = {
    "Deployment": ("deployment", "kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready"),
    "StatefulSet": ("statefulset", "kube_statefulset_replicas", "kube_statefulset_status_replicas_ready"),
}
"""Of kube-state-metrics: the label that names the workload, and its replicas asked for and ready. It knows nothing of a
LeaderWorkerSet."""


def _of_kubernetes(config: Config) -> Iterable[Question]:
    """Replicas. Owners are lanes, not components."""
    for kind, (label, requested, ready) in _WORKLOADS.items():
        by = ("namespace", label)
        owners: dict[tuple[str, ...], tuple[int, ...]] = {
            (pool.target.namespace, pool.target.name or name): (lane,)
            for lane, (name, pool) in enumerate(config.pools.items())
            if pool.target.kind == kind
        }
        if owners:
            named = _named(by, owners)
            parts = {
                "requested": f"max {_by(by)} ({requested}{{{named}}})",
                "ready": f"max {_by(by)} ({ready}{{{named}}})",
            }
            yield Question("replicas", _parts(parts), by, owners)
    spaces = _named(("namespace",), {(pool.target.namespace,) for pool in config.pools.values()})
    leaving = f"count by (namespace, pod) (kube_pod_deletion_timestamp{{{spaces}}})"
    yield Question("leaving", _parts({"pods": leaving}), ("namespace", "pod"), {})


def pods_of(config: Config) -> list[tuple[str, re.Pattern[str]]]:
    """By lane the namespace and names of its pods."""
    return [
        (pool.target.namespace, re.compile(POD_NAMES[pool.target.kind].format(re.escape(pool.target.name or name))))
        for name, pool in config.pools.items()
    ]


def _of_user(config: Config, source: PrometheusSource, *, alone: bool) -> Iterable[Question]:
    """Signals that the user asks for in a way of their own: a series for each pool, which its label `pool` names."""
    owners: dict[tuple[str, ...], tuple[int, ...]] = {(name,): (lane,) for lane, name in enumerate(config.pools)}
    for signal, query in config.service.queries.items():
        if query.source == source.name or (query.source is None and alone):
            yield Question(f"{USER}{signal}", _parts({"sum": query.promql}), ("pool",), owners)


def _parts(parts: Mapping[str, str]) -> str:
    """One query for several figures, each with its name in the label PART."""
    return " or ".join(f'label_replace({promql}, "{PART}", "{part}", "", "")' for part, promql in parts.items())


def _by(labels: Iterable[str]) -> str:
    return f"by ({', '.join(labels)})"


def _once(source: PrometheusSource, by: Sequence[str], promql: str) -> str:
    """Without the copies of a series that other scrapers or ways to the target made."""
    return f"max without ({', '.join(name for name in copy_labels(source) if name not in by)}) ({promql})"


def _age(by: Sequence[str], names: Sequence[str], labels: str) -> str:
    """Seconds, by the server's clock, since the oldest of the samples."""
    return f"time() - min {_by(by)} ({' or '.join(f'timestamp({name}{{{labels}}})' for name in names)})"
