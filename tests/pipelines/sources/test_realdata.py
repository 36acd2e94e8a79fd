"""The production traces, against totals that polars computes on its own, and the examples that read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from floorcast.config import Config
from floorcast.parsing import parse_config
from floorcast.source import TraceSource
from pipelines.sources import TraceImport, import_trace

EXAMPLES = Path(__file__).parents[3] / "examples"
START = datetime(2026, 10, 31, 16, tzinfo=UTC)
MODELS = {"m-small": (5, 38, 17, 14), "m-large": (61, 142, 148, 112), "deepseek-r1": (35,)}


def example(path: str, folder: Path) -> Config:
    text = (EXAMPLES / path).read_text()
    return parse_config(text, file=path, environment={"FLOORCAST_DATA": str(folder)})


def run(config: Config, base: Path) -> TraceImport:
    return import_trace(config.sources[0], step=config.step, classes=list(config.classes), until=None, base=base)


def servegen(model: str, folder: Path) -> TraceImport:
    clients: dict[str, Any] = {f"client-{client}": [client] for client in MODELS[model]} | {"rest": "*"}
    source = TraceSource.model_validate(
        {
            "name": model,
            "kind": "trace",
            "format": "servegen",
            "path": f"servegen_{model}_rates.parquet",
            "lengths": f"servegen_{model}_lengths.parquet",
            "start": START,
            "clients": clients,
        }
    )
    return import_trace(source, step=timedelta(minutes=10), classes=list(clients), until=None, base=folder)


@pytest.mark.realdata
def test_azure(data_folder: Path, tmp_path: Path) -> None:
    result = run(example("azure/azure.yaml", data_folder), tmp_path)
    frame = pl.read_csv(data_folder / "azure_llm_2023_code.csv").with_columns(
        pl.col("TIMESTAMP").str.to_datetime("%Y-%m-%d %H:%M:%S%.f").dt.truncate("1m")
    )
    complete = frame.filter(pl.col("TIMESTAMP") < datetime(2023, 11, 16, 19, 14))  # noqa: DTZ001
    assert (result.rows_read, result.rejected) == (8819, {})
    assert result.demand["tokens_in"].sum() == complete["ContextTokens"].sum()
    assert result.demand["tokens_out"].sum() == complete["GeneratedTokens"].sum()
    assert result.demand["requests"].sum() == complete.height
    assert result.demand.height == 57
    assert result.demand.filter(pl.col("requests") > 0).height == complete["TIMESTAMP"].n_unique()


@pytest.mark.realdata
def test_mooncake(data_folder: Path) -> None:
    source = TraceSource.model_validate(
        {"name": "m", "kind": "trace", "format": "mooncake", "path": "mooncake_synthetic_trace.jsonl"}
        | {"start": START, "class": "agent"}
    )
    result = import_trace(source, step=timedelta(minutes=5), classes=["agent"], until=None, base=data_folder)
    frame = pl.read_ndjson(data_folder / source.path).filter(pl.col("timestamp") < 15 * 60_000)
    assert (result.rows_read, result.rejected, result.demand.height) == (3993, {}, 3)
    assert result.demand["tokens_in"].sum() == frame["input_length"].sum()
    assert result.demand["tokens_out"].sum() == frame["output_length"].sum()


@pytest.mark.realdata
@pytest.mark.parametrize("model", list(MODELS))
def test_servegen_totals(data_folder: Path, model: str) -> None:
    """Tokens by client with numpy.interp, which is linear between and constant outside its points."""
    result = servegen(model, data_folder)
    rates = pl.read_parquet(data_folder / f"servegen_{model}_rates.parquet").sort("client", "window_start_s")
    lengths = pl.read_parquet(data_folder / f"servegen_{model}_lengths.parquet").sort("client", "window_start_s")
    known = {
        key[0]: (own["window_start_s"].to_numpy() + 10_800.0, own["mean_input_tokens"].to_numpy())
        for key, own in lengths.group_by("client")
    }
    per_client = {
        key[0]: (own["requests_per_s"].cast(pl.Float64).to_numpy(), own["window_start_s"].to_numpy() + 300.0)
        for key, own in rates.group_by("client")
    }
    with_lengths = {c: r * np.interp(at, *known[c]) for c, (r, at) in per_client.items() if c in known}
    mean = sum(map(np.sum, with_lengths.values())) / sum(np.sum(per_client[c][0]) for c in with_lengths)
    tokens = {c: with_lengths.get(c, r * mean) for c, (r, _) in per_client.items()}
    classes = {f"client-{c}": tokens[c] for c in MODELS[model]}
    classes["rest"] = sum(values for c, values in tokens.items() if c not in MODELS[model])
    for name, values in classes.items():
        found = result.demand.filter(pl.col("workload_class") == name)
        np.testing.assert_allclose(found["tokens_in"].to_numpy(), values * 600, rtol=1e-6)
        assert (found["observed_fraction"] == 1).all()
        assert (found["peak_tokens_in_per_s"] >= found["tokens_in"] / 600 * (1 - 1e-9)).all()
    assert result.rejected == {}
    assert result.demand["requests"].sum() == pytest.approx(rates["requests_per_s"].cast(pl.Float64).sum() * 600)


@pytest.mark.realdata
def test_the_outage_of_m_small_arrives_as_zeros(data_folder: Path) -> None:
    """37 windows of every client read 0: rows, not gaps, since what they mean is for the forecaster to judge."""
    demand = servegen("m-small", data_folder).demand
    total = demand.group_by("step_start").agg(pl.col("tokens_in", "tokens_out", "requests").sum(), rows=pl.len())
    zeros = total.filter((pl.col("tokens_in") == 0) & (pl.col("tokens_out") == 0) & (pl.col("requests") == 0))
    assert zeros.height == 37
    assert zeros["rows"].unique().to_list() == [5]
    assert zeros["step_start"].min() >= START + timedelta(days=7)
    assert demand.height == 5 * 2016


@pytest.mark.realdata
@pytest.mark.parametrize("path", ["servegen/m-small.yaml", "servegen/m-large.yaml", "azure/azure.yaml"])
def test_examples_give_their_pools_a_fleet_worth_forecasting(data_folder: Path, tmp_path: Path, path: str) -> None:
    config = example(path, data_folder)
    demand = run(config, tmp_path).demand
    assert sorted(demand["workload_class"].unique()) == sorted(config.classes)
    for name, pool in config.pools.items():
        own = demand.filter(pl.col("workload_class").is_in(config.classes_of(name)))
        total = own.group_by("step_start").agg(pl.col("tokens_in", "tokens_out").sum() / config.step_s)
        limit_in = pool.capacity.prefill_tokens_per_s * pool.capacity.target_utilization
        limit_out = pool.capacity.decode_tokens_per_s * pool.capacity.target_utilization
        needed = total.select(pl.max_horizontal(pl.col("tokens_in") / limit_in, pl.col("tokens_out") / limit_out))
        assert 3 <= needed.to_series().mean() <= 25
        assert needed.to_series().max() <= pool.bounds.max


@pytest.mark.parametrize("path", ["servegen/m-small.yaml", "servegen/m-large.yaml", "azure/azure.yaml"])
def test_examples_are_valid_without_the_data(path: str, tmp_path: Path) -> None:
    config = example(path, tmp_path)
    assert config.sources[0].path.startswith(str(tmp_path))
