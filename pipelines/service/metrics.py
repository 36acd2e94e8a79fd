"""`/metrics`: the board as Prometheus reads it. What is not known is absent, never 0."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from floorcast import __version__
from floorcast.types import Rung
from pipelines.publishers.outcome import DID
from pipelines.service.accuracy import AccuracyCollector
from pipelines.service.board import TICK_BUCKETS_S, Board, PoolDecision, Publication

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
RUNGS = {rung: place for place, rung in enumerate(Rung, start=1)}

Sample = tuple[tuple[str, ...], float | None]


def registry_of(board: Callable[[], Board], accuracy: Path) -> CollectorRegistry:
    """A registry of the service's metrics, of what the file `accuracy` says, and of the process."""
    registry = CollectorRegistry()
    registry.register(BoardCollector(board))
    registry.register(AccuracyCollector(accuracy))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics as text."""
    return generate_latest(registry)


def catalogue() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and meaning of each metric of ours."""
    start = datetime.fromtimestamp(0, UTC)
    nothing = Board(start, start, 0, 0.0, Publication(None), {})
    return [
        (sample_name(family), family.type, tuple(vars(family)["_labelnames"]), family.documentation)
        for collector in (BoardCollector(lambda: nothing), AccuracyCollector(Path("none")))
        for family in collector.collect()
    ]


def sample_name(family: Metric) -> str:
    """The name that it is queried by: of a histogram that of its `_bucket`, `_sum` and `_count` without those."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


class BoardCollector(Collector):
    """The board's figures. Series are bounded by pools, sources and publishers."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        board = self._board()
        yield from _pools(board)
        yield from _planned(board)
        yield from _publication(board)
        yield from _service(board)
        yield from _others(board)


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"floorcast_{name}", text, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family


def _pools(board: Board) -> Iterator[Metric]:
    """What is decided of each pool."""

    def each(number: Callable[[PoolDecision], float | None]) -> list[Sample]:
        return [((name,), number(decision)) for name, decision in board.decisions.items()]

    pool = ("pool",)
    yield _gauge("floor_replicas", "Floor in force.", pool, each(lambda d: d.floor))
    sources = [((name, decision.floor_source), 1.0) for name, decision in board.decisions.items()]
    yield _gauge("floor_source_info", "Where the floor in force comes from: 1 for it.", ("pool", "source"), sources)
    yield _gauge("desired_replicas", "Replicas that the overlay wants.", pool, each(lambda d: d.desired))
    yield _gauge("ceiling_replicas", "Most replicas allowed now.", pool, each(lambda d: d.ceiling))
    states = {"requested": "current", "ready": "ready", "starting": "starting", "draining": "draining"}
    counts: list[Sample] = [
        ((name, state), getattr(decision, field))
        for name, decision in board.decisions.items()
        for state, field in states.items()
    ]
    yield _gauge("replicas", "Replicas that there are, where known.", ("pool", "state"), counts)
    yield _gauge("dead_man", "1 without any live signal for the dead-man interval.", pool, each(lambda d: d.alert))
    yield _gauge("signals_lost", "Live signals that were there and are missed.", pool, each(lambda d: len(d.lost)))


def _planned(board: Board) -> Iterator[Metric]:
    """What the window due now was planned for."""
    due = [(name, each.window.reason) for name, each in board.decisions.items() if each.window is not None]
    pool = ("pool",)
    required: list[Sample] = [((name,), reason.required_replicas) for name, reason in due]
    yield _gauge("required_replicas", "Required replicas, before buffers and rounding.", pool, required)
    demand: dict[tuple[str, ...], float] = {}
    for name, reason in due:
        if reason.binding != "fallback_replicas":
            demand[name, reason.binding, "0.5"] = reason.median_tokens_per_s
            demand[name, reason.binding, f"{reason.quantile:g}"] = reason.demand_tokens_per_s
    yield _gauge(
        "forecast_tokens_per_second",
        "Demand that the floor due now was planned for, of the metric that decided.",
        ("pool", "metric", "quantile"),
        demand.items(),
    )
    short: list[Sample] = [((name,), reason.shortfall_replicas) for name, reason in due]
    yield _gauge("shortfall_replicas", "Replicas by which the floor is less than it should be.", pool, short)
    schedule = board.publication.schedule
    planned = {} if schedule is None else schedule.pools
    rungs: list[Sample] = [((name,), RUNGS[each.rung]) for name, each in planned.items()]
    yield _gauge(
        "floor_rung", "Where floors come from: 1 fresh forecast, 2 last one, 3 past weeks, 4 fallback.", pool, rungs
    )
    gates: list[Sample] = [((name,), each.gate == "open") for name, each in planned.items() if each.gate != "untested"]
    yield _gauge("gate_open", "1 where floors were shown to pay, 0 where not; absent where untested.", pool, gates)


