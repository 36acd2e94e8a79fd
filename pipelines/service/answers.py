"""From a source's answers to signals. Pure: what is missing is NaN, never zero."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.service.questions import AGE, PART, USER, Asked, Question
from pipelines.sources.prometheus.client import Point
from scaling.capacity import Floats, Ints
from scaling.overlay.settings import Flags
from scaling.overlay.signals import Kind, Signals, snapshot

_QUANTILE = 0.95
_MOST_SILENT = 0.25
"""Share of the ready pods whose engines may tell nothing; with more of them silent, what the others tell is not all."""
_ENGINES = ("prompt", "cached", "generated", "requests", "waiting_requests", "kv_cache_usage", "ttft_s", "itl_s")

Answers = Mapping[Question, list[Point] | None]
"""None where a query failed."""


@dataclass
class Heard:
    """What one source has told so far, of each signal: [components], whether it ever had it, and whether it was asked
    with success. What it had once and does not now is missing, and so is what nobody knows that it lacks."""

    components: int
    had: dict[str, Flags] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def missing(self, signal: str, values: Floats, *, answered: bool) -> Flags:
        """[components]: of which there should be a value."""
        had = self.had.setdefault(signal, np.zeros(self.components, dtype=np.bool_))
        had |= ~np.isnan(values)
        if answered:
            self.told.add(signal)
        return np.isnan(values) & (had | (signal not in self.told))


@dataclass(frozen=True)
class _Sums:
    """[lanes] sums of the components, NaN where there are none or not all."""

    values: Floats
    age_s: Floats


class Gathered:
    """Adds up what the sources tell, by lane."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._total: dict[tuple[str, str], Floats] = {}
        self._age: dict[str, Floats] = {}
        self._lacks: dict[str, Flags] = {}
        self._buckets: dict[str, list[dict[float, float]]] = {}
        self.leaving: list[tuple[str, str]] = []
        self.pods_told = False

    def add(self, asked: Asked, answers: Answers, heard: Heard) -> None:
        """What one source answered."""
        for signal in _ENGINES:
            questions = [one for one in asked.questions if one.signal == signal]
            if questions:
                self._add_components(asked, signal, questions, answers, heard)
        for question in asked.questions:
            found = answers.get(question)
            if question.signal == "leaving":
                self._add_leaving(found)
            elif question.signal not in _ENGINES:
                self._add_lanes(question, found or ())

    def _add_components(
        self, asked: Asked, signal: str, questions: Sequence[Question], answers: Answers, heard: Heard
    ) -> None:
        lanes = np.array([one.lane for one in asked.components], dtype=np.int64)
        figures: dict[str, Floats] = defaultdict(lambda: np.full(len(lanes), np.nan))
        for question in questions:
            for point in answers.get(question) or ():
                places = list(question.owners.get(_values(question, point), ()))
                part = point.metric.get(PART, "")
                if part == "bucket":
                    self._add_bucket(signal, lanes[places].tolist(), point)
                elif np.isfinite(point.value[1]):
                    figures[part][places] = point.value[1]
        values = figures.pop("sum", np.full(len(lanes), np.nan)) if signal not in self._buckets else figures[AGE]
        age_s = figures.pop(AGE, np.zeros(len(lanes)))
        answered = all(answers.get(question) is not None for question in questions)
        lacks = heard.missing(signal, values, answered=answered)
        known = ~np.isnan(values)
        self._sum((signal, "sum"), lanes, known, values)
        for part, found in figures.items():
            self._sum((signal, part), lanes, known, found)
        oldest = self._age.setdefault(signal, np.full(self._lanes, -np.inf))
        np.fmax.at(oldest, lanes[known], age_s[known])
        lacking = self._lacks.setdefault(signal, np.zeros(self._lanes, dtype=np.bool_))
        lacking[lanes[lacks]] = True

    def _sum(self, key: tuple[str, str], lanes: Ints, known: Flags, values: Floats) -> None:
        total = self._total.setdefault(key, np.full(self._lanes, np.nan))
        mine = np.zeros(self._lanes)
        np.add.at(mine, lanes[known], np.nan_to_num(values[known]))
        there = np.zeros(self._lanes, dtype=np.bool_)
        there[lanes[known]] = True
        total[there] = np.nan_to_num(total[there]) + mine[there]

    def _add_bucket(self, signal: str, lanes: Sequence[int], point: Point) -> None:
        buckets = self._buckets.setdefault(signal, [defaultdict(float) for _ in range(self._lanes)])
        try:
            bound = float(point.metric.get("le", ""))
        except ValueError:
            return
        for lane in lanes:
            buckets[lane][bound] += point.value[1]

    def _add_leaving(self, found: Sequence[Point] | None) -> None:
        self.pods_told |= found is not None
        self.leaving += [(one.metric.get("namespace", ""), one.metric.get("pod", "")) for one in found or ()]

    def _add_lanes(self, question: Question, found: Sequence[Point]) -> None:
        if question.signal.startswith(USER):
            self._total.setdefault((question.signal, "sum"), np.full(self._lanes, np.nan))
        for point in found:
            if np.isfinite(point.value[1]):
                key = question.signal, point.metric.get(PART, "")
                figures = self._total.setdefault(key, np.full(self._lanes, np.nan))
                figures[list(question.owners.get(_values(question, point), ()))] = point.value[1]

    def lacks(self, signal: str) -> Flags:
        """[lanes]: where some of a signal is missing that was there before, or may be there."""
        return self._lacks.get(signal, np.zeros(self._lanes, dtype=np.bool_))

    def user(self) -> dict[str, Floats]:
        """[lanes] by signal, what the user's own queries told."""
        return {
            signal.removeprefix(USER): values for (signal, _), values in self._total.items() if signal.startswith(USER)
        }

    def sums(self, signal: str, part: str = "sum") -> _Sums:
        nothing = np.full(self._lanes, np.nan)
        values = self._total.get((signal, part), nothing)
        return _Sums(np.where(self.lacks(signal), np.nan, values), self._age.get(signal, np.zeros(self._lanes)))

    def quantiles(self, signal: str) -> _Sums:
        """[lanes]: p95 of the histograms of all components together."""
        sums = self.sums(signal)
        values = np.array([quantile(one) for one in self._buckets.get(signal, [{}] * self._lanes)])
        return _Sums(np.where(np.isnan(sums.values), np.nan, values), sums.age_s)

    def draining(self, pods: Sequence[tuple[str, re.Pattern[str]]], known: Flags) -> Floats:
        """[lanes]: pods that are being deleted, where anything is `known` of a workload's replicas."""
        if not self.pods_told:
            return np.full(self._lanes, np.nan)
        counts = [
            sum(namespace == where and names.fullmatch(pod) is not None for namespace, pod in self.leaving)
            for where, names in pods
        ]
        return np.where(known, counts, np.nan)


