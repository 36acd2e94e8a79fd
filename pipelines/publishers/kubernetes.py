"""Floors as the minimum of a KEDA ScaledObject or a HorizontalPodAutoscaler, by server-side apply of that one field."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from multiprocessing.pool import ThreadPool
from pathlib import Path

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from floorcast.config import Config
from floorcast.publisher import KubernetesPublisher
from floorcast.units import format_duration, format_time
from pipelines.publishers.kubernetes_api import (
    AT_ONCE,
    Cluster,
    FieldHeldError,
    MayNotPatchError,
    PassingError,
    RefusedError,
)
from pipelines.publishers.kubernetes_object import (
    KINDS,
    Object,
    held_to,
    holders,
    keda_owner,
    minimum_of,
    patch,
    remarks,
    would_drop,
)
from pipelines.publishers.outcome import Did, Outcome, Wanted

_HAND_OVER = "see docs/kubernetes.md, Conflicts, for how to hand it over"
_WAIT = wait_random_exponential(multiplier=0.2, max=5)


class Kubernetes:
    """Publishes to the objects of one cluster. Reads each first and writes only what differs.

    Anything else in an object is left as it is, and a field that another manager holds is never taken from it.
    """

    def __init__(self, entry: KubernetesPublisher, config: Config) -> None:
        self.name = entry.label
        self._entry = entry
        self._config = config

    def publish(self, wanted: Sequence[Wanted], *, apply: bool, now: datetime) -> list[Outcome]:
        """One outcome per pool wanted, in that order. Raises PublishError where there are no credentials."""
        entry = self._entry
        cluster = Cluster(
            kubeconfig=Path(entry.kubeconfig).expanduser() if entry.kubeconfig else None,
            context=entry.context,
            timeout_s=entry.timeout.total_seconds(),
        )
        until = time.monotonic() + entry.deadline.total_seconds()

        def carry(one: Wanted) -> Outcome:
            where = entry.object_of(one.pool, self._config.pools[one.pool].target)
            return _Carried(entry, cluster, where, one, apply=apply, now=now).publish(until)

        # Not an executor: the interpreter waits for its threads on exit, and a server may keep them waiting.
        with closing(cluster), ThreadPool(AT_ONCE) as threads:
            return threads.map(carry, wanted, chunksize=1)


class _Carried:
    """One floor on its way to one object."""

    def __init__(
        self,
        entry: KubernetesPublisher,
        cluster: Cluster,
        where: tuple[str, str],
        wanted: Wanted,
        *,
        apply: bool,
        now: datetime,
    ) -> None:
        self._entry = entry
        self._kind = KINDS[entry.object]
        self._cluster = cluster
        self._where = where
        self._wanted = wanted
        self._apply = apply
        self._now = now
        self._sent_over: int | None = None
        """The minimum that was there when a write was sent whose answer never came."""

    def publish(self, until: float) -> Outcome:
        """Tried again until it is known what became of it, or `until`, a time of the monotonic clock."""
        entry, wanted = self._entry, self._wanted
        if wanted.valid_until is not None and self._now >= wanted.valid_until:
            when = format_time(wanted.valid_until)
            return self._outcome("expired", [f"version {wanted.version} expired at {when}; the minimum there stays"])
        left_s = until - time.monotonic()
        if left_s <= 0:
            deadline = format_duration(entry.deadline)
            return self._outcome("failed", [f"not tried: the pools before it took the {deadline} that there are"])
        tries = Retrying(
            retry=retry_if_exception_type(PassingError),
            wait=_wait,
            stop=stop_after_attempt(entry.attempts) | stop_before_delay(left_s),
            reraise=True,
        )
        try:
            return tries(self._once)
        except PassingError as error:
            after = [f"it asked to be left alone for {error.after_s:g} s"] if error.after_s else []
            return self._outcome("failed", [str(error), *after, "tried again next time"])
        except RefusedError as error:
            return self._outcome("failed", [f"{error}; the minimum there stays"])

    def _once(self) -> Outcome:
        """Read, judge and write. Raises PassingError where all of that is worth doing again."""
        kind, name = self._kind, self._where[1]
        found = self._cluster.read(kind, *self._where)
        before = minimum_of(found, kind)
        if owner := keda_owner(found):
            theirs = (
                f"KEDA made {name} for its ScaledObject {owner} and takes back what others change in it: use "
                f"`object: scaled_object` and name {owner}"
            )
            return self._outcome("conflict", [theirs], before, before)
        replicas, held = held_to(found, kind, self._wanted.replicas)
        said = [*([held] if held else []), *remarks(found, kind)]
        if before > replicas and self._wanted.only_raises:
            said.append(f"floor {replicas}; the schedule has expired, so nothing is lowered")
            return self._outcome("left_above", said, before, before)
        if before != replicas:
            return self._write(found, replicas, said)
        if self._sent_over is not None:
            return self._outcome("applied", said, self._sent_over, before)
        if others := holders(found, kind, but=self._entry.field_manager):
            said.append(f"also held by {' and '.join(others)}, so that another floor will meet a conflict")
        return self._outcome("unchanged", said, before, before)

    def _write(self, found: Object, replicas: int, said: list[str]) -> Outcome:
        kind, manager = self._kind, self._entry.field_manager
        before = minimum_of(found, kind)
        if lost := would_drop(found, kind, manager=manager):
            ours = (
                f"`{manager}` applied {_few(lost)} too, which would go with it: apply those once under another field "
                "manager (`kubectl apply --server-side`), or give this publisher another `field_manager`"
            )
            return self._outcome("conflict", [ours], before, before)
        try:
            after = self._cluster.apply(kind, patch(found, kind, replicas), manager=manager, dry_run=not self._apply)
        except PassingError:
            self._sent_over = before if self._apply else None
            raise
        except FieldHeldError as error:
            return self._conflict(error.managers, before, replicas, said)
        except MayNotPatchError as error:
            if self._apply:
                raise
            if others := holders(found, kind, but=manager):
                return self._conflict(others, before, replicas, said)
            return self._outcome("would_change", [*said, f"not tried on the server: {error}"], before, replicas)
        return self._outcome("applied" if self._apply else "would_change", said, before, minimum_of(after, kind))

    def _conflict(self, managers: list[str], before: int, replicas: int, said: list[str]) -> Outcome:
        """A minimum that another manager holds: where it is higher it does no harm, where it is lower the floor is not
        in force."""
        held = f"{'.'.join(self._kind.field)} is held by {' and '.join(managers)}"
        if before > replicas:
            return self._outcome("left_above", [*said, f"{held}, above the {replicas} wanted"], before, before)
        note = f"{held} at {before}, under the {replicas} wanted, and is not forced: {_HAND_OVER}"
        return self._outcome("conflict", [*said, note], before, before)

    def _outcome(self, did: Did, said: list[str], before: int | None = None, after: int | None = None) -> Outcome:
        return Outcome(
            publisher=self._entry.label,
            pool=self._wanted.pool,
            at=self._now,
            did=did,
            before=before,
            after=after,
            note="; ".join(said),
        )


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked_s = error.after_s if isinstance(error, PassingError) else 0.0
    return asked_s + _WAIT(state)


def _few(fields: list[str]) -> str:
    rest = len(fields) - 3
    return ", ".join(fields[:3]) + (f" and {rest} more" if rest > 0 else "")
