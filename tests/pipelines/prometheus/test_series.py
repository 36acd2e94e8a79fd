"""Which series are taken for one counter, and what speaks against it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from floorcast.source import PrometheusSource
from pipelines.sources.prometheus.client import Series
from pipelines.sources.prometheus.series import copy_labels, doubts, merged_by, to_samples


def source(**keys: Any) -> PrometheusSource:
    return PrometheusSource.model_validate({"name": "prod", "kind": "prometheus", "url": "http://p"} | keys)


def series(first_s: float, value: float, per_s: float = 7, **labels: str) -> Series:
    """An hour's samples, every 15 seconds."""
    times = [first_s + 15 * k for k in range(240)]
    return Series(metric=labels, values=[(t, value + per_s * t) for t in times])


def counters(found: list[Series], **keys: list[str]) -> int:
    return to_samples([("chat", "tokens_in", found)], **keys)["counter"].n_unique()


PAIR = [series(1, 100, pod="p", scraper="a"), series(9, 100, pod="p", scraper="b")]
HOSTS = [series(1, 100, instance="gpu1", job="a"), series(2, 5000, instance="gpu1", job="b")]


def test_a_label_in_copies_tells_scrapers_apart_and_not_counters() -> None:
    assert (counters(PAIR), counters(PAIR, copies=["scraper"])) == (2, 1)
    assert "scraper" in copy_labels(source(copies=["scraper"]))


def test_a_label_in_distinct_tells_counters_apart() -> None:
    assert (counters(HOSTS), counters(HOSTS, distinct=["job"])) == (1, 2)
    assert "job" in copy_labels(source())
    assert "job" not in copy_labels(source(distinct=["job"]))
    ports = [series(1, 1, pod="p", instance=f"{host}:8000") for host in ("a", "b")]
    assert (counters(ports), counters(ports, distinct=["instance"])) == (1, 2)


@pytest.mark.parametrize("keys", [{"copies": ["job"], "distinct": ["job"]}, {"copies": ["a b"]}, {"distinct": ["x)"]}])
def test_labels_must_be_names_and_of_one_list(keys: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationError):
        source(**keys)


def test_counters_that_rise_alike_are_doubted_until_they_are_copies() -> None:
    [text] = doubts(PAIR, source())
    assert text == (
        "1 pair of series, which rise alike and are both counted; if they are copies, name in `copies` what tells them "
        "apart: scraper"
    )
    assert doubts(PAIR, source(copies=["scraper"])) == []
    assert merged_by(PAIR, source()) == []
    assert merged_by(PAIR, source(copies=["scraper"])) == ["scraper"]


def test_copies_that_do_not_rise_alike_are_doubted_until_they_are_distinct() -> None:
    [text] = doubts(HOSTS, source())
    assert text.endswith("if they are none, name in `distinct` what tells them apart: job")
    assert doubts(HOSTS, source(distinct=["job"])) == []
    assert merged_by(HOSTS, source()) == ["job"]


def test_replicas_are_not_doubted() -> None:
    """Not at different counts, nor where they stand still, nor one after the other; nor copies through a restart."""
    assert doubts([series(k, 100 * k, pod=f"p{k}") for k in range(9)], source()) == []
    assert doubts([series(k, 0, per_s=0, pod=f"p{k}") for k in range(3)], source()) == []
    assert doubts([series(0, 0, pod="p0"), series(3600, 0, pod="p1")], source()) == []
    one, other = (series(t, 0, pod="p", prometheus=f"{t}") for t in (1, 5))
    anew = [Series(metric=s.metric, values=[(t, v % 10_000) for t, v in s.values]) for s in (one, other)]
    assert doubts(anew, source()) == []