def _values(question: Question, point: Point) -> tuple[str, ...]:
    return tuple(point.metric.get(name, "") for name in question.by)


def quantile(buckets: Mapping[float, float]) -> float:
    """p95 of cumulative buckets by upper bound, as PromQL's histogram_quantile: linear within a bucket; the greatest
    finite bound where it lies above that; NaN of nothing."""
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != np.inf or not buckets[np.inf] > 0:
        return float("nan")
    counts = np.maximum.accumulate([buckets[bound] for bound in bounds])
    rank = _QUANTILE * counts[-1]
    place = int(np.searchsorted(counts, rank))
    if place >= len(bounds) - 1:
        return bounds[-2]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    return low + (bounds[place] - low) * float((rank - below) / (counts[place] - below))


@dataclass
class Lengths:
    """[lanes] mean tokens of a prompt, without what is cached, and of an answer, as last seen: while nothing arrives
    they cannot be measured, and what waits has some."""

    prompt: Floats
    answer: Floats

    def update(self, prompt_per_s: Floats, answer_per_s: Floats, requests_per_s: Floats) -> None:
        for name, rate in (("prompt", prompt_per_s), ("answer", answer_per_s)):
            fresh = np.divide(rate, requests_per_s, out=np.full(len(rate), np.nan), where=requests_per_s > 0)
            setattr(self, name, np.where(np.isnan(fresh), getattr(self, name), fresh))


