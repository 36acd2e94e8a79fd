"""`whatif` plans with the startup times that a plan goes by."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
import yaml

from floorcast.columns import STARTUPS, conform
from store.connection import open_store
from store.startups import upsert_startups

NOW = datetime(2026, 11, 30, 8, 50, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path):
    """Configured are 4 minutes, and each of three starts took 20."""
    pool = {
        "gpu": {"type": "H100"},
        "capacity": {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100},
        "bounds": {"min": 1, "max": 40},
        "startup": {"p90": "4m", "apply_delay": "30s", "measure": {"source": "prod", "at_least": 3}},
        "target": {"namespace": "llm", "kind": "Deployment", "name": "chat"},
    }
    source = {"name": "prod", "kind": "prometheus", "url": "http://127.0.0.1:9", "preset": "vllm"}
    config = {
        "sources": [source],
        "pools": {"chat-70b": pool},
        "classes": {"chat": {"pools": ["chat-70b"], "match": {"model_name": "chat"}}},
    }
    (tmp_path / "floorcast.yaml").write_text(yaml.safe_dump(config))
    starts = [NOW - timedelta(days=day) for day in (1, 2, 3)]
    rows = pl.DataFrame(
        {
            "pool": ["chat-70b"] * 3,
            "pod": [f"llm/chat-{k}" for k in range(3)],
            "created_at": starts,
            "ready_at": [start + timedelta(minutes=20) for start in starts],
            "seen_at": [start + timedelta(minutes=30) for start in starts],
            "restarts": [0] * 3,
        }
    )
    with open_store(tmp_path / "floorcast.duckdb") as store:
        upsert_startups(store, conform(rows, STARTUPS))
    return tmp_path


def leads(ran):
    assert ran.code == 0, ran.err
    return [note for note in json.loads(ran.out)["remarks"] if "lead window" in note]


def test_both_plans_go_by_the_measured_startup_and_one_that_is_set_wins(main, folder):
    """Measured, 20m + 5m + 30s reach into 6 steps after a window's own; set, 4m + 5m + 30s into 2."""
    ask = ("whatif", "--now", "2026-11-30T08:50", "--json", "--set")
    assert leads(main(*ask, "pools.chat-70b.bounds.max=50", cwd=folder)) == []
    (note,) = leads(main(*ask, "pools.chat-70b.startup.p90=4m", cwd=folder))
    assert "fitted for a lead window of 7 steps, not of 3" in note
