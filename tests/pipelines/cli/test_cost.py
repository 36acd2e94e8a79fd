"""`floorcast cost`, each figure worked by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
import yaml

from floorcast.columns import FLOORS, FORECASTS, QUANTILE_COLUMNS, conform
from floorcast.types import ClassDemand, Reason
from store.connection import open_store
from store.floors import write_floors
from store.forecasts import write_forecasts
from store.publications import PublicationRecord, record_publication

T0 = datetime(2026, 11, 30, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)
AT = ("--now", "2026-11-30T22:30")

# Three hours, the last two of which are on 1 December in Berlin.
FLOOR = {"chat-70b": (3, 2, 2), "unpriced": (1, 1, 1)}
CAPACITY = {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100}


@pytest.fixture
def folder(tmp_path):
    """chat causes 3/4 of the floors of chat-70b by its tokens out, and agent 1/4."""
    pool = {"capacity": CAPACITY, "startup": {"p90": "4m"}, "bounds": {"min": 1, "max": 40}}
    priced = {"type": "H100", "per_replica": 2, "usd_per_gpu_hour": 4, "reserved_usd_per_gpu_hour": 3}
    config = {
        "zone": "Europe/Berlin",
        "step": "1h",
        "pools": {"chat-70b": pool | {"gpu": priced}, "unpriced": pool | {"gpu": {"type": "L4"}}},
        "classes": {name: {"pools": ["chat-70b"]} for name in ("chat", "agent")} | {"code": {"pools": ["unpriced"]}},
    }
    (tmp_path / "floorcast.yaml").write_text(yaml.safe_dump(config))
    demand = {"chat-70b": {"chat": (100, 75), "agent": (100, 25)}, "unpriced": {"code": (10, 10)}}
    floors = [
        (pool, T0 + k * HOUR, T0 + (k + 1) * HOUR, replicas, 1.0, "fresh", reason(demand[pool]))
        for pool, of_pool in FLOOR.items()
        for k, replicas in enumerate(of_pool)
    ]
    # At the median chat has 100 + 50 tokens/s, agent 100 + 100, and code is not forecast for the last hour.
    median = {"chat": (100.0, 50.0), "agent": (100.0, 100.0), "code": (1.0, 1.0)}
    forecasts = [
        {"workload_class": name, "metric": metric, "cutoff": T0, "step_start": T0 + k * HOUR, "model": "last_value"}
        | dict.fromkeys(QUANTILE_COLUMNS, rate)
        for name, rates in median.items()
        for metric, rate in zip(("tokens_in", "tokens_out"), rates, strict=True)
        for k in range(2 if name == "code" else 3)
    ]
    with open_store(tmp_path / "floorcast.duckdb") as store:
        write_floors(store, "plan-1", conform(pl.DataFrame(floors, schema=list(FLOORS), orient="row"), FLOORS))
        write_forecasts(store, "forecast-1", conform(pl.DataFrame(forecasts), FORECASTS))
        record_publication(
            store,
            PublicationRecord(
                version=7,
                run_id="plan-1",
                issued_at=T0,
                valid_until=T0 + 2 * HOUR,
                mode="advisory",
                content_hash="sha256:" + "0" * 64,
                schedule="{}",
            ),
        )
    return tmp_path


def reason(classes):
    return Reason(
        binding="tokens_out",
        needed_by=T0,
        lead_s=0,
        quantile=0.95,
        tokens_in_per_s=200,
        tokens_out_per_s=100,
        median_tokens_per_s=90,
        demand_tokens_per_s=100,
        required_replicas=1,
        classes={
            name: ClassDemand(tokens_in_per_s=rate_in, tokens_out_per_s=out, model_in="m", model_out="m")
            for name, (rate_in, out) in classes.items()
        },
    ).model_dump_json()


def test_each_class_pays_for_its_part_of_the_binding_demand_by_local_day(main, folder):
    found = json.loads(main("cost", *AT, "--json", cwd=folder).out)
    rows = [
        (row["pool"], row["workload_class"], row["day"], row["gpu_hours"], row["usd"], row["tokens"])
        for row in found["costs"]
    ]
    assert found["version"] == 7
    assert rows == [
        # 22:00 UTC is 23:00 in Berlin: 3 replicas of 2 GPUs at 4 $ are 24 $; agent has a quarter of it. 200 tokens/s.
        ("chat-70b", "agent", "2026-11-30", 1.5, 6.0, 720_000.0),
        # Two hours of 2 replicas: 8 GPU-hours, 2 of them the agent's.
        ("chat-70b", "agent", "2026-12-01", 2.0, 8.0, 1_440_000.0),
        ("chat-70b", "chat", "2026-11-30", 4.5, 18.0, 540_000.0),
        ("chat-70b", "chat", "2026-12-01", 6.0, 24.0, 1_080_000.0),
        # A price that is not known is no cost, and an hour without a forecast leaves the day's tokens unknown.
        ("unpriced", "code", "2026-11-30", 1.0, None, 7200.0),
        ("unpriced", "code", "2026-12-01", 2.0, None, None),
    ]


def test_the_split_reserves_what_is_used_more_of_the_time_than_its_price(main, folder):
    # 6, 4 and 4 GPUs at 4 $ or reserved 3 $: 4 are used all the time (1 > 3/4), the other 2 a third of it. That is
    # 4 x 3 h x 3 $ = 36 $, and 2 GPU-hours at 4 $; all on demand, 14 GPU-hours are 56 $.
    (split,) = json.loads(main("cost", *AT, "--json", cwd=folder).out)["splits"]
    assert (split["pools"], split["reserved_gpus"], split["reserved_gpu_hours"]) == (["chat-70b"], 4, 12)
    assert (split["on_demand_gpu_hours"], split["spot_gpu_hours"]) == (2, 0)
    assert (split["usd"], split["on_demand_usd"]) == (44, 56)


def test_prints_a_row_a_class_and_day_and_no_total_where_a_price_is_not_known(main, folder):
    out = main("cost", *AT, cwd=folder).out
    assert "Floors of version 7, issued 2026-11-30T22:00:00Z; days in Europe/Berlin" in out
    lines = [line.split() for line in out.splitlines()]
    # 18 $ for 0.54 million tokens are 33.33 $ a million.
    assert ["chat-70b", "chat", "2026-11-30", "4.5", "$18.00", "$33.33"] in lines
    assert ["unpriced", "code", "2026-12-01", "2.0", "-", "-"] in lines
    assert ["all", "17.0", "-", "-"] in lines
    assert any("4 GPUs" in line and "$44.00" in line and "$56.00" in line for line in out.splitlines())


def test_with_nothing_published_it_says_what_to_run(main, folder):
    ran = main("cost", "--now", "2026-11-29T00:00", cwd=folder)
    assert (ran.code, ran.out) == (7, "")
    assert "nothing was published by 2026-11-29T00:00:00Z" in ran.err
    said = "the newest is version 7, issued 2026-11-30T22:00:00Z: give --now 2026-11-30T22:00:00Z or later"
    assert said in ran.err
    with open_store(folder / "floorcast.duckdb") as store:
        store.execute("DELETE FROM publications")
    assert "run `floorcast cycle` first" in main("cost", *AT, cwd=folder).err
