"""What each serving engine calls its metrics, and selectors over them.

Names are listed new before old. A counter is tried with and without `_total`, since the client library decides. So it
does of colons: Python's turns those of samples into underscores where it is asked for OpenMetrics, as Prometheus does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from floorcast.errors import ConfigError

COUNTERS = ("tokens_in", "tokens_out", "requests")
CACHED = "cached_tokens_in"
"""Prompt tokens that the prefix cache held, of those in `tokens_in`."""

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Signal:
    """A live signal. A histogram's names are those before `_bucket`, `_sum` and `_count`. `over` makes one value of
    several replicas' gauges."""

    names: tuple[str, ...]
    kind: Literal["gauge", "histogram"] = "gauge"
    labels: Mapping[str, str] = field(default_factory=dict)
    over: Literal["sum", "max"] = "sum"


@dataclass(frozen=True)
class Preset:
    """An engine's counters by what they count (see `COUNTERS`), its live signals by their common name, and the counter
    of CACHED, of an engine that has one."""

    counters: Mapping[str, tuple[str, ...]]
    signals: Mapping[str, Signal]
    cached: tuple[str, ...] = ()


def _spelled(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*names, *(name.replace(":", "_") for name in names)]))


def _total(name: str) -> tuple[str, ...]:
    return _spelled(f"{name}_total", name)


def _gauge(*names: str, over: Literal["sum", "max"] = "sum") -> Signal:
    return Signal(_spelled(*names), over=over)


def _histogram(*names: str) -> Signal:
    return Signal(_spelled(*names), "histogram")


PRESETS: Mapping[str, Preset] = {
    "vllm": Preset(
        counters={
            "tokens_in": _total("vllm:prompt_tokens"),
            "tokens_out": _total("vllm:generation_tokens"),
            "requests": _total("vllm:request_success"),
        },
        signals={
            "running_requests": _gauge("vllm:num_requests_running"),
            "waiting_requests": _gauge("vllm:num_requests_waiting"),
            "kv_cache_usage": _gauge("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", over="max"),
            "ttft_s": _histogram("vllm:time_to_first_token_seconds"),
            "itl_s": _histogram("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
            "e2e_s": _histogram("vllm:e2e_request_latency_seconds"),
            "queue_s": _histogram("vllm:request_queue_time_seconds"),
        },
        # The second counts tokens too, and is there in versions without the first.
        cached=(*_total("vllm:prompt_tokens_cached"), *_total("vllm:prefix_cache_hits")),
    ),
    "sglang": Preset(
        counters={
            "tokens_in": _total("sglang:prompt_tokens"),
            "tokens_out": _total("sglang:generation_tokens"),
            "requests": _spelled("sglang:e2e_request_latency_seconds_count"),
        },
        signals={
            "running_requests": _gauge("sglang:num_running_reqs"),
            "waiting_requests": _gauge("sglang:num_queue_reqs"),
            "kv_cache_usage": _gauge("sglang:token_usage", over="max"),
            "ttft_s": _histogram("sglang:time_to_first_token_seconds"),
            "itl_s": _histogram("sglang:inter_token_latency_seconds"),
            "e2e_s": _histogram("sglang:e2e_request_latency_seconds"),
        },
        cached=_total("sglang:cached_tokens"),
    ),
    "tgi": Preset(
        counters={
            "tokens_in": ("tgi_request_input_length_sum",),
            "tokens_out": ("tgi_request_generated_tokens_sum",),
            "requests": ("tgi_request_generated_tokens_count",),
        },
        signals={
            "running_requests": _gauge("tgi_batch_current_size"),
            "waiting_requests": _gauge("tgi_queue_size"),
            "itl_s": _histogram("tgi_request_mean_time_per_token_duration"),
            "e2e_s": _histogram("tgi_request_duration"),
        },
    ),
    "trtllm": Preset(
        counters={
            "tokens_in": _total("trtllm_prompt_tokens"),
            "tokens_out": _total("trtllm_generation_tokens"),
            "requests": ("trtllm_e2e_request_latency_seconds_count",),
        },
        signals={
            "running_requests": _gauge("trtllm_num_requests_running"),
            "waiting_requests": _gauge("trtllm_num_requests_waiting"),
            "kv_cache_usage": _gauge("trtllm_kv_cache_utilization", over="max"),
            "ttft_s": _histogram("trtllm_time_to_first_token_seconds"),
            "itl_s": _histogram("trtllm_time_per_output_token_seconds"),
            "e2e_s": _histogram("trtllm_e2e_request_latency_seconds"),
        },
    ),
    # Triton has no token counters of its own: the gateway's come in through `queries`.
    "triton": Preset(
        counters={},
        signals={
            "running_requests": Signal(("nv_trt_llm_request_metrics",), labels={"request_type": "active"}),
            "waiting_requests": Signal(("nv_trt_llm_request_metrics",), labels={"request_type": "waiting"}),
            "kv_cache_usage": Signal(
                ("nv_trt_llm_kv_cache_block_metrics",), labels={"kv_cache_block_type": "fraction"}, over="max"
            ),
        },
    ),
}


def matchers(labels: Iterable[tuple[str, str]], *, where: str) -> str:
    """Label matchers for between the braces of a selector. Values are data, whatever is in them.

    A name given twice must match both values. Raises ConfigError where a name cannot be a label's.

    >>> matchers([("model_name", 'say "hi"')], where="classes.chat.match")
    'model_name="say \\\\"hi\\\\""'
    """
    parts = []
    for name, value in labels:
        if not _LABEL_NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a label",
                where=where,
                remedy="use letters, digits and underscores, not beginning with a digit",
            )
        parts.append(f'{name}="{value.translate(_ESCAPES)}"')
    return ",".join(parts)


def any_of(label: str, values: Collection[str]) -> str:
    """A matcher of any of these values of a label.

    >>> any_of("model_name", ["llama", "phi"])
    'model_name=~"llama|phi"'
    """
    pattern = "|".join(re.escape(value) for value in values)
    return f'{label}=~"{pattern.translate(_ESCAPES)}"'


def selector(names: Collection[str], labels: str) -> str:
    """A selector of the metrics called any of `names`, with `labels` from `matchers`.

    >>> selector(("a_total", "a"), 'x="1"')
    '{__name__=~"a_total|a",x="1"}'
    """
    return "{" + ",".join(filter(None, [f'__name__=~"{"|".join(names)}"', labels])) + "}"
