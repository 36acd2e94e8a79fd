"""What floors cost, whose cost it is, and the cheapest split of GPUs."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.columns import COSTS, DEMAND, FLOORS, FORECASTS, empty
from floorcast.config import Config
from scaling.floors import plan
from scaling.money import Split, costs, splits

HOUR = timedelta(hours=1)


def fleet(classes: dict[str, str] | None = None, **gpu: Any) -> Config:
    pool = {
        "gpu": {"type": "H100", "per_replica": 2, **gpu},
        "capacity": {"prefill_tokens_per_s": 10, "decode_tokens_per_s": 10, "target_utilization": 1},
        "startup": {"p90": "4m30s", "apply_delay": "30s"},
        "bounds": {"min": 1, "max": 1000},
        "margin": {"minimum": 0},
        "shape": {"step_down": 1000, "every": "5m", "dwell": "0s"},
    }
    of = classes or {"chat": "main"}
    return Config.model_validate(
        {
            "horizon": "1h",
            "pools": dict.fromkeys(of.values(), pool),
            "classes": {name: {"pools": [at]} for name, at in of.items()},
        }
    )


def floors(config: Config, counts: list[int], now: Any) -> pl.DataFrame:
    """FLOORS of the pool `main`, an hour each; their reasons are not read."""
    return pl.DataFrame(
        {
            "pool": ["main"] * len(counts),
            "window_start": [now + at * HOUR for at in range(len(counts))],
            "window_end": [now + (at + 1) * HOUR for at in range(len(counts))],
            "min_replicas": counts,
            "required_replicas": [0.0] * len(counts),
            "rung": ["fresh"] * len(counts),
            "reason": ["{}"] * len(counts),
        },
        schema=dict(FLOORS),
    )


def test_cost_by_class_and_day_worked_by_hand(make_forecasts: Any, now: Any) -> None:
    """60 and 30 tokens/s, in and out alike, need 9 replicas of 2 GPUs: 18 GPU-hours in the hour, 12 of them chat's.
    At 4 $ that is 48 $ for chat's 2 x 60 x 3,600 = 432,000 tokens, 111.11 $ a million."""
    config = fleet({"chat": "main", "code": "main"}, usd_per_gpu_hour=4)
    forecasts = make_forecasts({"chat": [60.0] * 14, "code": [30.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=None)
    found = costs(config, floors=made.floors, forecasts=forecasts)
    assert dict(found.schema) == dict(COSTS)
    chat, code = found.rows(named=True)
    assert (chat["workload_class"], chat["day"], code["workload_class"]) == ("chat", date(2026, 11, 30), "code")
    assert (chat["gpu_hours"], chat["usd"], chat["tokens"]) == pytest.approx((12, 48, 432_000))
    assert code["usd"] == pytest.approx(24)
    assert chat["usd"] / chat["tokens"] * 1e6 == pytest.approx(111.11, abs=0.01)


def test_an_unknown_price_is_no_cost_and_an_unknown_forecast_no_tokens(make_forecasts: Any, now: Any) -> None:
    config, forecasts = fleet(), make_forecasts({"chat": [60.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=None)
    assert costs(config, floors=made.floors, forecasts=forecasts)["usd"].to_list() == [None]
    assert costs(config, floors=made.floors, forecasts=forecasts.head(3))["tokens"].to_list() == [None]


def test_without_floors_nothing_costs(make_forecasts: Any) -> None:
    for forecasts in (empty(FORECASTS), make_forecasts({"chat": [60.0] * 14})):
        found = costs(fleet(), floors=empty(FLOORS), forecasts=forecasts)
        assert (found.is_empty(), dict(found.schema)) == (True, dict(COSTS))


def test_reserved_is_bought_where_it_is_used_often_enough(now: Any) -> None:
    """Reserved costs 0.6 of on demand, so a GPU must be used in more than 60 % of the hours. Of ten hours, five have 2
    replicas (4 GPUs), three 3 (6) and two 5 (10): 4 GPUs are used always, the 5th and 6th in half the hours, 7 to 10
    in a fifth. So 4 are reserved: 4 x 10 x 0.6 = 24; on demand 3 x 2 + 2 x 6 = 18. All on demand: 58."""
    config = fleet(usd_per_gpu_hour=1, reserved_usd_per_gpu_hour=0.6)
    [split] = splits(config, floors(config, [2] * 5 + [3] * 3 + [5] * 2, now))
    assert (split.reserved_gpus, split.reserved_gpu_hours, split.on_demand_gpu_hours) == (4, 40, 18)
    assert (split.usd, split.on_demand_usd) == pytest.approx((42, 58))
    dearer = fleet(usd_per_gpu_hour=1, reserved_usd_per_gpu_hour=0.45)
    [split] = splits(dearer, floors(dearer, [2] * 5 + [3] * 3 + [5] * 2, now))
    assert split.reserved_gpus == 6


def test_without_another_price_there_is_nothing_to_split(now: Any) -> None:
    for config in (fleet(), fleet(usd_per_gpu_hour=1), fleet(reserved_usd_per_gpu_hour=0.5)):
        assert list(splits(config, floors(config, [2, 3], now))) == []


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.floats(0.1, 1.0),
    st.floats(0.1, 1.0),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)
def test_no_other_base_is_cheaper(counts: list[int], reserved: float, spot: float, share: float) -> None:
    config = fleet(
        usd_per_gpu_hour=1, reserved_usd_per_gpu_hour=reserved, spot_usd_per_gpu_hour=spot, max_spot_share=share
    )
    from datetime import UTC, datetime

    [split] = splits(config, floors(config, counts, datetime(2026, 11, 30, tzinfo=UTC)))
    used = 2 * np.array(counts)

    def usd(base: int) -> float:
        above = np.maximum(used - base, 0)
        on_spot = np.minimum(above, share * used)
        return float(base * len(counts) * reserved + (on_spot * spot + above - on_spot).sum())

    assert split.usd == pytest.approx(min(usd(base) for base in range(82)), abs=1e-6)
    assert split.usd == pytest.approx(usd(split.reserved_gpus))
    assert split.usd <= split.on_demand_usd + 1e-6


def test_the_split_is_a_value(now: Any) -> None:
    config = fleet(usd_per_gpu_hour=2, spot_usd_per_gpu_hour=1, max_spot_share=0.5)
    [split] = splits(config, floors(config, [2, 4], now))
    assert isinstance(split, Split)
    assert (split.reserved_gpus, split.spot_gpu_hours, split.on_demand_gpu_hours, split.usd) == (0, 6, 6, 18)


def test_a_pair_counts_each_token_once(make_config: Any, make_forecasts: Any, now: Any) -> None:
    """100 tokens/s in and 100 out for an hour: 360,000 on the prefill pool, 360,000 on the decode pool."""
    config = make_config(role="prefill")
    forecasts = make_forecasts({"chat": [100.0] * 14})
    made = plan(config, now=now, forecasts=forecasts, history=empty(DEMAND), published=None)
    found = costs(config, floors=made.floors, forecasts=forecasts)
    assert dict(found.select("pool", "tokens").rows()) == pytest.approx({"main": 360_000, "partner": 360_000})
