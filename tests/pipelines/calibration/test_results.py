"""Files of four tools, in the layouts of several of their versions, with the same run in each."""

from __future__ import annotations

import json

import pytest

from floorcast.errors import DataError, NotFoundError
from pipelines.calibration import read_results

# 600 requests in 100 s, 1,000 + 200 tokens each, 6 more failed; p99: 0.8 s, 40 ms, 9 s.
VLLM = {
    "date": "20261101-101010",
    "backend": "vllm",
    "model_id": "llama-70b",
    "num_prompts": 606,
    "request_rate": 8.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 100.0,
    "completed": 600,
    "failed": 6,
    "total_input_tokens": 600_000,
    "total_output_tokens": 120_000,
    "request_throughput": 6.0,
    "request_goodput": None,
    "mean_ttft_ms": 300.0,
    "median_ttft_ms": 250.0,
    "p99_ttft_ms": 800.0,
    "p99.9_ttft_ms": 900.0,
    "p99_tpot_ms": 35.0,
    "p99_itl_ms": 40.0,
    "p99_e2el_ms": 9000.0,
}


def without(document, *keys):
    return {key: value for key, value in document.items() if key not in keys}


def spread(count, total, p99):
    return {
        "mean": total / count,
        "median": p99 / 2,
        "count": count,
        "total_sum": total,
        "percentiles": {"p001": 0.0, "p50": p99 / 2, "p95": p99 * 0.9, "p99": p99, "p999": p99 * 1.1},
    }


def guidellm(**where):
    """Version 0.5 with `config` and measured times, or 0.3 with `args`."""
    metrics = {
        "prompt_token_count": (600, 600_000.0, 1000.0),
        "output_token_count": (600, 120_000.0, 200.0),
        "request_latency": (600, 3000.0, 9.0),
        "time_to_first_token_ms": (600, 180_000.0, 800.0),
        "inter_token_latency_ms": (600, 18_000.0, 40.0),
    }
    return {
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "start_time": 1_772_470_000.0,
                "end_time": 1_772_470_120.0,
                "metrics": {
                    name: {"successful": spread(*given), "errored": spread(6, 6.0, 1.0), "incomplete": None}
                    for name, given in metrics.items()
                },
                **where,
            }
        ]
    }


STRATEGY = {"strategy": {"type_": "constant", "rate": 8.0}}
GUIDELLM_05 = guidellm(
    config=STRATEGY, scheduler_metrics={"measure_start_time": 1_772_470_010.0, "measure_end_time": 1_772_470_110.0}
)
GUIDELLM_03 = guidellm(args=STRATEGY, end_time=1_772_470_100.0)


def metric(unit, avg, **more):
    return {"unit": unit, "avg": avg, **more}


