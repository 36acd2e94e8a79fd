"""Tokens from the prefix cache are read with the demand, of the same share of each step, and are never made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import polars as pl
import pytest

from pipelines.sources.prometheus.counters import SAMPLES, per_minute, to_cached, to_demand
from pipelines.stages.ingest import ingest
from store.cached_tokens import read_cached_tokens
from store.connection import open_store
from store.demand import read_demand

HOUR, STEP = timedelta(hours=1), timedelta(minutes=5)
T0 = datetime(2025, 3, 4, tzinfo=UTC)
END = T0 + HOUR
VLLM = {"vllm:prompt_tokens_total": 100, "vllm:generation_tokens_total": 40}


@pytest.fixture(scope="module")
def url(tmp_path_factory, tools):
    with tools.victoria_metrics(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def shares(tmp_path, url, write_project):
    """`shares({name{labels}: rate}, preset)` of one model: pushed, ingested, and its cached share by step."""

    def run(series: dict[str, float], *, preset: str = "vllm", since: dict[str, int] | None = None, **source: Any):
        own = f'model_name="{tmp_path.name}",pod="p-0"'
        lines = []
        for name, rate in series.items():
            head = name.replace("{", f"{{{own},") if "{" in name else f"{name}{{{own}}}"
            first = (since or {}).get(name, 0)
            lines += [f"{head} {rate * t} {round(T0.timestamp() + t) * 1000}" for t in range(first, 3615, 15)]
        httpx.post(f"{url}/api/v1/import/prometheus", content="\n".join(lines) + "\n").raise_for_status()
        httpx.get(f"{url}/internal/force_flush").raise_for_status()
        project = write_project(tmp_path, {"chat": tmp_path.name}, url=url, preset=preset, history="1h", **source)
        ingest(project, END)
        with open_store(project.store_path) as store:
            cached, demand = read_cached_tokens(store, start=T0, end=END), read_demand(store, start=T0, end=END)
        joined = demand.join(cached, on=["workload_class", "step_start"], how="left")
        return joined.with_columns(share=pl.col("cached_tokens_in") / pl.col("tokens_in"))["share"].to_list()

    return run


@pytest.mark.server
@pytest.mark.parametrize(
    "cached",
    [
        {"vllm:prompt_tokens_cached_total": 30},
        {"vllm:prefix_cache_hits_total": 30},
        {"vllm_prefix_cache_hits_total": 30},
        {"vllm:prompt_tokens_cached_total": 30, "vllm:prefix_cache_hits_total": 30},
    ],
    ids=["new", "old", "underscores", "both"],
)
def test_the_engines_counter_gives_the_share(shares, cached):
    found = shares(VLLM | cached)
    assert len(found) == 12
    assert found[1:] == pytest.approx([0.3] * 11, abs=1e-6)


@pytest.mark.server
def test_sglang_counts_by_where_the_cache_is(shares):
    engine = {"sglang:prompt_tokens_total": 100, "sglang:generation_tokens_total": 40}
    tiers = {
        f'sglang:cached_tokens_total{{cache_source="{tier}"}}': rate for tier, rate in (("device", 20), ("host", 5))
    }
    assert shares(engine | tiers, preset="sglang")[1:] == pytest.approx([0.25] * 11, abs=1e-6)


@pytest.mark.server
def test_an_engine_without_the_counter_leaves_nothing_and_one_at_rest_a_zero(shares):
    assert shares(VLLM) == [None] * 12


@pytest.mark.server
def test_a_cache_that_is_not_hit_is_a_share_of_zero(shares):
    assert shares(VLLM | {"vllm:prompt_tokens_cached_total": 0})[1:] == [0.0] * 11


@pytest.mark.server
def test_a_query_of_the_users_own_may_tell_it(shares):
    rates = {name: f"sum(rate({{__name__='{name}',$selector}}[1m]))" for name in VLLM}
    queries = dict(zip(("tokens_in", "tokens_out"), rates.values(), strict=True))
    queries["cached_tokens_in"] = "0.4 * " + queries["tokens_in"]
    found = shares(VLLM, queries=queries)[2:]
    assert len(found) >= 8
    assert found == pytest.approx([0.4] * len(found), abs=1e-6)


def samples(metric: str, rate: float, times: range) -> pl.DataFrame:
    rows = [
        {"workload_class": "chat", "metric": metric, "counter": len(metric), "series": len(metric)}
        | {"t": (round(T0.timestamp()) + t) * 1000, "value": 1000 + rate * t}
        for t in times
    ]
    return pl.DataFrame(rows, schema=dict(SAMPLES))


def test_a_counter_seen_for_part_of_a_step_tells_its_share_of_all_of_it():
    """The cache's counter is seen from 150 s on: 30 of 100 tokens/s for half a step are 30 % of all its 30,000."""
    seen = pl.concat(
        [
            samples("tokens_in", 100, range(0, 616, 15)),
            samples("tokens_out", 40, range(0, 616, 15)),
            samples("cached_tokens_in", 30, range(150, 616, 15)),
        ]
    )
    minutes = per_minute(seen, start=T0, end=T0 + 2 * STEP, scrape_interval=timedelta(seconds=15))
    demand = to_demand(minutes, step=STEP, source="prod")
    cached = to_cached(minutes, demand, step=STEP)
    assert demand["tokens_in"].to_list() == pytest.approx([30_000, 30_000])
    assert cached["cached_tokens_in"].to_list() == pytest.approx([9000, 9000], rel=0.01)


def test_a_step_without_the_counter_has_no_row():
    seen = pl.concat([samples("tokens_in", 100, range(0, 616, 15)), samples("tokens_out", 40, range(0, 616, 15))])
    minutes = per_minute(seen, start=T0, end=T0 + 2 * STEP, scrape_interval=timedelta(seconds=15))
    assert to_cached(minutes, to_demand(minutes, step=STEP, source="prod"), step=STEP).is_empty()
