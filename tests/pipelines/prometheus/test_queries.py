"""The user's own PromQL, and what `check` tells of a server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from floorcast.errors import ConfigError, DataError
from pipelines.sources.prometheus import Chunk, Examined, examine, import_prometheus
from pipelines.sources.prometheus.examine import CounterFound

pytestmark = pytest.mark.server

STEP = timedelta(minutes=5)
HOUR = timedelta(hours=1)
QUERIES = {
    metric: f"sum(rate({name}_total{{$selector}}[2m]) or rate({name}{{$selector}}[2m]))"
    for metric, name in (("tokens_in", "vllm:prompt_tokens"), ("tokens_out", "vllm:generation_tokens"))
}


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def read(world: Any, classes: Any, make_source: Any) -> Any:
    def call(url: str, queries: dict[str, str], hours: tuple[float, float], names: tuple[str, ...]) -> list[Chunk]:
        return list(
            import_prometheus(
                make_source(url, queries=QUERIES | queries),
                classes={name: classes[name] for name in names},
                step=STEP,
                start=world.start + hours[0] * HOUR,
                end=world.start + hours[1] * HOUR,
            )
        )

    return call


def test_rates_become_steps(url: str, read: Any, world: Any) -> None:
    demand = pl.concat([chunk.demand for chunk in read(url, {}, (1, 1.6), ("steady", "idle", "weird", "absent"))])
    steady = demand.filter(pl.col("workload_class") == "steady")
    assert steady["tokens_in"].to_list() == pytest.approx([2 * 900 * 300] * steady.height, rel=1e-3)
    assert steady["peak_tokens_out_per_s"].to_list() == pytest.approx([700] * steady.height, rel=1e-3)
    assert steady["requests"].null_count() == steady.height == 7
    assert demand.filter(pl.col("workload_class") == "idle")["tokens_in"].to_list() == [0] * 7
    assert set(demand["workload_class"]) == {"steady", "idle"}


def test_what_the_query_does_not_answer_is_missing(url: str, read: Any, world: Any) -> None:
    """In the great gap, from 34:07:30 to 34:27:30."""
    [chunk] = read(url, {}, (34, 34.9), ("steady",))
    fractions = dict(chunk.demand.select("step_start", "observed_fraction").rows())
    hour = world.start + 34 * HOUR
    assert hour + 3 * STEP not in fractions
    assert fractions[hour] == 1
    assert fractions[hour + 6 * STEP] == 1


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ('rate({__name__=~"vllm:prompt_tokens.*",$selector}[2m])', "gives 2 series for class steady"),
        ('sum(-rate({__name__=~"vllm:prompt_tokens.*",$selector}[2m]))', "negative rate"),
    ],
)
def test_a_query_that_is_not_one_rate_is_an_error(prometheus: str, read: Any, query: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        read(prometheus, {"tokens_in": query}, (1, 2), ("steady",))
    assert caught.value.where == "source prod: queries.tokens_in"


def test_a_query_that_does_not_parse_shows_what_the_server_says(prometheus: str, read: Any) -> None:
    with pytest.raises(DataError, match="parse error"):
        read(prometheus, {"tokens_in": "sum(rate({$selector}[2m])"}, (1, 2), ("steady",))


def test_classes_that_cannot_be_told_apart_are_refused(
    prometheus: str, read: Any, world: Any, classes: Any, make_source: Any
) -> None:
    with pytest.raises(ConfigError, match="classes steady and idle ask for the same series"):
        read(prometheus, {"tokens_in": "vector(1)"}, (1, 2), ("steady", "idle"))
    twins = {"one": classes["steady"], "two": classes["steady"]}
    arguments = {"classes": twins, "step": STEP, "start": world.start, "end": world.end}
    with pytest.raises(ConfigError, match="classes one and two ask for the same series"):
        next(import_prometheus(make_source(prometheus), **arguments))


def test_a_bad_label_is_refused_before_anything_is_asked(world: Any, classes: Any, make_source: Any) -> None:
    source = make_source("http://127.0.0.1:9", match={"no-label": "x"})
    arguments = {"classes": classes, "step": STEP, "start": world.start, "end": world.end}
    with pytest.raises(ConfigError, match="no-label"):
        next(import_prometheus(source, **arguments))


@pytest.fixture
def look(classes: Any) -> Any:
    """The class as examined, and its counters by metric."""

    def call(source: Any, now: Any, name: str) -> tuple[Examined, dict[str, CounterFound]]:
        [found] = examine(source, {name: classes[name]}, now)
        return found, {one.metric: one for one in found.counters}

    return call


def test_examine_tells_what_there_is_and_what_is_missing(url: str, world: Any, look: Any, make_source: Any) -> None:
    found, counters = look(make_source(url), world.end, "steady")
    steady = counters["tokens_in"]
    assert steady.names == ("vllm:prompt_tokens_total", "vllm:prompt_tokens")
    assert steady.resolution == timedelta(seconds=30)
    assert (steady.first, steady.last) == (world.start, world.end)
    [gap] = steady.gaps
    assert gap.start == world.start + timedelta(hours=34, minutes=10)
    assert gap.end == world.start + timedelta(hours=34, minutes=25)
    lacking, alike = found.missing
    assert lacking == "tokens_in, tokens_out: 2d of history; a weekly shape needs 21d"
    assert "1 pair of series, which rise alike and are both counted" in alike, "its two pods get the same demand"
    assert {one.names for one in found.signals} == {()}, "the world has counters only"
    assert look(make_source(url), world.end, "chat")[1]["tokens_out"].series >= 6
    assert look(make_source(url), world.end, "weird")[1]["requests"].first == world.start + 44 * HOUR


def test_examine_tells_with_which_labels_nothing_was_found(url: str, world: Any, look: Any, make_source: Any) -> None:
    found, counters = look(make_source(url), world.end, "absent")
    absent = counters["tokens_in"]
    assert (absent.names, absent.series, absent.first, absent.resolution, absent.gaps) == ((), 0, None, None, ())
    assert len(found.missing) == 2, "requests are not needed"
    assert all("with these labels: compare `match`" in text for text in found.missing)
    assert found.labels == 'model_name="no-such-model"'


def test_examine_tells_of_a_source_gone_silent(prometheus: str, world: Any, look: Any, make_source: Any) -> None:
    found, counters = look(make_source(prometheus), world.end + 2 * HOUR, "idle")
    assert counters["tokens_in"].last == world.end
    assert found.missing[0] == "tokens_in, tokens_out: nothing new for 2h: is it still scraped?"


def test_examine_takes_queries(prometheus: str, world: Any, look: Any, make_source: Any) -> None:
    _, counters = look(make_source(prometheus, queries=QUERIES), world.end, "steady")
    assert list(counters) == ["tokens_in", "tokens_out"]
    assert counters["tokens_in"].series == 1
    assert len(counters["tokens_in"].gaps) == 1
