"""What is not there when it is first asked for is read once it is: each class goes on from its own last step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml

from pipelines.project import Project, load_project
from pipelines.stages.ingest import ingest
from store.connection import open_store
from store.demand import read_demand
from store.watermarks import read_watermark

pytestmark = pytest.mark.server

HOUR, STEP = timedelta(hours=1), timedelta(minutes=5)
T0 = datetime(2025, 3, 4, tzinfo=UTC)
END = T0 + 24 * HOUR
NOW = END + timedelta(minutes=1)
COUNTERS = {"vllm:prompt_tokens_total": 100, "vllm:generation_tokens_total": 40}
"""Tokens per second of every replica."""

Push = Callable[[str, datetime, datetime], None]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, tools: SimpleNamespace) -> Iterator[str]:
    """A server that all tests push to: each has models of its own."""
    with tools.victoria_metrics(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.fixture
def push(tmp_path: Path, url: str) -> Push:
    """Samples of a model's one replica, from a time to before another, every 15 seconds."""

    def send(model: str, start: datetime, stop: datetime) -> None:
        times = range(round((start - T0).total_seconds()), round((stop - T0).total_seconds()), 15)
        labels = f'model_name="{tmp_path.name}-{model}",pod="{model}-0"'
        lines = [
            f"{name}{{{labels}}} {rate * t} {round(T0.timestamp() + t) * 1000}"
            for name, rate in COUNTERS.items()
            for t in times
        ]
        httpx.post(f"{url}/api/v1/import/prometheus", content="\n".join(lines) + "\n").raise_for_status()
        httpx.get(f"{url}/internal/force_flush").raise_for_status()

    return send


@pytest.fixture
def ask(tmp_path: Path, url: str, write_project: Callable[..., Project]) -> Callable[..., Project]:
    """The project, with the model of each class."""

    def make(*, source: dict[str, Any] | None = None, **models: str) -> Project:
        keys = {"url": url, "history": "6h", "chunk": "2h"}
        ours = {name: f"{tmp_path.name}-{model}" for name, model in models.items()}
        return write_project(tmp_path, ours, **keys | (source or {}))

    return make


@pytest.fixture
def wipe(tmp_path: Path, url: str) -> Callable[[str], None]:
    """Deletes what the server has of a model."""

    def delete(model: str) -> None:
        match = f'{{model_name="{tmp_path.name}-{model}"}}'
        httpx.post(f"{url}/api/v1/admin/tsdb/delete_series", params={"match[]": match}).raise_for_status()

    return delete


def steps(project: Project, name: str) -> list[datetime]:
    """The class's stored steps, each of which must be whole and hold the truth."""
    with open_store(project.store_path) as store:
        demand = read_demand(store, classes=[name])
    whole = demand.filter(observed_fraction=1.0)
    assert (whole["tokens_in"] - 300 * 100).abs().max() in (None, pytest.approx(0, abs=1e-3))
    return whole["step_start"].to_list()


