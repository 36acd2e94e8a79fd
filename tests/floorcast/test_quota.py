"""What `check` refuses of quotas."""

from __future__ import annotations

from typing import Any

import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

POOLS = """
pools:
  chat: &pool
    gpu: {type: H100, per_replica: 2}
    region: eu-west
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 2, max: 40}
  code:
    <<: *pool
    region: us-east
    bounds: {min: 3, max: 40}
classes:
  chat: {pools: [chat]}
  code: {pools: [code]}
"""


def parsed(quotas: str) -> Config:
    return parse_config(f"{POOLS}quotas: {quotas}\n", file="floorcast.yaml", environment={})


def test_quotas_that_hold_the_minimums_are_taken() -> None:
    config = parsed("[{gpu: H100, gpus: 10}, {gpu: H100, region: us-east, gpus: 6}]")
    assert [quota.label for quota in config.quotas] == ["H100", "H100 in us-east"]


@pytest.mark.parametrize(
    ("quotas", "says"),
    [
        (
            "[{gpu: H100, gpus: 9}]",
            ["quotas.0.gpus", "of 9 GPUs is under the 10", "chat 4 + code 6", "raise it to 10", "`bounds.min`"],
        ),
        ("[{gpu: H100, region: us-east, gpus: 5}]", ["H100 in us-east of 5 GPUs is under the 6", "raise it to 6"]),
        ("[{gpu: H10, gpus: 90}]", ["quotas.0.gpu", "covers no pool: none has gpu H10", "did you mean H100?"]),
        ("[{gpu: H100, region: eu-wst, gpus: 90}]", ["quotas.0.region", "eu-wst", "did you mean eu-west?"]),
        ("[{gpu: H100, gpus: 90}, {gpu: H100, gpus: 80}]", ["quotas.1", "two quotas of H100", "keep one"]),
        ("[{gpu: H100, gpus: 0}]", ["quotas.0.gpus", "0"]),
        ("[{gpu: H100}]", ["quotas.0.gpus"]),
        ("[{gpu: H100, gpus: 90, weight: 3}]", ["quotas.0", "weight"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_place_and_remedy(quotas: str, says: list[Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(quotas)
    text = str(refused.value)
    assert [part for part in says if part not in text] == []


def test_a_scheduled_minimum_that_a_quota_has_no_room_for_is_refused() -> None:
    """Code keeps 3 x 2 GPUs of 20, so 14 are left: 7 replicas of chat."""
    entry = 'calendar: [{name: office, start: "08:00", end: "18:00", minimum: MIN}]'
    text = POOLS.replace("    region: eu-west\n", f"    region: eu-west\n    {entry}\n", 1)
    text = text.replace("    region: us-east\n", "    region: us-east\n    calendar: []\n", 1)
    quota = "quotas: [{gpu: H100, gpus: 20}]\n"
    parse_config(text.replace("MIN", "7") + quota, file="floorcast.yaml", environment={})
    with pytest.raises(ConfigError) as refused:
        parse_config(text.replace("MIN", "8") + quota, file="floorcast.yaml", environment={})
    said = str(refused.value)
    assert "pool chat: office asks for 16 GPUs, of which quota H100 of 20 leaves 14" in said
    assert "lower its `minimum` to 7 or less" in said