def _publication(board: Board) -> Iterator[Metric]:
    valid = board.publication.validity(board.now) == "valid"
    yield _gauge("publication_valid", "1 while a schedule is in force that has not expired.", (), [((), valid)])
    fault = board.publication.fault is not None
    yield _gauge("publication_fault", "1 where the newest schedule could not be taken over.", (), [((), fault)])
    schedule = board.publication.schedule
    numbers: tuple[float | None, ...] = (None,) * 4
    if schedule is not None:
        issued, expiry = schedule.issued_at.timestamp(), schedule.valid_until.timestamp()
        numbers = schedule.version, issued, expiry, board.now.timestamp() - issued
    texts = {
        "version": "Version of the schedule in force.",
        "issued_timestamp_seconds": "When it was issued.",
        "expiry_timestamp_seconds": "When it expires.",
        "age_seconds": "How long ago it was issued, as of the last tick.",
    }
    for (name, text), number in zip(texts.items(), numbers, strict=True):
        yield _gauge(f"publication_{name}", text, (), [((), number)])


def _service(board: Board) -> Iterator[Metric]:
    build = InfoMetricFamily("floorcast_build", "What runs here.")
    build.add_metric((), {"version": __version__, "python": platform.python_version()})
    yield build
    ticks = CounterMetricFamily("floorcast_ticks", "Ticks since the start.")
    ticks.add_metric((), board.ticks)
    yield ticks
    times = board.tick_times
    bounds = [*(f"{bound:g}" for bound in TICK_BUCKETS_S), "+Inf"]
    taken = HistogramMetricFamily("floorcast_tick_duration_seconds", "How long a tick took.")
    taken.add_metric((), list(zip(bounds, map(float, accumulate(times.counts)), strict=True)), times.sum_seconds)
    yield taken
    yield _gauge("last_tick_timestamp_seconds", "When the last tick was.", (), [((), board.now.timestamp())])
    yield _gauge("start_timestamp_seconds", "When the service started.", (), [((), board.started_at.timestamp())])
    config_fault = board.config_fault is not None
    yield _gauge("config_fault", "1 where the configuration file as it stands is not used.", (), [((), config_fault)])
    yield _gauge("faults", "Other faults: a full disk, a clock that jumped.", (), [((), len(board.faults))])


def _others(board: Board) -> Iterator[Metric]:
    """Sources of live signals, and publishers."""
    source = ("source",)
    up: list[Sample] = [((each.name,), each.fault is None) for each in board.sources]
    yield _gauge("source_up", "1 where the source answered at the last tick.", source, up)
    last: list[Sample] = [
        ((each.name,), each.last_success_at.timestamp() if each.last_success_at else None) for each in board.sources
    ]
    yield _gauge("source_last_success_timestamp_seconds", "When the source last answered.", source, last)
    took: list[Sample] = [((each.name,), each.seconds) for each in board.sources]
    yield _gauge("source_read_seconds", "How long the last reading of the source took.", source, took)
    did = Counter((outcome.publisher, outcome.did) for outcome in board.outcomes)
    publishers = sorted({outcome.publisher for outcome in board.outcomes})
    pools: list[Sample] = [((name, what), did[name, what]) for name in publishers for what in DID]
    yield _gauge(
        "publisher_outcomes",
        "Outcomes of the last run by what was done: one a pool, or one a file of all.",
        ("publisher", "did"),
        pools,
    )
    latest: list[Sample] = [
        ((name,), max(each.at.timestamp() for each in board.outcomes if each.publisher == name)) for name in publishers
    ]
    yield _gauge("publisher_last_timestamp_seconds", "When the publisher last did anything.", ("publisher",), latest)
