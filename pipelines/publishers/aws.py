"""AWS Application Auto Scaling: documents for its CLI, one request each, in the shape of its API.

`register-scalable-target` sets the minimum now, `put-scheduled-action` what it will be. A scalable target's minimum
raises a capacity that is under it, and leaves one that is above it alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from floorcast.config import Config
from floorcast.publisher import AwsPublisher
from floorcast.types import FloorSchedule
from pipelines.publishers.files import replace_file
from pipelines.publishers.steps import Step, at_most, steps_of

FOLDER = "aws"
REGISTER = "register-scalable-target.json"

APPLY = """\
#!/bin/sh
# Hands the documents beside it to the AWS CLI: sh apply.sh [options of the CLI, such as --region eu-west-1].
# Targets are registered first, so that the floor now due holds before anything else is changed. Every request may be
# sent again. It goes on after a failure, and ends with 1 then.
set -u
cd "$(dirname "$0")" || exit 1
failed=0
for document in */register-scalable-target.json; do
  aws application-autoscaling register-scalable-target --cli-input-json "file://$document" "$@" || failed=1
done
for document in */put-scheduled-action-*.json; do
  aws application-autoscaling put-scheduled-action --cli-input-json "file://$document" "$@" || failed=1
done
exit $failed
"""


def target_document(entry: AwsPublisher, pool: str, step: Step, *, highest: int) -> dict[str, Any]:
    """The request that sets the floor of the step that is due now."""
    return {**_target(entry, pool), **_capacity(step.replicas, highest)}


def action_documents(entry: AwsPublisher, pool: str, steps: Sequence[Step], *, highest: int) -> list[dict[str, Any]]:
    """The requests for `entry.actions` scheduled actions of no more contiguous steps.

    They are named by number, and always as many: those that are not needed repeat the last floor a minute apart, so
    that none of an earlier publication is left to lower it. Times are UTC.
    """
    moments = [(step.start, step.replicas) for step in steps]
    begin, last = moments[-1]
    moments += [(begin + timedelta(minutes=number), last) for number in range(1, entry.actions - len(steps) + 1)]
    return [
        {
            **_target(entry, pool),
            "Schedule": f"at({moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
            "Timezone": "UTC",
            "ScheduledActionName": f"floorcast-{pool}-{number:03d}",
            "ScalableTargetAction": _capacity(replicas, highest),
        }
        for number, (moment, replicas) in enumerate(moments, start=1)
    ]


def write_aws(
    schedule: FloorSchedule, config: Config, entry: AwsPublisher, pools: Sequence[str], folder: Path, now: datetime
) -> Path:
    """Write `aws/apply.sh` and the documents of these pools into `aws/POOL/`, remove those of others, and return the
    folder. Raises PublishError."""
    home = folder / FOLDER
    written = {home / "apply.sh"}
    for name in pools:
        highest = config.pools[name].bounds.max
        first, *later = at_most(steps_of(schedule, name, now), entry.actions + 1)
        documents = {REGISTER: target_document(entry, name, first, highest=highest)}
        # Without any change to come the last floor is said again.
        for number, document in enumerate(
            action_documents(entry, name, later or [replace(first, start=first.end)], highest=highest), start=1
        ):
            documents[f"put-scheduled-action-{number:03d}.json"] = document
        for file, document in documents.items():
            replace_file(home / name / file, json.dumps(document, indent=2) + "\n")
            written.add(home / name / file)
    replace_file(home / "apply.sh", APPLY)
    for path in {*home.glob(f"*/{REGISTER}"), *home.glob("*/put-scheduled-action-*.json")} - written:
        path.unlink()
    return home


def _target(entry: AwsPublisher, pool: str) -> dict[str, str]:
    return {
        "ServiceNamespace": entry.service_namespace,
        "ResourceId": entry.resources[pool],
        "ScalableDimension": entry.scalable_dimension,
    }


def _capacity(replicas: int, highest: int) -> dict[str, int]:
    """With the maximum too: a minimum above the one that is there would be refused."""
    return {"MinCapacity": replicas, "MaxCapacity": max(highest, replicas)}
