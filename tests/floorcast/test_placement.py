"""What `check` refuses of classes that several pools are to serve."""

from __future__ import annotations

import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

POOL = """
    capacity: {prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}
    startup: {p90: 4m}
    bounds: {min: 0, max: 40}
    scale_to_zero: {wake_up: 1m, below_tokens_per_s: 1}
"""
POOLS = f"""
pools:
  base:
    gpu: {{type: A10G, usd_per_gpu_hour: 1.2}}
    max_context_tokens: 8192{POOL}
  long:
    gpu: {{type: H100, usd_per_gpu_hour: 4}}{POOL}
  spot:
    gpu: {{type: A10G, usd_per_gpu_hour: 1.2, spot_usd_per_gpu_hour: 0.5, spot: true}}
    max_context_tokens: 65536{POOL}
  free:
    gpu: {{type: L4}}{POOL}
  other:
    gpu: {{type: L4, usd_per_gpu_hour: 1}}
    margin: {{quantile: 0.9}}{POOL}
  fill:
    role: prefill
    gpu: {{type: A10G, usd_per_gpu_hour: 1.2}}
    max_context_tokens: 8192{POOL}
  write:
    role: decode
    gpu: {{type: A10G, usd_per_gpu_hour: 1.2, spot: true}}{POOL}
classes:
  pair: {{pools: [fill, write]}}
  rest: {{pools: [free]}}
  more: {{pools: [other]}}
  some: {{pools: [spot]}}
  all: {{pools: [base, long]}}
"""


def parsed(chat: str) -> Config:
    return parse_config(f"{POOLS}  chat: {chat}\n", file="floorcast.yaml", environment={})


def test_a_class_of_several_priced_pools_is_taken() -> None:
    config = parsed("{pools: [base, long, spot], max_spot_share: 30%, long_context: {tokens: 32768, share: 15%}}")
    assert config.classes_of("spot") == ("chat", "some")
    assert [config.pools[name].gpu.price for name in ("base", "spot", "free")] == [1.2, 0.5, None]


def test_nothing_on_spot_is_no_contradiction_without_a_spot_pool() -> None:
    assert parsed("{pools: [base, long], max_spot_share: 0}").classes["chat"].max_spot_share == 0


def test_of_pools_with_different_waits_the_least_counts() -> None:
    """Work placed on either has to be served within what the stricter pool promises, whichever is named first."""
    strict, patient = "    slo: {max_wait: 10s}\n", "    slo: {max_wait: 1h}\n"
    text = POOLS.replace("  base:\n", f"  base:\n{strict}").replace("  long:\n", f"  long:\n{patient}")
    for pools in ("[base, long]", "[long, base]"):
        config = parse_config(f"{text}  chat: {{pools: {pools}}}\n", file="floorcast.yaml", environment={})
        assert config.wait_steps("chat") == 0


@pytest.mark.parametrize(
    ("chat", "says"),
    [
        (
            "{pools: [base, long], slo: {max_wait: 30m}}",
            ["classes.chat.slo", "may wait 30m", "planned on one pool alone", "`slo.max_wait` under 10m"],
        ),
        (
            "{pools: [fill, write], slo: {max_wait: 3d}}",
            ["classes.chat.slo", "longer than the horizon of 2d", "lengthen `horizon`"],
        ),
        ("{pools: [base, free]}", ["price of free is not known", "`gpu.usd_per_gpu_hour`"]),
        ("{pools: [base, other]}", ["base 0.95, other 0.9", "`margin.quantile`"]),
        ("{pools: [base, spot]}", ["classes.chat.max_spot_share", "not how much of it", "max_spot_share: 30%"]),
        (
            "{pools: [base], long_context: {tokens: 32768, share: 15%}}",
            ["classes.chat.long_context", "32,768 tokens, which none of its pools holds", "`max_context_tokens`"],
        ),
        (
            "{pools: [base, spot], max_spot_share: 10%, long_context: {tokens: 32768, share: 15%}}",
            ["10% on spot, but 15% is long context", "raise `max_spot_share`"],
        ),
        (
            "{pools: [spot], max_spot_share: 30%}",
            ["classes.chat.max_spot_share", "30% on spot, but all its pools are spot", "max_spot_share: 1"],
        ),
        (
            "{pools: [fill, write], max_spot_share: 30%}",
            ["30% on spot, but both its pools serve each request, and one is spot"],
        ),
        (
            "{pools: [fill, write], long_context: {tokens: 32768, share: 15%}}",
            ["32,768 tokens, which fill does not hold", "`max_context_tokens`"],
        ),
        (
            "{pools: [base, long], max_spot_share: 30%}",
            ["classes.chat.max_spot_share", "30% on spot, but none of its pools is spot", "delete `max_spot_share`"],
        ),
        ("{pools: [base, base]}", ["names pool base twice"]),
        ("{pools: [base, long], max_spot_share: 1.2}", ["max_spot_share", "1.2"]),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_remedy(chat: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(chat)
    text = str(refused.value)
    assert [part for part in says if part not in text] == []