def signals_of(
    gathered: Gathered,
    lengths: Lengths,
    *,
    shares: Floats,
    pods: Sequence[tuple[str, re.Pattern[str]]],
    applied: bool,
) -> Signals:
    """The snapshot, without floors, ceilings and calendar.

    `shares` [lanes] is of prompt tokens in the prefix cache by configuration, NaN where counters say; `pods` as
    `pods_of`; `applied` whether anybody is to heed decisions.
    """
    prompt, cached, out = (gathered.sums(name) for name in ("prompt", "cached", "generated"))
    counted_in = prompt.values - np.minimum(np.nan_to_num(cached.values), prompt.values)
    given = ~np.isnan(shares)
    rate_in = np.where(given, prompt.values * (1 - shares), np.where(gathered.lacks("cached"), np.nan, counted_in))
    requests, waiting = gathered.sums("requests"), gathered.sums("waiting_requests")
    lengths.update(rate_in, out.values, requests.values)
    kv, kv_count = gathered.sums("kv_cache_usage"), gathered.sums("kv_cache_usage", "count").values
    ttft, itl = gathered.quantiles("ttft_s"), gathered.quantiles("itl_s")
    queued = {
        name: np.where(waiting.values == 0, 0, waiting.values * getattr(lengths, name)) for name in ("prompt", "answer")
    }
    wanted, ready = gathered.sums("replicas", "requested").values, gathered.sums("replicas", "ready").values
    targets = gathered.sums("waiting_requests", "targets").values
    live = {
        Kind.TOKENS_IN_PER_S: (rate_in, np.where(given, prompt.age_s, np.fmax(prompt.age_s, cached.age_s))),
        Kind.TOKENS_OUT_PER_S: (out.values, out.age_s),
        Kind.WAITING_REQUESTS: (waiting.values, waiting.age_s),
        Kind.WAITING_TOKENS_IN: (queued["prompt"], waiting.age_s),
        Kind.WAITING_TOKENS_OUT: (queued["answer"], waiting.age_s),
        Kind.KV_CACHE_USAGE: (kv.values / np.where(kv_count > 0, kv_count, np.nan), kv.age_s),
        Kind.TTFT_P95_S: (ttft.values, ttft.age_s),
        Kind.TTFT_P95_S_PER_1K_PROMPT: (
            1000 * ttft.values / np.where(lengths.prompt > 0, lengths.prompt, np.nan),
            ttft.age_s,
        ),
        Kind.ITL_P95_S: (itl.values, itl.age_s),
    }
    counted = ~np.isnan(ready)
    partial = counted & (targets < (1 - _MOST_SILENT) * ready)
    signals = snapshot(len(ready))
    for kind, (values, age_s) in live.items():
        signals.live[kind] = np.where(partial, np.nan, values)
        signals.age_s[kind] = np.where(np.isfinite(age_s), age_s, 0)
    signals.ready[:] = np.where(counted, ready, targets)
    signals.starting[:] = np.maximum(wanted - ready, 0)
    signals.draining[:] = gathered.draining(pods, counted)
    if applied:
        signals.requested[:] = wanted
    for name, values in gathered.user().items():
        if name in signals._fields:
            getattr(signals, name)[:] = values
        else:
            signals.live[Kind[name.upper()]], signals.age_s[Kind[name.upper()]] = values, 0.0
    return signals
