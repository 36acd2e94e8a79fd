"""KEDA ScaledObjects with dated cron triggers: floors that go on when nothing of floorcast is left.

KEDA's cron scaler compares the next time that `end` matches with the next that `start` does: a trigger is active while
the end comes first. Dated edges, with minute, hour, day and month, therefore make one window a year.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from floorcast.config import Config
from floorcast.pool import Pool
from floorcast.publisher import CronPublisher
from floorcast.types import FloorSchedule
from floorcast.units import format_time
from pipelines.publishers.files import replace_file
from pipelines.publishers.kubernetes_object import SCALED_OBJECT
from pipelines.publishers.manifests import TITLE, prune, publisher_of, scaled_object
from pipelines.publishers.schedule import floor_due
from pipelines.publishers.steps import Step, at_most, steps_of
from pipelines.publishers.tolerance import through_tolerance

FOLDER = "cron"

_MINUTE = timedelta(minutes=1)


def cron_triggers(
    steps: Sequence[Step], *, above: int, overlap: timedelta, hold: timedelta, tolerance: float
) -> list[dict[str, Any]]:
    """One trigger for each of the contiguous steps whose floor is more than `above`, the pool's own minimum; each goes
    on for `overlap` past its end, the last for `hold`."""
    triggers = []
    for place, step in enumerate(steps):
        if step.replicas <= above:
            continue
        end = step.end + (hold if place == len(steps) - 1 else timedelta(0)) + overlap
        start = _start(step.start, end)
        triggers.append(
            {
                "type": "cron",
                "name": f"floor-{step.start.astimezone(UTC):%Y%m%d-%H%M}",
                "metadata": {
                    "timezone": "Etc/UTC",
                    "start": _cron(start),
                    "end": _cron(end),
                    "desiredReplicas": str(through_tolerance(step.replicas, tolerance)),
                },
            }
        )
    return triggers


def cron_scaled_object(
    name: str, pool: Pool, entry: CronPublisher, schedule: FloorSchedule, now: datetime, *, prometheus_url: str
) -> dict[str, Any]:
    """The ScaledObject of `keda/POOL.yaml`, but with the pool's own minimum as its minimum and the floors as triggers.

    Its minimum does not change from publication to publication, and its triggers do only where floors do.
    """
    steps = at_most(steps_of(schedule, name, now), entry.triggers)
    window = floor_due(schedule, name, max(now, schedule.pools[name].windows[0].start))
    manifest = scaled_object(name, pool, window, schedule, prometheus_url=prometheus_url)
    # Those tell one window's floor, and this has many.
    del manifest["metadata"]["annotations"]["floorcast.dev/reason"]
    spec = manifest["spec"]
    spec["minReplicaCount"] = pool.bounds.min
    spec["maxReplicaCount"] = max(pool.bounds.max, *(step.replicas for step in steps))
    spec["triggers"] += cron_triggers(
        steps, above=pool.bounds.min, overlap=entry.overlap, hold=entry.hold, tolerance=entry.tolerance
    )
    return manifest


def write_cron(
    schedule: FloorSchedule, config: Config, entry: CronPublisher, pools: Sequence[str], folder: Path, now: datetime
) -> Path:
    """Write `cron/POOL.yaml` of these pools, remove those that we wrote of others, and return the folder. Raises
    PublishError, and NotFoundError where `now` is past the last window."""
    written = []
    for name in pools:
        pool = config.pools[name]
        manifest = cron_scaled_object(
            name, pool, entry, schedule, now, prometheus_url=config.publication.prometheus_url
        )
        triggers = [trigger for trigger in manifest["spec"]["triggers"] if trigger["type"] == "cron"]
        publisher = publisher_of(config, name, SCALED_OBJECT)
        if publisher:
            # Whoever applied it with this file would hold the field, and the publisher meet a conflict.
            del manifest["spec"][SCALED_OBJECT.minimum]
        lines = _header(name, entry, schedule, len(triggers), publisher)
        header = "".join(f"# {line}".rstrip() + "\n" for line in lines)
        path = folder / FOLDER / f"{name}.yaml"
        replace_file(path, header + yaml.safe_dump(manifest, sort_keys=False, width=120))
        written.append(path)
    prune(folder.glob(f"{FOLDER}/*.yaml"), kept=written)
    return folder / FOLDER


def _header(
    name: str, entry: CronPublisher, schedule: FloorSchedule, triggers: int, publisher: str | None
) -> list[str]:
    past = f"raised past the autoscaler's tolerance of {entry.tolerance:g}" if entry.tolerance else "as they are"
    return [
        f"{TITLE.removeprefix('# ')}{schedule.mode}: {'of this file ' if publisher else ''}nothing has been applied "
        "to a cluster.",
        f"ScaledObject of pool {name}: its floors as {triggers} dated triggers, {past}.",
        "",
        *(
            [f"The minimum is left out: publisher {publisher} applies it, and must hold that field alone."]
            if publisher
            else []
        ),
        f"Apply this in place of keda/{name}.yaml and hpa/{name}.yaml, never beside them:",
        f"  kubectl apply --server-side{'' if publisher else ' --field-manager=floorcast'} -f {FOLDER}/{name}.yaml",
        f"After {format_time(schedule.valid_until)} these floors rise and never fall, since a newer schedule should be",
        "there by then; past the last, KEDA keeps minReplicaCount. Dates come again every year: leave it for no year.",
    ]


def _start(start: datetime, end: datetime) -> datetime:
    """To the minute before; a trigger that begins on a leap day and ends after it begins the day before, since it would
    be active for four years: the next leap day is further off than the end's next date."""
    start = start.astimezone(UTC)
    start -= timedelta(seconds=start.second, microseconds=start.microsecond)
    leap = (2, 29)
    if (start.month, start.day) == leap != (end.month, end.day):
        return start.replace(hour=0, minute=0) - _MINUTE
    return start


def _cron(moment: datetime) -> str:
    """The minute, or the next where it is not a whole one."""
    moment = moment.astimezone(UTC)
    if moment.second or moment.microsecond:
        moment += _MINUTE - timedelta(seconds=moment.second, microseconds=moment.microsecond)
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
