"""Classes whose labels differ and that match the same series nevertheless."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from floorcast.errors import ConfigError
from floorcast.workload import WorkloadClass
from pipelines.sources.prometheus import import_prometheus

pytestmark = pytest.mark.server

STEP = timedelta(minutes=5)


def read(source: Any, world: Any, **labels: dict[str, str]) -> list[str]:
    """The classes that have demand within the first hour."""
    classes = {name: WorkloadClass(pools=("pool",), match=match) for name, match in labels.items()}
    chunks = import_prometheus(source, classes=classes, step=STEP, start=world.start, end=world.start + 13 * STEP)
    return sorted({name for chunk in chunks for name in chunk.demand["workload_class"]})


def test_a_series_that_two_classes_match_is_named(make_source: Any, world: Any, victoria_metrics: str) -> None:
    steady, all_of_it = {"model_name": "qwen-8b"}, {"namespace": "llm"}
    with pytest.raises(ConfigError, match="classes steady and everything both match the series") as caught:
        read(make_source(victoria_metrics), world, steady=steady, everything=all_of_it)
    assert 'model_name="qwen-8b"' in caught.value.what
    assert "`match`" in caught.value.remedy


def test_classes_that_share_labels_but_no_series_are_read(make_source: Any, world: Any, victoria_metrics: str) -> None:
    pods = {f"steady-{n}": {"model_name": "qwen-8b", "pod": f"steady-{n}"} for n in range(2)}
    assert read(make_source(victoria_metrics), world, **pods) == ["steady-0", "steady-1"]
