"""What `check` refuses of one pool, with a remedy that it would take."""

from __future__ import annotations

import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError
from floorcast.parsing import parse_config

FOUR = "{multiple_of: 4}"


def parsed(
    *, bounds: str = "{min: 4, max: 40}", shape: str = FOUR, gpu: str = "{type: H100}", more: str = ""
) -> Config:
    text = f"""
pools:
  main:
    gpu: {gpu}
    capacity: {{prefill_tokens_per_s: 4800, decode_tokens_per_s: 2600}}
    startup: {{p90: 4m}}
    bounds: {bounds}
    shape: {shape}
{more}
classes:
  chat: {{pools: [main]}}
"""
    return parse_config(text, file="floorcast.yaml", environment={})


@pytest.mark.parametrize(
    ("pool", "says"),
    [
        ({"more": "    fallback_replicas: 30"}, ["main.fallback_replicas: fallback_replicas 30", "use 28 or 32"]),
        ({"more": "    fallback_replicas: 5"}, ["fallback_replicas 5 is not a multiple of 4", "use 4 or 8"]),
        ({"bounds": "{min: 3, max: 40}"}, ["main.bounds.min: min 3 is not a multiple of 4", "use 4"]),
        ({"bounds": "{min: 1, max: 3}"}, ["main.bounds.min: min 1", "use 4"]),
        ({"bounds": "{min: 4, max: 42}"}, ["main.bounds.max: max 42", "use 40 or 44"]),
        ({"bounds": "{min: 4, max: 40, exceed_by: 3}"}, ["main.bounds.exceed_by: exceed_by 3", "use 0 or 4"]),
        (
            {"gpu": "{type: H100, usd_per_gpu_hour: 4, reserved_usd_per_gpu_hour: 4.5}"},
            ["main.gpu.reserved_usd_per_gpu_hour: ", "4.5 is above usd_per_gpu_hour 4.0", "delete it"],
        ),
        (
            {"gpu": "{type: H100, usd_per_gpu_hour: 4, spot_usd_per_gpu_hour: 5}"},
            ["main.gpu.spot_usd_per_gpu_hour: ", "5.0 is above usd_per_gpu_hour 4.0", "delete it"],
        ),
    ],
)
def test_a_pool_that_contradicts_itself_is_refused_with_a_remedy(pool: dict[str, str], says: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(**pool)
    text = str(refused.value)
    assert [part for part in says if part not in text] == []
    if "exceed_by" not in text:
        assert "use 0" not in text


def test_prices_that_are_equal_or_not_known_are_taken() -> None:
    for gpu in (
        "{type: H100, usd_per_gpu_hour: 4, reserved_usd_per_gpu_hour: 4, spot_usd_per_gpu_hour: 4}",
        "{type: H100, reserved_usd_per_gpu_hour: 4, spot_usd_per_gpu_hour: 4}",
    ):
        assert parsed(gpu=gpu).pools["main"].gpu.reserved_usd_per_gpu_hour == 4


def test_settings_that_were_published_before_these_rules_are_read_still() -> None:
    """A schedule carries what its floors were planned with; the one in force must be read, or floors would fall."""
    pool = parsed(shape="{multiple_of: 1}", more="    fallback_replicas: 30").pools["main"]
    published = pool.settings.model_dump(mode="json")
    published["shape"]["multiple_of"], published["gpu"]["reserved_usd_per_gpu_hour"] = 2, 9.0
    published["gpu"]["usd_per_gpu_hour"], published["fallback_replicas"] = 4.0, 31
    assert type(pool.settings).model_validate(published).fallback_replicas == 31
