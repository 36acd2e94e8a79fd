"""Documents for AWS Application Auto Scaling."""

import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config
from floorcast.publisher import AwsPublisher
from floorcast.types import FloorSchedule
from pipelines.publishers.aws import write_aws

GOLDEN = Path(__file__).parent / "goldens" / "aws" / "put-scheduled-action-001.json"
START = datetime(2026, 11, 30, 8, 55, tzinfo=UTC)

TARGET: dict[str, Any] = {
    "ServiceNamespace": {"enum": ["ecs", "ec2", "sagemaker", "custom-resource"]},
    "ResourceId": {"type": "string", "minLength": 1, "maxLength": 1600},
    "ScalableDimension": {"type": "string", "pattern": "^[a-z0-9-]+:[A-Za-z-]+:[A-Za-z]+$"},
}
CAPACITY = {"type": "integer", "minimum": 0}
REGISTER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ServiceNamespace", "ResourceId", "ScalableDimension"],
    "properties": {**TARGET, "MinCapacity": CAPACITY, "MaxCapacity": CAPACITY},
}
PUT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ServiceNamespace", "ScheduledActionName", "ResourceId", "ScalableDimension", "Schedule"],
    "properties": {
        **TARGET,
        "Schedule": {"type": "string", "pattern": r"^at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)$"},
        "Timezone": {"const": "UTC"},
        "ScheduledActionName": {"type": "string", "maxLength": 256, "pattern": "^[^ :/|][^:/|]*[^ :/|]$"},
        "ScalableTargetAction": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"MinCapacity": CAPACITY, "MaxCapacity": CAPACITY},
        },
    },
}
"""Members, and what limits them, of RegisterScalableTarget and PutScheduledAction in the service's published model."""


@pytest.fixture(scope="module")
def entry() -> AwsPublisher:
    return AwsPublisher.model_validate(
        {
            "kind": "aws",
            "service_namespace": "sagemaker",
            "scalable_dimension": "sagemaker:inference-component:DesiredCopyCount",
            "resources": {"chat-70b": "inference-component/chat-70b"},
            "actions": 4,
        }
    )


def documents(folder: Path, name: str = "put-scheduled-action-*") -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "aws" / "chat-70b").glob(f"{name}.json"))]


def times(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["Schedule"][14:19], one["ScalableTargetAction"]["MinCapacity"]) for one in found]


def test_the_floor_now_is_registered_and_the_next_ones_are_scheduled(
    tmp_path: Path, schedule_of: Callable[..., FloorSchedule], config: Config, entry: AwsPublisher
) -> None:
    """Of four actions two are needed; the others say the last floor again, a minute apart."""
    schedule = schedule_of({"chat-70b": [(14, 10.92), (16, 13.0), (16, 12.0), (12, 9.0)]})
    write_aws(schedule, config, entry, ["chat-70b"], tmp_path, START)
    [now] = documents(tmp_path, "register-scalable-target")
    assert (now["MinCapacity"], now["MaxCapacity"]) == (14, 40)
    found = documents(tmp_path)
    assert times(found) == [("09:00", 16), ("09:10", 12), ("09:11", 12), ("09:12", 12)]
    assert [one["ScheduledActionName"] for one in found] == [f"floorcast-chat-70b-00{i}" for i in (1, 2, 3, 4)]
    jsonschema.validate(now, REGISTER)
    for one in found:
        jsonschema.validate(one, PUT)
    text = (tmp_path / "aws" / "chat-70b" / "put-scheduled-action-001.json").read_text()
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_floor_that_never_changes_still_replaces_all_earlier_actions(
    tmp_path: Path, schedule_of: Callable[..., FloorSchedule], config: Config, entry: AwsPublisher
) -> None:
    write_aws(schedule_of({"chat-70b": [(14, 10.92)] * 3}), config, entry, ["chat-70b"], tmp_path, START)
    assert times(documents(tmp_path)) == [("09:10", 14), ("09:11", 14), ("09:12", 14), ("09:13", 14)]


