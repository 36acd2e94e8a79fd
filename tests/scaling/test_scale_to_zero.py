"""Pools without replicas: for as long as little is asked of them, and never where that is not known."""

from __future__ import annotations

import polars as pl

from floorcast.config import Config


def test_an_idle_pool_goes_to_zero_for_as_long_as_demand_stays_low_past_the_wake_up(
    make_config, make_forecasts, floors_of
):
    """In and out together under 10 tokens/s: 4 + 4 is, 6 + 6 is not. Step 9 brings 12. A window and its lead are three
    steps, the wake-up of 6 minutes two more: windows 5 to 9 see it coming. Those that need a replica by then, too."""
    zero = {"bounds": {"min": 0, "max": 10}, "scale_to_zero": {"wake_up": "6m", "below_tokens_per_s": 10}}
    config = make_config(**zero)
    floors, reasons = floors_of(config, make_forecasts({"chat": [4.0] * 9 + [6.0] + [4.0] * 4}))
    assert floors["main"] == [0] * 5 + [1] * 5 + [0] * 2
    assert [(one.name, one.value, one.replicas) for one in reasons["main"].buffers] == [("scale_to_zero", 10, 0)]
    floors, reasons = floors_of(config, make_forecasts({"chat": [0.0] * 3 + [6.0] + [0.0] * 10}))
    assert floors["main"] == [1] * 4 + [0] * 8
    floors, _ = floors_of(make_config(), make_forecasts({"chat": [0.0] * 14}))
    assert floors["main"] == [1] * 12, "without scale_to_zero one replica stays"


def test_a_prefill_and_a_decode_pool_go_to_zero_together(make_config, make_forecasts, floors_of):
    """Tokens in are 40, under 50, throughout; tokens out are 200 until step 3, then none. A window and its lead are
    three steps; the prefill pool wakes up in one more, the decode pool in two more, which both wait for: windows 0 to 3
    hold replicas in both, those after none in either. A decode pool that is always on is judged by the prefill pool's
    threshold and wake-up."""
    base = make_config().pools["main"].model_dump() | {"bounds": {"min": 0, "max": 100}}
    low = {"below_tokens_per_s": 50}
    pools = {
        "p": base | {"role": "prefill", "scale_to_zero": low | {"wake_up": "5m"}},
        "d": base | {"role": "decode", "scale_to_zero": low | {"wake_up": "10m"}},
    }
    rates = {"tokens_in": [40.0] * 14, "tokens_out": [200.0] * 4 + [0.0] * 10}
    forecasts = pl.concat([make_forecasts({"chat": series}, metrics=(name,)) for name, series in rates.items()])

    def planned() -> dict[str, list[int]]:
        config = Config.model_validate({"horizon": "1h", "pools": pools, "classes": {"chat": {"pools": ["p", "d"]}}})
        return floors_of(config, forecasts)[0]

    assert planned() == {"p": [4] * 4 + [0] * 8, "d": [20] * 4 + [0] * 8}
    late = [0.0] * 9 + [200.0] + [0.0] * 4
    rates["tokens_out"] = late
    forecasts = pl.concat([make_forecasts({"chat": series}, metrics=(name,)) for name, series in rates.items()])
    assert planned() == {"p": [0] * 5 + [4] * 5 + [0] * 2, "d": [0] * 5 + [1] * 2 + [20] * 3 + [0] * 2}
    pools["d"] = base | {"role": "decode", "bounds": {"min": 1, "max": 100}}
    assert planned() == {"p": [0] * 6 + [4] * 4 + [0] * 2, "d": [1] * 7 + [20] * 3 + [1] * 2}


def test_what_is_not_known_never_scales_to_zero(make_config, make_forecasts, floors_of):
    zero = {"bounds": {"min": 0, "max": 10}, "scale_to_zero": {"wake_up": "6m", "below_tokens_per_s": 10}}
    forecasts = make_forecasts({"chat": [0.0] * 6})
    floors, _ = floors_of(make_config(**zero, fallback_replicas=0), forecasts)
    assert floors["main"] == [0, 0] + [1] * 10
