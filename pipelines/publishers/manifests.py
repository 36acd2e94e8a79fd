"""Kubernetes manifests for the floor now due: a KEDA ScaledObject, or a HorizontalPodAutoscaler without KEDA.

The floor is the object's own minimum, the one place that no tolerance, scale-up policy or metric can weaken.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from floorcast.config import Config
from floorcast.errors import PublishError
from floorcast.pool import Pool
from floorcast.publisher import KubernetesPublisher
from floorcast.types import FloorSchedule, FloorWindow, Reason
from floorcast.units import format_time
from pipelines.publishers.files import replace_file
from pipelines.publishers.kubernetes_object import HPA, KINDS, SCALED_OBJECT, Kind
from pipelines.publishers.schedule import expired, floor_due

WAITING_PER_REPLICA = 5
"""Requests waiting per replica above which the reactive part asks for more replicas than the floor."""


_API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}
# The pods of the target alone, not those of another workload whose name starts the same.
_POD_SUFFIXES = {"Deployment": "-[a-z0-9]+-[a-z0-9]{5}", "StatefulSet": "-[0-9]+", "LeaderWorkerSet": "-[0-9]+"}
# The longest that the autoscaling/v2 API allows.
_PERIOD_MAX = timedelta(minutes=30)
_STABILIZATION_MAX = timedelta(hours=1)

TITLE = "# floorcast, mode "
"""How a manifest of ours begins."""


def scaled_object(
    name: str, pool: Pool, window: FloorWindow, schedule: FloorSchedule, *, prometheus_url: str
) -> dict[str, Any]:
    """The KEDA ScaledObject (keda.sh/v1alpha1) of the pool called `name`.

    It has no `fallback`: where Prometheus cannot be read, the replicas hold and the floor still binds.
    """
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _metadata(name, pool, window, schedule),
        "spec": {
            "scaleTargetRef": _target(name, pool),
            "minReplicaCount": _minimum(pool, window, lowest=0),
            "maxReplicaCount": _maximum(pool, window),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(pool)}},
            "triggers": [
                {
                    "type": "prometheus",
                    "name": "requests-waiting",
                    "metadata": {
                        "serverAddress": prometheus_url,
                        "query": _waiting_query(name, pool),
                        "threshold": str(WAITING_PER_REPLICA),
                        # KEDA's default reads an empty answer as 0: an outage of the metrics as an idle pool.
                        "ignoreNullValues": "false",
                    },
                }
            ],
        },
    }


def horizontal_pod_autoscaler(name: str, pool: Pool, window: FloorWindow, schedule: FloorSchedule) -> dict[str, Any]:
    """The HorizontalPodAutoscaler (autoscaling/v2) of the pool called `name`.

    minReplicas is 1 or more even where the pool may scale to zero: the API refuses 0 with a Pods metric.
    """
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(name, pool, window, schedule),
        "spec": {
            "scaleTargetRef": _target(name, pool),
            "minReplicas": _minimum(pool, window, lowest=1),
            "maxReplicas": _maximum(pool, window),
            "behavior": _behavior(pool),
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "vllm_num_requests_waiting"},
                        "target": {"type": "AverageValue", "averageValue": str(WAITING_PER_REPLICA)},
                    },
                }
            ],
        },
    }


def short_reason(reason: Reason) -> str:
    """Why the floor is what it is, in one line.

    Example: `21300 tokens_out/s at quantile 0.95 needs 10.92 replicas by 2026-11-30T09:04:00Z`.
    """
    if reason.binding == "fallback_replicas":
        text = f"no usable forecast: fallback_replicas, by {format_time(reason.needed_by)}"
    else:
        demand = "tokens_in+tokens_out" if reason.binding == "sum" else reason.binding
        text = (
            f"{reason.demand_tokens_per_s:.0f} {demand}/s at quantile {reason.quantile:g} needs "
            f"{reason.required_replicas:.2f} replicas by {format_time(reason.needed_by)}"
        )
    if reason.clamped:
        text += f"; clamped to {reason.clamped}"
    if reason.shortfall_replicas:
        text += f", {reason.shortfall_replicas} short"
    return text


def write_manifests(schedule: FloorSchedule, config: Config, folder: Path, now: datetime) -> list[Path]:
    """Write `keda/POOL.yaml` and `hpa/POOL.yaml` for every pool and return the paths.

    Those that we wrote for pools that are gone are removed. The floor is the one due at `now`, or the first one
    before any is due. Raises PublishError for an expired schedule or one of other pools than the configuration's,
    NotFoundError where `now` is past its last window.
    """
    where = f"schedule version {schedule.version}"
    if expired(schedule, now):
        raise PublishError(
            f"expired at {format_time(schedule.valid_until)}", where=where, remedy="publish again; the floor stays"
        )
    if other := sorted(set(schedule.pools) ^ set(config.pools)):
        raise PublishError(
            f"pool `{other[0]}` is only in one of the schedule and the configuration",
            where=where,
            remedy="publish again with this configuration",
        )
    # All or nothing: every pool's floor is found before the first file is written.
    due = {name: floor_due(schedule, name, max(now, pool.windows[0].start)) for name, pool in schedule.pools.items()}
    written = []
    for name, pool in config.pools.items():
        window = due[name]
        url = config.publication.prometheus_url
        for kind, published, manifest in (
            ("keda", SCALED_OBJECT, scaled_object(name, pool, window, schedule, prometheus_url=url)),
            ("hpa", HPA, horizontal_pod_autoscaler(name, pool, window, schedule)),
        ):
            path = folder / kind / f"{name}.yaml"
            publisher = publisher_of(config, name, published)
            lines = _header(name, pool, window, schedule, manifest, publisher)
            header = "".join(f"# {line}".rstrip() + "\n" for line in lines)
            if publisher:
                # Whoever applied it with this file would hold the field, and the publisher meet a conflict.
                del manifest["spec"][published.minimum]
            replace_file(path, header + yaml.safe_dump(manifest, sort_keys=False, width=120))
            written.append(path)
    prune((*folder.glob("keda/*.yaml"), *folder.glob("hpa/*.yaml")), kept=written)
    return written


def prune(found: Iterable[Path], *, kept: Iterable[Path]) -> None:
    """Remove the manifests among `found` that we wrote before and not this time: applied with the folder, one of a pool
    that is gone would keep its last floor for ever."""
    for path in set(found) - set(kept):
        if path.read_text(encoding="utf-8").startswith(TITLE):
            path.unlink()


def publisher_of(config: Config, pool: str, kind: Kind) -> str | None:
    """The publisher that applies the minimum of a pool's object of that kind."""
    entries = (entry for entry in config.publishers if isinstance(entry, KubernetesPublisher))
    return next((one.label for one in entries if KINDS[one.object] is kind and one.carries(pool)), None)