def test_more_changes_than_actions_are_merged_to_the_higher_and_the_first_is_registered(
    tmp_path: Path, schedule_of: Callable[..., FloorSchedule], config: Config, entry: AwsPublisher
) -> None:
    counts = [3, 4, 9, 2, 11, 5, 12, 6]
    schedule = schedule_of({"chat-70b": [(count, count) for count in counts]})
    write_aws(schedule, config, entry, ["chat-70b"], tmp_path, START)
    [now] = documents(tmp_path, "register-scalable-target")
    played = [(f"{START:%H:%M}", now["MinCapacity"]), *times(documents(tmp_path))]
    assert len(played) == 5
    assert all(one < other for one, other in pairwise(at for at, _ in played))
    for place, count in enumerate(counts):
        moment = f"{START + place * timedelta(minutes=5):%H:%M}"
        assert [replicas for at, replicas in played if at <= moment][-1] >= count


def test_the_maximum_is_never_under_the_minimum(
    tmp_path: Path, schedule_of: Callable[..., FloorSchedule], config: Config, entry: AwsPublisher
) -> None:
    """bounds.max is 40; a floor may exceed it."""
    write_aws(schedule_of({"chat-70b": [(44, 40.0), (20, 12.0)]}), config, entry, ["chat-70b"], tmp_path, START)
    [now] = documents(tmp_path, "register-scalable-target")
    assert (now["MinCapacity"], now["MaxCapacity"]) == (44, 44)


def test_documents_of_pools_that_are_gone_are_removed(
    tmp_path: Path, fleet: FloorSchedule, config: Config, entry: AwsPublisher
) -> None:
    both = entry.model_copy(update={"resources": {"chat-70b": "a", "code-8b": "b"}})
    write_aws(fleet, config, both, ["chat-70b", "code-8b"], tmp_path, START)
    write_aws(fleet, config, entry, ["chat-70b"], tmp_path, START)
    assert not list((tmp_path / "aws" / "code-8b").iterdir())
    assert len(documents(tmp_path)) == 4


AWS = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in *action-002*) exit 254;; esac
"""


def test_the_script_hands_over_every_document_targets_first_and_tells_of_a_failure(
    tmp_path: Path, fleet: FloorSchedule, config: Config, entry: AwsPublisher
) -> None:
    write_aws(fleet, config, entry, ["chat-70b"], tmp_path, START)
    stand_in = tmp_path / "bin" / "aws"
    stand_in.parent.mkdir()
    stand_in.write_text(AWS)
    stand_in.chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", "LOG": str(log)}
    command = ["sh", str(tmp_path / "aws" / "apply.sh"), "--region", "eu-west-1"]
    assert subprocess.run(command, env=environment, check=False).returncode == 1
    calls = [line.split() for line in log.read_text().splitlines()]
    assert [call[1] for call in calls] == ["register-scalable-target", *["put-scheduled-action"] * 4]
    for call in calls:
        assert call[0] == "application-autoscaling"
        assert call[-2:] == ["--region", "eu-west-1"]
        assert (tmp_path / "aws" / call[3].removeprefix("file://")).is_file()


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("resources: {a: service/a}", "carries b, whose resource id is not given"),
        ("resources: {a: service/a, b: service/b}, pools: [a]", "gives a resource id of b, which it does not carry"),
        ("resources: {a: service/a, b: service/b}, service_namespace: sagemaker", "is not one of sagemaker"),
    ],
)
def test_resources_match_the_pools(keys: str, fault: str) -> None:
    pool = (
        "{gpu: {type: H100, usd_per_gpu_hour: 2}, capacity: {prefill_tokens_per_s: 1, decode_tokens_per_s: 1}, "
        "startup: {p90: 4m}, bounds: {min: 1, max: 4}}"
    )
    namespace = "" if "service_namespace" in keys else ", service_namespace: ecs"
    text = (
        f"pools: {{a: {pool}, b: {pool}}}\nclasses: {{c: {{pools: [a, b]}}}}\n"
        f"publishers: [{{kind: aws{namespace}, scalable_dimension: 'ecs:service:DesiredCount', {keys}}}]\n"
    )
    with pytest.raises(ConfigError, match=fault):
        parse_config(text, file="floorcast.yaml", environment={})