AIPERF = {
    "schema_version": "1.3",
    "request_throughput": metric("requests/sec", 6.0),
    "request_latency": metric("ms", 5000.0, p50=4500.0, p99=9000.0, count=600, std=1.0),
    "request_count": metric("requests", 600.0),
    "error_request_count": metric("requests", 6.0),
    "time_to_first_token": metric("ms", 300.0, p50=250.0, p99=800.0),
    "inter_token_latency": metric("ms", 30.0, p99=40.0),
    "input_sequence_length": metric("tokens", 1000.0, p99=1100.0),
    "output_sequence_length": metric("tokens", 200.0, p99=220.0),
    "total_isl": metric("tokens", 600_000.0),
    "total_osl": metric("tokens", 120_000.0),
    "benchmark_duration": metric("sec", 100.0),
    "was_cancelled": False,
    "input_config": {
        "phases": [
            {"name": "warmup", "exclude_from_results": True, "concurrency": 1},
            {"name": "profiling", "rate": 8.0},
        ]
    },
}
AIPERF_LOADGEN = without(AIPERF, "total_isl", "total_osl", "benchmark_duration") | {
    "input_config": {"loadgen": {"request_rate": 8.0, "concurrency": None}}
}
AIPERF_RECORDS = {
    "records": {
        "ttft": AIPERF["time_to_first_token"],
        "isl": AIPERF["input_sequence_length"],
        "osl": AIPERF["output_sequence_length"],
        **{
            tag: AIPERF[tag]
            for tag in (
                "request_latency",
                "inter_token_latency",
                "request_count",
                "error_request_count",
                "request_throughput",
            )
        },
    },
    "input_config": AIPERF["input_config"],
}
AIPERF_CSV = """\
Metric,avg,min,max,p50,p95,p99,std
Input Sequence Length (tokens),1000.00,900.00,1100.00,1000.00,1090.00,1100.00,1.00
Inter Token Latency (ms),30.00,1.00,50.00,30.00,38.00,40.00,1.00
Output Sequence Length (tokens),200.00,100.00,220.00,200.00,218.00,220.00,1.00
Request Latency (ms),5000.00,1.00,9999.00,4500.00,8000.00,9000.00,1.00
Time to First Token (ms),300.00,1.00,999.00,250.00,700.00,800.00,1.00

Metric,Value
Benchmark Duration (sec),100.00
Error Request Count,6.00
Request Count,600.00
Request Throughput (requests/sec),6.00
Total Input Sequence Length (tokens),600000.00
Total Output Sequence Length (tokens),120000.00


Endpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg,min,max,p50,p95,p99,std
localhost:9401,0,H100,GPU-1,GPU Power Usage (W),300,300,300,300,300,300,0
"""
INFERENCE_PERF = {
    "load_summary": {"count": 606, "requested_rate": 8.0, "achieved_rate": 7.9, "send_duration": 76.0},
    "successes": {
        "count": 600,
        "latency": {
            "request_latency": {"mean": 5.0, "median": 4.5, "p90": 7.0, "p99": 9.0, "p99.9": 9.9},
            "time_to_first_token": {"mean": 0.3, "median": 0.25, "p90": 0.6, "p99": 0.8},
            "inter_token_latency": {"mean": 0.03, "median": 0.03, "p99": 0.04},
            "time_per_output_token": None,
        },
        "throughput": {
            "input_tokens_per_sec": 6000.0,
            "output_tokens_per_sec": 1200.0,
            "total_tokens_per_sec": 7200.0,
            "requests_per_sec": 6.0,
        },
    },
    "failures": {"count": 6, "request_latency": None},
}
SAME = {
    "vllm.json": VLLM,
    "vllm-0.9.json": without(VLLM, "failed", "p99_itl_ms") | {"p99_tpot_ms": 40.0, "endpoint_type": "openai"},
    "guidellm-0.5.json": GUIDELLM_05,
    "guidellm-0.3.json": GUIDELLM_03,
    "aiperf-0.10.json": AIPERF,
    "aiperf-0.5.json": AIPERF_LOADGEN,
    "aiperf-0.1.json": AIPERF_RECORDS,
    "aiperf.csv": AIPERF_CSV,
    "inference-perf.json": INFERENCE_PERF,
}


