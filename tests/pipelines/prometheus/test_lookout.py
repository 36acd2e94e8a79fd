"""When a class comes, as both servers tell it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pipelines.sources.prometheus.lookout import first_samples

pytestmark = pytest.mark.server

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture(params=["prometheus", "victoria_metrics"])
def source(request: pytest.FixtureRequest, make_source: Any) -> Any:
    return make_source(request.getfixturevalue(request.param))


def test_a_class_is_seen_from_its_first_samples_on(source: Any, world: Any, classes: Any) -> None:
    """A replica of chat has its counters under the old and the new name from hour 30 to 32."""
    since = dict.fromkeys(("chat", "steady", "weird", "absent"), world.start + 29 * HOUR)
    found = first_samples(source, classes, since, end=world.end)
    assert found.pop("absent") is None
    assert {name: (first - world.start) // MINUTE for name, first in found.items() if first is not None} == {
        "chat": 29 * 60,
        "steady": 29 * 60,
        "weird": 44 * 60,
    }


def test_nothing_is_seen_of_a_silence(source: Any, world: Any, classes: Any) -> None:
    """All scrapes stop from 34:07:30 to 34:27:30."""
    silent = world.start + 34 * HOUR + 10 * MINUTE
    for end, expected in ((silent + 10 * MINUTE, None), (world.end, silent + 15 * MINUTE)):
        assert first_samples(source, classes, {"steady": silent}, end=end) == {"steady": expected}


def test_a_class_is_looked_for_week_by_week(source: Any, world: Any, classes: Any) -> None:
    since = {"weird": world.start - timedelta(days=40)}
    assert first_samples(source, classes, since, end=world.end) == {"weird": world.start + 44 * HOUR}


def test_what_has_tokens_in_and_no_tokens_out_is_not_there(
    make_source: Any, world: Any, classes: Any, prometheus: str
) -> None:
    rate = "sum(rate({{__name__='vllm:{}',$selector}}[1m]))"
    queries = {"tokens_in": rate.format("prompt_tokens"), "tokens_out": rate.format("no_such_tokens")}
    source = make_source(prometheus, queries=queries)
    assert first_samples(source, classes, {"steady": world.start}, end=world.end) == {"steady": None}
