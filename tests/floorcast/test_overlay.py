"""The overlay's section: what it refuses, and how pools become lanes."""

from __future__ import annotations

import pytest

from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

POOL = """\
pools:
  main:
    gpu: {{type: H100}}
    capacity: {{prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}}
    startup: {{p90: 4m}}
    bounds: {{min: 2, max: 40}}
    overlay: {overlay}
classes:
  chat: {{pools: [main]}}
"""


def parse(overlay):
    return parse_config(POOL.format(overlay=overlay), file="floorcast.yaml", environment={}).pools["main"].overlay


@pytest.mark.parametrize(
    ("overlay", "said"),
    [
        ("{threshold: {out_above: 0.3, in_below: 0.3}}", "in_below 0.3 is not below 0.3"),
        ("{composite: {in_below: 2}}", "in_below 2.0 is not below 1.0"),
        ("{composite: {utilization_weight: 0, queue_weight: 0, ttft_weight: 0}}", "all weights are 0"),
        ("{step: {bands: [{at_least: 0.9, add: 1}, {at_least: 0.8, add: 2}]}}", "bands do not rise"),
        ("{step: {bands: [{at_least: 0.8, add: 2}, {at_least: 0.9, add: 1}]}}", "bands do not rise"),
        ("{step: {in_below: 0.8}}", "in_below 0.8 is not below 0.8"),
        ("{step: {bands: []}}", "is empty"),
        ("{drain_backlog: 0s}", "drain_backlog is 0"),
        ("{stale_after: 0s}", "stale_after is 0"),
        ("{stale_after: 5m, dead_man: 1m}", "dead_man 1m is over before a signal is stale, after 5m"),
        ("{safe_replicas: 41}", "safe_replicas 41 is outside bounds 2 to 40"),
        ("{policy: hybird}", "hybrid"),
        ("{targets: {kv_cash: 0.8}}", "did you mean `kv_cache`?"),
        ("{panic: {threshold: 1}}", "greater than 1"),
    ],
)
def test_what_cannot_work_is_refused_where_it_stands(overlay, said):
    with pytest.raises(ConfigError) as caught:
        parse(overlay)
    assert said in str(caught.value)
    assert "floorcast.yaml:7: pools.main.overlay" in str(caught.value)
    assert "remedy: " in str(caught.value)


def test_defaults():
    overlay = parse("{}")
    assert overlay.policy == "hybrid"
    assert (overlay.targets.waiting_per_replica, overlay.targets.kv_cache) == (10, 0.8)
    assert overlay.scale_out.cooldown.total_seconds() == 90
    assert overlay.scale_in.cooldown.total_seconds() == 300
    assert overlay.scale_in.stabilization.total_seconds() == 600
    assert [(band.at_least, band.add) for band in overlay.step.bands] == [(0.8, 1), (0.9, 2), (0.95, 4)]


def test_milliseconds_survive():
    overlay = parse("{targets: {ttft: 850ms}}")
    assert overlay.targets.ttft.total_seconds() == 0.85
    assert overlay.model_dump(mode="json")["targets"]["ttft"] == "850ms"