def every_step(start: datetime, stop: datetime) -> list[datetime]:
    return [start + n * STEP for n in range((stop - start) // STEP)]


def test_a_class_whose_match_is_mended_is_read_from_the_beginning(ask: Callable[..., Project], push: Push) -> None:
    push("llama", T0, NOW)
    result = ingest(ask(chat="lama"), NOW)
    assert result.summary.endswith(", nothing of chat at prod")
    assert result.sources[0].silent == {"chat": None}
    result = ingest(project := ask(chat="llama"), NOW)
    assert "nothing of" not in result.summary
    assert steps(project, "chat") == every_step(END - 6 * HOUR, END)


def test_a_class_that_is_added_is_read_from_the_beginning_and_the_others_go_on(
    ask: Callable[..., Project], push: Push
) -> None:
    push("llama", T0, NOW)
    push("qwen", T0, NOW)
    first = ingest(ask(chat="llama"), NOW - 10 * STEP)
    both = ingest(project := ask(chat="llama", code="qwen"), NOW)
    assert steps(project, "code") == steps(project, "chat")[-72:] == every_step(END - 6 * HOUR, END)
    assert both.sources[0].rows < 1.5 * first.sources[0].rows, "of chat no more is read than the newest chunks"
    assert both.sources[0].reopened_steps == both.sources[0].kept_steps == 0


def test_what_the_server_lacked_for_hours_is_read_once_it_has_caught_up(
    ask: Callable[..., Project], push: Push
) -> None:
    """Remote write of one class fails for three hours, while that of another goes on."""
    push("qwen", T0, NOW)
    push("llama", T0, NOW - 3 * HOUR)
    project = ask(chat="llama", code="qwen")
    for ago in (36, 20, 0):
        result = ingest(project, NOW - ago * STEP)
    assert ", nothing of chat at prod since 2025-03-04T21:05:00Z" in result.summary
    assert steps(project, "chat")[-1] == END - 3 * HOUR - STEP
    assert steps(project, "code")[-1] == END - STEP
    push("llama", NOW - 3 * HOUR, NOW)
    ingest(project, NOW)
    for name in ("chat", "code"):
        assert steps(project, name)[-72:] == every_step(END - 6 * HOUR, END)


def test_a_class_that_has_stopped_is_looked_for_no_further_back_than_history(
    ask: Callable[..., Project], push: Push
) -> None:
    push("qwen", T0, NOW)
    push("llama", T0, T0 + 2 * HOUR)
    project = ask(chat="llama", code="qwen")
    ingest(project, T0 + 3 * HOUR)
    ingest(project, NOW)
    push("llama", T0 + 9 * HOUR, NOW)
    ingest(project, NOW)
    late = [start for start in steps(project, "chat") if start >= T0 + 2 * HOUR]
    # The chunk that holds the moment 6 hours before the newest step of the other, less the allowed lateness.
    assert late == every_step(END - 8 * HOUR, END)


def test_another_query_or_other_labels_of_the_source_are_read_from_the_beginning_too(
    ask: Callable[..., Project], push: Push
) -> None:
    push("llama", T0, NOW)
    project = ask(chat="llama", source={"match": {"pod": "llama-1"}})
    assert ingest(project, NOW).sources[0].steps == 0
    with open_store(project.store_path) as store:
        assert read_watermark(store, "prod") is None
    project = ask(chat="llama", source={"match": {"pod": "llama-0"}})
    assert ingest(project, NOW).sources[0].steps == 72
    with open_store(project.store_path) as store:
        assert read_watermark(store, "prod") == END


def test_two_clusters_that_serve_the_same_model_are_two_classes(ask: Callable[..., Project], push: Push) -> None:
    """Each source asks for its own; asked for at both, the two would be one series."""
    push("llama", T0, NOW)
    asked = yaml.safe_load(ask(chat="llama", other="llama").file.read_text())
    [source] = asked["sources"]
    asked["sources"] = [
        source | {"name": "eu", "classes": ["chat"]},
        source | {"name": "us", "classes": ["other"]},
    ]
    file = ask(chat="llama").file
    file.write_text(yaml.safe_dump(asked))
    result = ingest(project := load_project(file, environment={}), NOW)
    assert [one.steps for one in result.sources] == [72, 72]
    assert steps(project, "chat") == steps(project, "other")


def test_what_is_left_of_a_step_gives_way_to_the_stored_one_though_another_class_lost_nothing(
    ask: Callable[..., Project], push: Push, wipe: Callable[[str], None]
) -> None:
    """What is left of qwen begins in the middle of the step of 23:00."""
    push("llama", T0, NOW)
    push("qwen", T0, NOW)
    ingest(project := ask(chat="llama", code="qwen"), NOW)
    before = steps(project, "code")
    wipe("qwen")
    push("qwen", END - HOUR + STEP / 2, NOW)
    result = ingest(project, NOW)
    assert steps(project, "code") == before
    assert result.sources[0].kept_steps == (END - HOUR - (END - 2 * HOUR)) // STEP
    assert result.sources[0].reopened_steps == 0
