"""Runs all publishers: side by side, each in its own time, so that the failure of one stops no other."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from floorcast.config import Config
from floorcast.errors import FloorcastError, PublishError
from floorcast.publisher import (
    AwsPublisher,
    CronPublisher,
    CsvPublisher,
    DynamoPublisher,
    KubernetesPublisher,
    LivePublisher,
    ParquetPublisher,
    Value,
    pools_of,
)
from floorcast.types import FloorSchedule
from floorcast.units import format_duration, format_time
from pipelines.publishers.aws import write_aws
from pipelines.publishers.cron import write_cron
from pipelines.publishers.dynamo import DynamoPlanner
from pipelines.publishers.manifests import short_reason
from pipelines.publishers.outcome import ALL_POOLS, AT_FAULT, Did, Outcome, Publisher, Wanted
from pipelines.publishers.record import ours_of, read_record, record_outcomes
from pipelines.publishers.schedule import floor_due
from pipelines.publishers.tables import write_csv, write_parquet

FAILED_AGAIN = timedelta(seconds=30)
"""How long after a failure the service tries again, where `resync` is longer."""


def wanted_floors(
    schedule: FloorSchedule, config: Config, now: datetime, held: Mapping[str, int] | None = None
) -> list[Wanted]:
    """Of every pool the floor due at `now`, or the first one before any is due, and no less than the one `held`.
    Raises NotFoundError past the last."""
    wanted = []
    for name, pool in config.pools.items():
        window = floor_due(schedule, name, max(now, schedule.pools[name].windows[0].start))
        kept = 0 if held is None else held.get(name, 0)
        floor = max(window.min_replicas, kept)
        wanted.append(
            Wanted(
                pool=name,
                replicas=floor,
                floor=floor,
                max_replicas=max(pool.bounds.max, floor),
                version=schedule.version,
                valid_until=schedule.valid_until,
                reason=short_reason(window.reason)
                if window.min_replicas >= kept
                else f"floor held at {kept} by the service",
            )
        )
    return wanted


def live_publisher(entry: LivePublisher, config: Config, *, ours: Mapping[str, int]) -> Publisher:
    """What carries the floors of an entry. `ours` are the minimums that it applied last, by pool."""
    match entry:
        case DynamoPublisher():
            return DynamoPlanner(entry, config, ours=ours)
        case KubernetesPublisher():
            from pipelines.publishers.kubernetes import Kubernetes  # noqa: PLC0415 - its client takes long

            return Kubernetes(entry, config)
        case _:
            raise PublishError(
                f"nothing publishes entries of {type(entry).__name__}",
                where=f"publisher {entry.label}",
                remedy="report it as a bug",
            )


def write_documents(schedule: FloorSchedule, config: Config, folder: Path, now: datetime) -> list[Outcome]:
    """Write the files of all file publishers. One that cannot be written is `failed` and stops no other."""
    outcomes = []
    for entry in config.publishers:
        pools = pools_of(config, entry)
        write: Callable[[], Path]
        match entry:
            case CsvPublisher():
                write = partial(write_csv, schedule, pools, folder)
            case ParquetPublisher():
                write = partial(write_parquet, schedule, pools, folder)
            case CronPublisher():
                write = partial(write_cron, schedule, config, entry, pools, folder, now)
            case AwsPublisher():
                write = partial(write_aws, schedule, config, entry, pools, folder, now)
            case _:
                continue
        did: Did = "written"
        try:
            note = str(write().relative_to(folder))
        except FloorcastError as error:
            did, note = "failed", str(error)
        outcomes.append(Outcome(publisher=entry.label, pool=ALL_POOLS, at=now, did=did, note=note))
    return outcomes


def publish_everywhere(
    schedule: FloorSchedule,
    config: Config,
    folder: Path,
    as_of: datetime,
    *,
    clock: datetime,
    held: Mapping[str, int] | None = None,
) -> tuple[Outcome, ...]:
    """Write all documents and run the live publishers that carry floors, for the schedule that was just written; no
    floor is less than the one that the service has `held`, by pool.

    Live publishers are for now alone: a schedule that is not in force by the clock, as of a run on history, is
    `expired` for them. Raises PublishError where the outcomes cannot be recorded.
    """
    outcomes = write_documents(schedule, config, folder, as_of)
    labels = [entry.label for entry in config.publishers]
    if outcomes:
        record_outcomes(folder, outcomes, publishers=labels)
    live = [entry for entry in config.publishers if isinstance(entry, LivePublisher) and entry.value == "floor"]
    if not live:
        return tuple(outcomes)
    if schedule.issued_at <= clock < schedule.valid_until:
        wanted: dict[Value, list[Wanted]] = {"floor": wanted_floors(schedule, config, clock, held)}
        return (*outcomes, *run_publishers(config, folder, wanted, now=clock))
    note = f"this run stands for {format_time(as_of)}, which is not now: nothing was looked at"
    return (
        *outcomes,
        *(Outcome(publisher=entry.label, pool=ALL_POOLS, at=clock, did="expired", note=note) for entry in live),
    )


def run_publishers(
    config: Config, folder: Path, wanted: Mapping[Value, Sequence[Wanted]], *, now: datetime
) -> tuple[Outcome, ...]:
    """Run every live publisher whose `value` is among `wanted` once, and record what they did in `publishers.json`.

    Raises PublishError where that cannot be written; what was applied stays.
    """
    run = PublisherRuns(config, folder).run(wanted, now=now)
    if run.fault:
        raise run.fault
    return run.outcomes


@dataclass(frozen=True)
class PublisherRun:
    outcomes: tuple[Outcome, ...]
    fault: PublishError | None = None
    """Why the outcomes could not be recorded."""


class PublisherRuns:
    """The live publishers of one configuration, run again and again by one thread at a time.

    A publisher that outlasts its deadline is left to itself and not begun again before it has ended: what is wanted now
    must not be overwritten by what was wanted then. `before` are those of an earlier configuration, whose runs may
    still go on. With `label` it is that publisher alone, and the record of all others is left as it is.
    """

    def __init__(
        self, config: Config, folder: Path, *, label: str | None = None, before: PublisherRuns | None = None
    ) -> None:
        self._config = config
        self._folder = folder
        live = [entry for entry in config.publishers if isinstance(entry, LivePublisher)]
        self._entries = [entry for entry in live if label in (None, entry.label)]
        self._known = [entry.label for entry in config.publishers] if label is None else None
        self._running: dict[str, Future[list[Outcome]]] = {} if before is None else before._running
        self._last: dict[str, tuple[datetime, dict[str, int], bool]] = {}

    def due(self, wanted: Mapping[Value, Sequence[Wanted]], *, now: datetime) -> tuple[str, ...]:
        """The publishers to run now: what they should carry differs from what they were last run with, they failed half
        a minute ago, or their `resync` is over."""
        found = []
        for entry in self._entries:
            if entry.value not in wanted:
                continue
            last = self._last.get(entry.label)
            if last is not None:
                at, replicas, failed = last
                wait = min(entry.resync, FAILED_AGAIN) if failed else entry.resync
                if replicas == _replicas(_for(entry, wanted)) and at <= now < at + wait:
                    continue
            found.append(entry.label)
        return tuple(found)

    def run(self, wanted: Mapping[Value, Sequence[Wanted]], *, now: datetime) -> PublisherRun:
        """Run all at once with the values in `wanted` that they carry; wait for each until its deadline, and record
        what they did."""
        entries = [entry for entry in self._entries if entry.value in wanted]
        outcomes = self._left_over()
        # At once: what an earlier run applied is ours, and a later one may lower it.
        self._record(outcomes)
        begun = time.monotonic()
        hanging = [entry.label for entry in entries if entry.label in self._running]
        for entry in entries:
            if entry.label not in hanging:
                self._begin(entry, wanted, now)
        for entry in entries:
            mine = self._ended(entry, wanted, now, begun=begun)
            if entry.label in hanging and entry.label not in self._running:
                # That was the earlier run. It has ended in time, so what is wanted now can follow it.
                outcomes += mine
                self._record(mine)
                self._begin(entry, wanted, now)
                mine = self._ended(entry, wanted, now, begun=begun)
            failed = any(one.did in AT_FAULT for one in mine)
            self._last[entry.label] = (now, _replicas(_for(entry, wanted)), failed)
            outcomes += mine
        return PublisherRun(tuple(outcomes), fault=self._record(outcomes))

    def _record(self, outcomes: Sequence[Outcome]) -> PublishError | None:
        """Why they could not be recorded."""
        if outcomes:
            try:
                record_outcomes(self._folder, outcomes, publishers=self._known)
            except PublishError as error:
                return error
        return None

    def _begin(self, entry: LivePublisher, all_wanted: Mapping[Value, Sequence[Wanted]], now: datetime) -> None:
        wanted = _for(entry, all_wanted)
        ours = ours_of(read_record(self._folder), entry.label)

        def publish() -> list[Outcome]:
            current = [one for one in wanted if one.valid_until is None or now < one.valid_until]
            late = [one for one in wanted if one not in current]
            # What the service then asks for never falls, and this keeps it so whatever is there.
            raised = [one for one in late if one.replicas > ours.get(one.pool, one.replicas)]
            outcomes = [_expired(entry, one, now) for one in late if one not in raised]
            current += [one.model_copy(update={"valid_until": None, "only_raises": True}) for one in raised]
            if current:
                publisher = live_publisher(entry, self._config, ours=ours)
                outcomes += publisher.publish(current, apply=self._config.mode == "apply", now=now)
            return outcomes

        self._running[entry.label] = _in_thread(f"publisher {entry.label}", publish)

    def _ended(
        self, entry: LivePublisher, all_wanted: Mapping[Value, Sequence[Wanted]], now: datetime, *, begun: float
    ) -> list[Outcome]:
        """What a run came to, waited for until its deadline; one that is not done by then stays among the running."""
        wanted = _for(entry, all_wanted)
        future = self._running[entry.label]
        left = max(begun + entry.deadline.total_seconds() - time.monotonic(), 0)
        try:
            error = future.exception(timeout=left)
        except FutureTimeoutError:
            note = f"not done within {format_duration(entry.deadline)}; what it still does is waited for"
            return [_failed(entry, one.pool, now, note) for one in wanted]
        del self._running[entry.label]
        if error is None:
            return future.result()
        note = str(error) if isinstance(error, FloorcastError) else f"unexpected {type(error).__name__}: {error}"
        return [_failed(entry, one.pool, now, note) for one in wanted]

    def _left_over(self) -> list[Outcome]:
        """What those that had outlasted their deadline did in the meantime."""
        outcomes: list[Outcome] = []
        for label, future in list(self._running.items()):
            if future.done():
                del self._running[label]
                if future.exception() is None:
                    outcomes += future.result()
        return outcomes


def _for(entry: LivePublisher, wanted: Mapping[Value, Sequence[Wanted]]) -> list[Wanted]:
    return [one for one in wanted[entry.value] if entry.carries(one.pool)]


def _replicas(wanted: Sequence[Wanted]) -> dict[str, int]:
    return {one.pool: one.replicas for one in wanted}


def _failed(entry: LivePublisher, pool: str, now: datetime, note: str) -> Outcome:
    return Outcome(publisher=entry.label, pool=pool, at=now, did="failed", note=note)


def _expired(entry: LivePublisher, wanted: Wanted, now: datetime) -> Outcome:
    until = format_time(wanted.valid_until) if wanted.valid_until else ""
    note = f"expired at {until}: what is there stays; publish again"
    return Outcome(publisher=entry.label, pool=wanted.pool, at=now, did="expired", note=note)


def _in_thread(name: str, call: Callable[[], list[Outcome]]) -> Future[list[Outcome]]:
    """Not an executor: the interpreter waits for its threads on exit, and one may hang."""
    future: Future[list[Outcome]] = Future()

    def body() -> None:
        try:
            future.set_result(call())
        except FloorcastError as error:
            future.set_exception(error)
        finally:
            if not future.done():
                # A fault of ours is told like any other, and its trace goes to standard error.
                future.set_exception(sys.exc_info()[1] or RuntimeError("ended without a word"))

    try:
        threading.Thread(target=body, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(error)
    return future
