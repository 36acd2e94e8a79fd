"""Selectors, identities and the engines' metric names."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floorcast.errors import ConfigError
from floorcast.source import PrometheusSource
from pipelines.sources.prometheus.client import Series
from pipelines.sources.prometheus.presets import COUNTERS, PRESETS, matchers, selector
from pipelines.sources.prometheus.series import identity, to_samples

BASE = {"__name__": "vllm:prompt_tokens_total", "model_name": "m", "namespace": "llm", "engine": "0"}
POD = BASE | {"pod": "p-0", "instance": "10.0.0.1:8000", "job": "vllm"}


def test_every_preset_of_the_configuration_is_known() -> None:
    assert set(PRESETS) == set(get_args(PrometheusSource.model_fields["preset"].annotation))
    for name, preset in PRESETS.items():
        assert tuple(preset.counters) == (() if name == "triton" else COUNTERS)


def test_the_iteration_histogram_of_vllm_is_not_taken_for_a_counter() -> None:
    names = {name for preset in PRESETS.values() for counter in preset.counters.values() for name in counter}
    assert not any("iteration_tokens" in name or name.endswith("_bucket") for name in names)


@given(st.text())
def test_a_value_cannot_leave_its_quotes(value: str) -> None:
    """Read back by PromQL's rules for double quotes, it is the value; nothing unescaped ends it early."""
    text = matchers([("a", value)], where="here")
    assert text.startswith('a="')
    assert text.endswith('"')
    inner, read, k = text[3:-1], "", 0
    while k < len(inner):
        assert inner[k] not in '"\n'
        if inner[k] == "\\":
            k += 1
            read += {"n": "\n", '"': '"', "\\": "\\"}[inner[k]]
        else:
            read += inner[k]
        k += 1
    assert read == value


@pytest.mark.parametrize("name", ["", "1a", "a-b", 'a"', "a}", "model name", "é", "a\n"])
def test_what_cannot_be_a_label_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a label") as caught:
        matchers([(name, "x")], where="classes.chat.match")
    assert caught.value.where == "classes.chat.match"


def test_engines_colons_are_asked_for_as_underscores_too() -> None:
    """As Python's client library writes them where it is asked for OpenMetrics."""
    for name, preset in PRESETS.items():
        for names in [*preset.counters.values(), *(signal.names for signal in preset.signals.values())]:
            assert {one.replace(":", "_") for one in names} <= set(names), name


def test_the_order_of_an_answer_does_not_matter() -> None:
    """Between equal copies the first counts, so that a server that answers in any order would give any of them."""
    series = [
        Series(metric=POD | {"prometheus": one}, values=[(1, 2), (16, number)]) for number, one in enumerate("ab")
    ]
    one, other = (to_samples([("chat", "tokens_in", found)]) for found in (series, series[::-1]))
    assert one.equals(other)


def test_a_selector_without_labels_has_no_stray_comma() -> None:
    assert selector(("a",), "") == '{__name__=~"a"}'


@pytest.mark.parametrize(
    "other",
    [
        {"prometheus": "monitoring/k8s", "prometheus_replica": "k8s-1"},
        {"__name__": "vllm:prompt_tokens"},
        {"replica": "b", "receive": "true", "tenant_id": "x"},
        {"job": "podmonitor", "endpoint": "http", "instance": "10.9.9.9:8000"},
    ],
)
def test_who_scraped_it_and_what_it_is_called_do_not_matter(other: dict[str, str]) -> None:
    assert identity(POD | other) == identity(POD)


@pytest.mark.parametrize(
    "other",
    [{"pod": "p-1"}, {"namespace": "dev"}, {"engine": "1"}, {"instance": "10.0.0.1:8001"}, {"finished_reason": "stop"}],
)
def test_what_was_counted_does_matter(other: dict[str, str]) -> None:
    assert identity(POD | other) != identity(POD)


def test_without_a_pod_the_instance_tells_and_without_both_all_labels_do() -> None:
    assert identity(BASE | {"instance": "a:1", "job": "x"}) == identity(BASE | {"instance": "a:1", "job": "y"})
    assert identity(BASE | {"instance": "a:1"}) != identity(BASE | {"instance": "b:1"})
    assert identity(BASE | {"replica": "0"}) != identity(BASE | {"replica": "1"})
