"""The demo's folder holds a history and a configuration that fit each other."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from floorcast.config import Config
from floorcast.errors import ConfigError, DataError
from floorcast.parsing import parse_config
from pipelines.demo.fleet import FLEET
from pipelines.demo.write import write_demo


@pytest.fixture(scope="session")
def config_path(tmp_path_factory: pytest.TempPathFactory, end: datetime) -> Path:
    return write_demo(tmp_path_factory.mktemp("made") / "deep" / "demo", end=end)


@pytest.fixture(scope="session")
def config(config_path: Path) -> Config:
    return parse_config(config_path.read_text(encoding="utf-8"), file=str(config_path), environment={})


def required_replicas(config: Config, pool: str, minutes: pl.DataFrame) -> np.ndarray:
    """Replicas required in each step by the two formulas of the design, written out."""
    capacity = config.pools[pool].capacity
    steps = (
        minutes.filter(pl.col("workload_class").is_in(config.classes_of(pool)))
        .group_by(pl.col("minute_start").dt.truncate("5m"))
        .agg(pl.sum("tokens_in", "tokens_out"))
    )
    needed = []
    for tokens_in, tokens_out in steps.select("tokens_in", "tokens_out").iter_rows():
        load_in = tokens_in / 300 / capacity.prefill_tokens_per_s / capacity.target_utilization
        load_out = tokens_out / 300 / capacity.decode_tokens_per_s / capacity.target_utilization
        needed.append(np.ceil(load_in + load_out if capacity.combine == "sum" else max(load_in, load_out)))
    return np.array(needed)


def test_the_configuration_names_three_pools_and_the_six_classes(config: Config) -> None:
    assert len(config.pools) == 3
    assert set(config.classes) == set(FLEET)
    assert {spec.kind for spec in config.classes.values()} == {
        *("chat", "summarization", "document_analysis", "code_generation", "batch", "agent")
    }
    assert (config.step, config.horizon, config.zone) == (timedelta(minutes=5), timedelta(hours=48), "Europe/Berlin")
    assert {pool.capacity.combine for pool in config.pools.values()} == {"max", "sum"}
    # Only batch may wait: for eleven steps beyond the one that its work arrives in.
    assert {name: config.wait_steps(name) for name in config.classes if config.wait_steps(name)} == {"batch": 11}
    assert all(timedelta(minutes=2) <= pool.startup.p90 <= timedelta(minutes=8) for pool in config.pools.values())


def test_every_path_is_relative_to_the_folder(config: Config) -> None:
    (source,) = config.sources
    assert (config.store.path, config.output.dir, source.path) == ("floorcast.duckdb", "published", "history.parquet")


def test_the_source_describes_the_file(config_path: Path, config: Config, minutes: pl.DataFrame) -> None:
    """The mapped columns exist, its classes are those configured, and no row is past max_tokens."""
    (source,) = config.sources
    history = pl.read_parquet(config_path.parent / source.path)
    assert history.equals(minutes)
    assert source.row_interval == timedelta(minutes=1)
    assert source.columns is not None
    assert {*source.columns.model_dump().values()} == set(history.columns)
    assert set(history[source.columns.workload_class or ""]) == set(config.classes)
    assert history.select(pl.max_horizontal(pl.max("tokens_in", "tokens_out"))).item() < source.max_tokens


@pytest.mark.parametrize("pool", ["chat-70b", "code-8b", "docs-70b"])
def test_fleets_are_of_an_interesting_size(config: Config, minutes: pl.DataFrame, pool: str) -> None:
    """3 to 30 replicas on average, a few at night, 15 to 25 at the usual peak, and max never binds."""
    required = required_replicas(config, pool, minutes)
    assert 3 <= required.mean() <= 30
    assert np.percentile(required, 10) <= 7
    assert 15 <= np.percentile(required, 97) <= 25
    assert required.max() < config.pools[pool].bounds.max


def test_decode_binds_while_the_job_runs_and_prefill_by_day(config: Config, minutes: pl.DataFrame) -> None:
    capacity = config.pools["docs-70b"].capacity
    docs = minutes.filter(pl.col("workload_class").is_in(config.classes_of("docs-70b")))
    decode_binds = pl.sum("tokens_out") / capacity.decode_tokens_per_s > (
        pl.sum("tokens_in") / capacity.prefill_tokens_per_s
    )
    by_hour = dict(docs.group_by(pl.col("minute_start").dt.hour()).agg(decode_binds).iter_rows())
    assert by_hour[1]
    assert not by_hour[13]


def test_writing_twice_leaves_the_same_bytes(config_path: Path, end: datetime) -> None:
    folder = config_path.parent
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert write_demo(folder, end=end) == config_path
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert set(before) == {"floorcast.yaml", "history.parquet"}


@pytest.mark.parametrize("name", ["floorcast.yaml", "floorcast.duckdb", "prod.yaml"])
def test_a_folder_with_anything_of_the_users_own_is_left_alone(tmp_path: Path, end: datetime, name: str) -> None:
    own = tmp_path / name
    own.write_text("mode: apply\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"not empty and not an earlier demo's.*\n.*--dir"):
        write_demo(tmp_path, end=end)
    assert own.read_text(encoding="utf-8") == "mode: apply\n"
    assert list(tmp_path.iterdir()) == [own]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, end: datetime) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(DataError, match="file: the demo cannot be written"):
        write_demo(tmp_path / "file", end=end)
    with pytest.raises(DataError, match="below: the demo cannot be written"):
        write_demo(tmp_path / "file" / "below", end=end)
