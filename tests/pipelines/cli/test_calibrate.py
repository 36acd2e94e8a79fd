"""`floorcast calibrate` as a user runs it."""

from __future__ import annotations

import json

import pytest
import yaml

CONFIG = """\
pools:
  chat-70b:
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 5000, decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
    slo: {max_wait: 2s, on_time: 0.95}
  reader:
    role: prefill
    gpu: {type: H100}
    capacity: {prefill_tokens_per_s: 5000, decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
  writer:
    role: decode
    gpu: {type: H100}
    capacity: {decode_tokens_per_s: 2500}
    startup: {p90: 4m}
    bounds: {min: 1, max: 40}
classes:
  chat: {pools: [chat-70b]}
  reading: {pools: [reader, writer]}
"""


def bench(rate, p95_ttft_s, *, tokens=(1000, 200)):
    """A run of 1,000 s by vllm bench serve."""
    return {
        "duration": 1000.0,
        "completed": rate * 1000,
        "failed": 0,
        "request_rate": float(rate),
        "max_concurrency": None,
        "total_input_tokens": rate * 1000 * tokens[0],
        "total_output_tokens": rate * 1000 * tokens[1],
        "p95_ttft_ms": p95_ttft_s * 1000,
        "p99_itl_ms": 50.0,
    }


@pytest.fixture
def sweep(tmp_path):
    """Two mixes that cross 2 s at 8 of 1,000 + 200 tokens, and at 2 of 7,200 + 200 tokens."""
    (tmp_path / "floorcast.yaml").write_text(CONFIG)
    (tmp_path / "short.json").write_text(json.dumps([bench(2, 0.1), bench(6, 0.5), bench(10, 8.0)]))
    long = [bench(1, 0.5, tokens=(7200, 200)), bench(3, 8.0, tokens=(7200, 200))]
    (tmp_path / "long.json").write_text(json.dumps(long))
    return tmp_path


def test_the_pools_slo_gives_the_targets_and_the_snippet_can_be_pasted(main, sweep):
    ran = main("calibrate", "short.json", "long.json", "--pool", "chat-70b", cwd=sweep)
    assert ran.code == 0
    # Edges 8,000 in + 1,600 out and 14,400 + 400: a + b = 1 with 8 a' + 1.6 b' = 14.4 a' + 0.4 b' = 1 (thousands), so
    # b' = 6.4 a' / 1.2 and a' = 1 / 16.533: C_in 16,533, C_out 3,100.
    assert "one replica sustains 16,500 tokens in and 3,100 tokens out per s (sum), with p95 ttft within 2s" in ran.out
    assert "edge: 8 requests/s a replica, 8,000 tokens in and 1,600 out per s" in ran.out
    assert "no: ttft" in ran.out
    pasted = yaml.safe_load(ran.out[ran.out.index("pools:") :])
    assert pasted == {
        "pools": {
            "chat-70b": {"capacity": {"prefill_tokens_per_s": 16500, "decode_tokens_per_s": 3100, "combine": "sum"}}
        }
    }


def test_options_need_no_configuration(main, sweep):
    (sweep / "floorcast.yaml").unlink()
    ran = main("calibrate", "short.json", "--ttft", "2s", "--percentile", "95", "--replicas", "2", "--json", cwd=sweep)
    found = json.loads(ran.out)
    assert found["capacity"]["prefill_tokens_per_s"] == pytest.approx(4000)
    assert found["capacity"]["separated"] is False
    assert [run["requests_per_s"] for run in found["runs"]] == [1, 3, 5]
    assert found["targets"] == {"percentile": 95.0, "ttft_s": 2.0}
    assert any("add a sweep of a mix" in note for note in found["notes"])


def test_a_prefill_pool_gets_its_own_side_only(main, sweep):
    ran = main(
        "calibrate", "short.json", "long.json", "--pool", "reader", "--percentile", "95", "--ttft", "2s", cwd=sweep
    )
    assert "one replica sustains 8,000 tokens in per s, with" in ran.out
    assert "decode_tokens_per_s" not in ran.out


def test_the_figure_is_a_page_of_its_own(main, sweep):
    ran = main("calibrate", "short.json", "--pool", "chat-70b", "--figure", "out/fit.html", cwd=sweep)
    assert "figures: out/fit.html" in ran.out
    assert "one replica sustains" in (sweep / "out" / "fit.html").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("short.json",), 2, "there is no latency to meet"),
        (("short.json", "--ttft", "0s"), 2, "a latency of 0 cannot be met"),
        (("short.json", "--ttft", "soon"), 2, "is not a duration"),
        (("short.json", "--pool", "chat"), 7, "no pool chat"),
        (("missing.json", "--ttft", "2s"), 7, "no such file"),
        (("short.json", "--ttft", "2s"), 3, "is not recorded at p99 or above (recorded: p95)"),
        (("short.json", "--ttft", "2s", "--percentile", "0.95"), 2, "did you mean 95?"),
        (("short.json", "--ttft", "2s", "--percentile", "100"), 2, "100 is not from 1 to 99.99"),
        (("short.json", "--ttft", "1ms", "--percentile", "95"), 3, "no run meets the targets"),
        (("floorcast.yaml", "--ttft", "2s"), 3, "is not JSON"),
    ],
)
def test_what_cannot_be_is_refused_with_its_exit_code(main, sweep, words, code, said):
    ran = main("calibrate", *words, cwd=sweep)
    assert (ran.code, said in ran.err) == (code, True), ran.err
