"""Which series are taken for one counter."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from floorcast.source import PrometheusSource
from pipelines.sources.prometheus.client import Series
from pipelines.sources.prometheus.series import to_samples


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


def test_a_label_in_distinct_tells_counters_apart() -> None:
    assert (counters(HOSTS), counters(HOSTS, distinct=["job"])) == (1, 2)
    ports = [series(1, 1, pod="p", instance=f"{host}:8000") for host in ("a", "b")]
    assert (counters(ports), counters(ports, distinct=["instance"])) == (1, 2)


@pytest.mark.parametrize("keys", [{"copies": ["job"], "distinct": ["job"]}, {"copies": ["a b"]}, {"distinct": ["x)"]}])
def test_labels_must_be_names_and_of_one_list(keys: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationError):
        source(**keys)