def _header(
    name: str,
    pool: Pool,
    window: FloorWindow,
    schedule: FloorSchedule,
    manifest: dict[str, Any],
    publisher: str | None,
) -> list[str]:
    spec = manifest["spec"]
    if manifest["kind"] == "ScaledObject":
        own, other, minimum = "keda", "hpa", spec["minReplicaCount"]
        notes = ["serverAddress is `publication.prometheus_url` of the configuration."]
        to_zero = [
            "This pool may scale to zero, where vLLM exports nothing and this trigger fails: KEDA then wakes no",
            "replica, not even up to a new floor. Let the query count the requests waiting at the gateway instead.",
        ]
    else:
        own, other, minimum = "hpa", "keda", spec["minReplicas"]
        notes = ["An adapter must serve the metric vllm_num_requests_waiting (vllm:num_requests_waiting) per pod."]
        to_zero = ["The API refuses minReplicas 0 with a Pods metric, so one replica stays; KEDA can scale to zero."]
    of_this = "of this file " if publisher else ""
    held = "" if minimum == window.min_replicas else f", held to {minimum}"
    return [
        f"{TITLE.removeprefix('# ')}{schedule.mode}: {of_this}nothing has been applied to a cluster.",
        f"{manifest['kind']} of pool {name}: floor {window.min_replicas}{held}, from {format_time(window.start)} "
        f"to {format_time(window.end)}.",
        "",
        *(
            [f"The minimum is left out: publisher {publisher} applies it, and must hold that field alone."]
            if publisher
            else []
        ),
        "To apply it:",
        f"  kubectl apply --server-side{'' if publisher else ' --field-manager=floorcast'} -f {own}/{name}.yaml",
        f"Apply this or {other}/{name}.yaml, never both: KEDA makes a HorizontalPodAutoscaler of its own, and two of",
        "them on one target fight.",
        f"Kubernetes knows no expiry: after {format_time(schedule.valid_until)} this floor sticks until the next one "
        "is applied.",
        *notes,
        *(to_zero if pool.bounds.min == 0 or window.min_replicas == 0 else []),
    ]


def _metadata(name: str, pool: Pool, window: FloorWindow, schedule: FloorSchedule) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": pool.target.namespace,
        "labels": {"app.kubernetes.io/managed-by": "floorcast"},
        "annotations": {
            "floorcast.dev/version": str(schedule.version),
            "floorcast.dev/issued-at": format_time(schedule.issued_at),
            "floorcast.dev/valid-until": format_time(schedule.valid_until),
            "floorcast.dev/content-hash": schedule.content_hash,
            "floorcast.dev/reason": short_reason(window.reason),
        },
    }


def _target(name: str, pool: Pool) -> dict[str, str]:
    kind = pool.target.kind
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "name": pool.target.name or name}


def _minimum(pool: Pool, window: FloorWindow, *, lowest: int) -> int:
    # A target at 0 replicas switches its autoscaler off, and min above max makes replicas oscillate.
    # Maintenance alone publishes less than bounds.min, and means it.
    least = 0 if window.reason.clamped == "ceiling" else pool.bounds.min
    return min(max(window.min_replicas, least, lowest), pool.bounds.highest)


def _maximum(pool: Pool, window: FloorWindow) -> int:
    """The pool's, or its floor where that may exceed it."""
    return max(pool.bounds.max, _minimum(pool, window, lowest=0))


def _behavior(pool: Pool) -> dict[str, Any]:
    step_down, every = pool.shape.step_down, max(pool.shape.every, timedelta(seconds=1))
    period = min(every, _PERIOD_MAX)
    kind, most = ("Pods", step_down) if step_down >= 1 else ("Percent", 100 * step_down)
    return {
        "scaleDown": {
            "stabilizationWindowSeconds": int(min(pool.shape.dwell, _STABILIZATION_MAX).total_seconds()),
            "policies": [
                {
                    "type": kind,
                    "value": max(1, int(most * (period / every))),
                    "periodSeconds": int(period.total_seconds()),
                }
            ],
        }
    }


def _waiting_query(name: str, pool: Pool) -> str:
    target = pool.target
    pods = (target.name or name).replace(".", "[.]") + _POD_SUFFIXES[target.kind]
    return f'sum(vllm:num_requests_waiting{{namespace="{target.namespace}",pod=~"{pods}"}})'
