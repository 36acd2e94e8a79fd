"""`floorcast calibrate --from-history`: what is stored of a pool's load, as capacity and lines to paste."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
import yaml

from floorcast.columns import DEMAND, POOL_LOAD
from store.connection import open_store
from store.demand import upsert_demand
from store.pool_load import upsert_pool_load

NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
STEP = timedelta(minutes=5)
AT = ("--now", "2026-11-16T09:00")
FROM_HISTORY = ("calibrate", "--from-history", "chat-70b")

# One replica sustains 5,000 in and 1,000 out per s; requests wait in the middle third of each hour.
HOUR = [(0.5, 0)] * 4 + [(1.0, 40)] * 4 + [(0.3, 0)] * 4


@pytest.fixture
def folder(tmp_path):
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {
            "prefill_tokens_per_s": 10000,
            "decode_tokens_per_s": 2000,
            "measure": {"source": "prod"},
        },
        "startup": {"p90": "4m"},
        "bounds": {"min": 1, "max": 40},
    }
    config = {
        "sources": [{"name": "prod", "kind": "prometheus", "url": "http://127.0.0.1:9"}],
        "pools": {"chat-70b": pool, "code-8b": pool | {"capacity": {**pool["capacity"], "measure": None}}},
        "classes": {
            "chat": {"pools": ["chat-70b"], "match": {"model_name": "m"}},
            "code": {"pools": ["code-8b"], "match": {"model_name": "n"}},
        },
    }
    (tmp_path / "floorcast.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


@pytest.fixture
def known(folder):
    """Six hours of two replicas."""
    load, demand = [], []
    for place, (share, waiting) in enumerate(HOUR * 6):
        at = NOW - timedelta(hours=6) + place * STEP
        load.append(("chat-70b", at, 2, 2, float(waiting)))
        tokens_in, tokens_out = (2 * 300 * share * of for of in (5000, 1000))
        demand.append(("chat", at, tokens_in, tokens_out, 100.0, None, None, 1.0, "prod"))
    with open_store(folder / "floorcast.duckdb") as store:
        upsert_pool_load(store, pl.DataFrame(load, schema=dict(POOL_LOAD), orient="row"))
        upsert_demand(store, pl.DataFrame(demand, schema=dict(DEMAND), orient="row"))
    return folder


def test_prints_the_edge_what_contradicts_and_lines_to_paste(main, known):
    ran = main(*FROM_HISTORY, *AT, cwd=known)
    assert ran.code == 0
    assert (
        "pool chat-70b: 6h known of 2026-11-16T03:00:00Z to 2026-11-16T09:00:00Z, 2h of them with requests" in ran.out
    )
    assert "one replica sustains 5,000 tokens in and 1,000 tokens out per s (max)" in ran.out
    assert "configured: 10,000 tokens in and 2,000 tokens out per s (max)" in ran.out
    # 24 steps with a queue at half of a capacity of which floors count on 0.75, which is 1.5 times that.
    assert "for 2 h requests waited, 20 a replica, while each served 5,000 of 10,000 tokens in per s" in ran.out
    assert "They are too low, by 50% or more" in ran.out
    pasted = yaml.safe_load(ran.out[ran.out.index("pools:") :])
    capacity = {"prefill_tokens_per_s": 5000, "decode_tokens_per_s": 1000, "combine": "max"}
    assert pasted == {"pools": {"chat-70b": {"capacity": capacity}}}


def test_says_the_same_to_machines(main, known):
    found = json.loads(main(*FROM_HISTORY, *AT, "--json", cwd=known).out)
    assert found["capacity"]["decode_tokens_per_s"] == pytest.approx(1000)
    assert found["capacity"]["at_least"] is False
    assert [(edge["onsets"], edge["low"], edge["high"]) for edge in found["edges"]] == [(6, 1, 1)]
    assert (found["steps"], found["queued_steps"]) == (72, 24)
    assert [one["capacity_is"] for one in found["contradictions"]] == ["too high"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--from-history", "chat"), "no pool chat"),
        (("--from-history", "chat-70b"), "no database yet"),
        (("--from-history", "code-8b"), "its replicas and their queue are not observed"),
        (("--from-history", "chat-70b", "--ttft", "2s"), "--ttft is of load tests, not of --from-history"),
        (("--from-history", "chat-70b", "--replicas", "2"), "--replicas is of load tests, not of --from-history"),
        ((), "name the results of a load test, or a pool with --from-history"),
    ],
)
def test_what_it_cannot_tell_is_refused(main, folder, words, error):
    ran = main("calibrate", *words, cwd=folder)
    assert ran.code != 0
    assert error in " ".join(ran.err.replace("│", " ").split())


def test_a_pool_without_history_says_what_to_do(main, known):
    with open_store(known / "floorcast.duckdb") as store:
        store.execute("DELETE FROM pool_load")
    ran = main(*FROM_HISTORY, *AT, cwd=known)
    assert ran.code != 0
    assert "let `floorcast ingest` collect 1h or more" in ran.err