@pytest.fixture
def write(tmp_path):
    def made(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return made


@pytest.mark.parametrize("name", SAME)
def test_every_tool_and_version_tells_the_same_run(write, name):
    [point] = read_results([write(name, SAME[name])]).points
    assert (point.requests, point.failed) == (600, 6)
    assert (point.requests_per_s, point.tokens_in_per_s, point.tokens_out_per_s) == pytest.approx((6, 6000, 1200))
    assert [point.latencies[kind][99.0] for kind in ("ttft", "itl", "e2e")] == pytest.approx([0.8, 0.04, 9.0])
    assert point.offered_per_s == (None if name.endswith(".csv") else 8.0)


def test_closed_loops_tell_their_concurrency(write):
    closed = INFERENCE_PERF | {"load_summary": INFERENCE_PERF["load_summary"] | {"concurrency": 16}}
    found = read_results(
        [
            write("a.json", VLLM | {"request_rate": "inf", "max_concurrency": 16}),
            write("b.json", guidellm(config={"strategy": {"type_": "concurrent", "streams": 16}})),
            write("c.json", AIPERF | {"input_config": {"loadgen": {"concurrency": 16}}}),
            write("d.json", closed),
        ]
    )
    assert [one.concurrency for one in found.points] == [16, 16, 16, 16]
    assert [one.offered_per_s for one in found.points] == [float("inf"), None, None, None]
    assert found.tools == ["vllm", "guidellm", "aiperf", "inference-perf"]


def test_prompt_tokens_from_the_prefix_cache_cost_no_prefill(write):
    cached = INFERENCE_PERF["successes"] | {"prompt_tokens": {"total": 600_000, "cached": 150_000, "uncached": 450_000}}
    [point] = read_results([write("stage_0.json", INFERENCE_PERF | {"successes": cached})]).points
    assert point.tokens_in_per_s == pytest.approx(4500)


def test_one_file_may_hold_many_runs(write):
    lines = "\n".join(json.dumps(VLLM | {"request_rate": rate}) for rate in (1.0, 2.0))
    found = read_results([write("all.jsonl", lines), write("list.json", [VLLM, VLLM])])
    assert [one.offered_per_s for one in found.points] == [1, 2, 8, 8]
    assert found.points[1].source.endswith("all.jsonl, run 2")


def test_a_folder_is_searched_and_the_rest_passed_over(write, tmp_path):
    for name, content in {
        "sweep/c1/profile_export_aiperf.json": AIPERF,
        "sweep/c1/profile_export_aiperf.csv": AIPERF_CSV,
        "sweep/c2/profile_export_aiperf.csv": AIPERF_CSV,
        "sweep/c2/server_metrics.json": {"queries": 1},
        "sweep/notes.txt": "not read",
        "sweep/stage_0_lifecycle_metrics.json": INFERENCE_PERF,
        "sweep/summary_lifecycle_metrics.json": INFERENCE_PERF | {"load_summary": {"count": 606}},
    }.items():
        write(name, content)
    found = read_results([tmp_path / "sweep"])
    assert len(found.points) == 3
    assert {path.rpartition("/")[2]: why for path, why in found.passed_over.items()} == {
        "server_metrics.json": "is not a result that is understood (its keys: queries)",
        "summary_lifecycle_metrics.json": "is the summary of all stages, which has no one load",
    }


def test_a_run_of_which_nothing_completed_is_passed_over_not_a_zero(write):
    dead = VLLM | {"completed": 0, "failed": 606, "total_input_tokens": 0, "total_output_tokens": 0}
    found = read_results([write("a.json", VLLM), write("b.json", dead)])
    assert len(found.points) == 1
    assert list(found.passed_over.values()) == ["no request of it completed with tokens in and out"]
    with pytest.raises(DataError, match="no request of it completed"):
        read_results([write("b.json", dead)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"hello": 1}, r"is not a result that is understood \(its keys: hello\)"),
        ("not json", "is not JSON"),
        ("[1, 2]", "holds no JSON objects"),
        (VLLM | {"duration": 0}, "duration: Input should be greater than 0"),
        (VLLM | {"completed": "many"}, "completed: Input should be a valid integer"),
        (without(VLLM, "total_output_tokens"), "benchmark of embeddings"),
        (without(VLLM, "failed", "num_prompts"), "neither `failed` nor `num_prompts`"),
        (VLLM | {"ramp_up_strategy": "linear"}, "ramps its rate up"),
        ({"benchmarks": []}, "holds no benchmark"),
        ({"benchmarks": [{"start_time": 0, "end_time": 1}]}, r"benchmarks\.0\.metrics: Field required"),
        (AIPERF | {"was_cancelled": True}, "was cancelled before its end"),
        (without(AIPERF, "request_count"), "lacks one of request_count"),
        (AIPERF | {"time_to_first_token": metric("fortnights", 1.0, p99=1.0)}, "a time in 'fortnights'"),
        (INFERENCE_PERF | {"load_summary": {"count": 5}}, "is the summary of all stages"),
        (without(INFERENCE_PERF, "failures"), "failures: Field required"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(write, content, said):
    with pytest.raises(DataError, match=said) as refused:
        read_results([write("odd.json", content)])
    assert "odd.json" in refused.value.where
    assert refused.value.remedy


def test_a_path_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="no such file"):
        read_results([tmp_path / "missing"])
    with pytest.raises(DataError, match="holds no results that are understood"):
        read_results([tmp_path])
