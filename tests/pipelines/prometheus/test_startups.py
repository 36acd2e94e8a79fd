"""Starts are read from what kube-state-metrics tells, whole, once, and not for a container that comes back."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import yaml

from pipelines.project import load_project
from pipelines.stages.startups import read_startups, with_measured_startups
from store.connection import open_store
from store.startups import read_startups as stored_startups

pytestmark = pytest.mark.server

T0 = datetime(2025, 3, 4, tzinfo=UTC)
HOUR = 3600
NOW = T0 + timedelta(hours=6)


def pod(name, created, ready=None, *, until=6 * HOUR, again=None, restarts=0, ready_time=True, namespace="llm"):
    """Samples of kube-state-metrics every 30 s; `again`: readiness that came back then."""
    labels = f'namespace="{namespace}",pod="{name}",uid="u-{name}"'
    for t in range(-(-created // 30) * 30, until + 1, 30):
        at = round(T0.timestamp()) + t
        yield "kube_pod_created", labels, round(T0.timestamp()) + created, at
        yield "kube_pod_container_status_restarts_total", labels, restarts, at
        is_ready = ready is not None and t >= ready
        yield "kube_pod_status_ready", f'{labels},condition="true"', int(is_ready), at
        if is_ready and ready_time:
            since = again if again is not None and t >= again else ready
            yield "kube_pod_status_ready_time", labels, round(T0.timestamp()) + since, at


PODS = [
    *pod("chat-70b-6d5f7c9b8-aaaaa", HOUR, HOUR + 250),
    *pod("chat-70b-6d5f7c9b8-bbbbb", HOUR + 17, HOUR + 317, ready_time=False),
    *pod("chat-70b-6d5f7c9b8-ccccc", 2 * HOUR, 2 * HOUR + 200, again=4 * HOUR),
    *pod("chat-70b-6d5f7c9b8-ddddd", 5 * HOUR + 3000),
    *pod("chat-70b-6d5f7c9b8-eeeee", 3 * HOUR, until=3 * HOUR + 120),
    *pod("chat-70b-6d5f7c9b8-fffff", 4 * HOUR, restarts=7),
    *pod("chat-70b-long-6d5f7c9b8-ggggg", HOUR, HOUR + 900),
    *pod("chat-70b-6d5f7c9b8-hhhhh", HOUR, HOUR + 900, namespace="other"),
]
SEEN = {
    "llm/chat-70b-6d5f7c9b8-aaaaa": (250, 0),
    "llm/chat-70b-6d5f7c9b8-bbbbb": (313, 0),
    "llm/chat-70b-6d5f7c9b8-ccccc": (200, 0),
    "llm/chat-70b-6d5f7c9b8-ddddd": (None, 0),
    "llm/chat-70b-6d5f7c9b8-eeeee": (None, 0),
    "llm/chat-70b-6d5f7c9b8-fffff": (None, 7),
}
"""Seconds to ready, of bbbbb to a scrape interval: it is ready at 317 s, seen so at 330 s, of which 17 are before."""


@pytest.fixture(scope="module", params=["victoria_metrics", "prometheus"])
def url(request, tmp_path_factory, tools):
    folder = tmp_path_factory.mktemp("server")
    if request.param == "victoria_metrics":
        with tools.victoria_metrics(folder) as url:
            text = "\n".join(f"{name}{{{labels}}} {value} {at * 1000}" for name, labels, value, at in PODS)
            httpx.post(f"{url}/api/v1/import/prometheus", content=text + "\n").raise_for_status()
            httpx.get(f"{url}/internal/force_flush").raise_for_status()
            yield url
        return
    tools.needs("prometheus", "promtool")
    text = "\n".join(f"{name}{{{labels}}} {value} {at}" for name, labels, value, at in sorted(PODS, key=lambda s: s[0]))
    (folder / "pods.om").write_text(text + "\n# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "--quiet", "openmetrics"]
    subprocess.run([*command, str(folder / "pods.om"), str(folder / "data")], check=True, capture_output=True)
    with tools.prometheus(folder) as url:
        yield url


@pytest.fixture
def project(tmp_path):
    def make(url, **measure):
        pool = {
            "gpu": {"type": "H100"},
            "capacity": {"prefill_tokens_per_s": 5000, "decode_tokens_per_s": 2500},
            "startup": {"p90": "4m", "measure": {"source": "prod", "at_least": 2, **measure}},
            "bounds": {"min": 1, "max": 40},
            "target": {"namespace": "llm"},
        }
        source = {"name": "prod", "kind": "prometheus", "url": url, "scrape_interval": "30s", "timeout": "5s"}
        config = {
            "sources": [source],
            "pools": {"chat-70b": pool},
            "classes": {"chat": {"pools": ["chat-70b"], "match": {"model_name": "m"}}},
        }
        (tmp_path / "floorcast.yaml").write_text(yaml.safe_dump(config))
        return load_project(tmp_path / "floorcast.yaml", environment={})

    return make


def seen(project):
    with open_store(project.store_path) as store:
        rows = stored_startups(store, "chat-70b").to_dicts()
    return {
        row["pod"]: (row["ready_at"] and round((row["ready_at"] - row["created_at"]).total_seconds()), row["restarts"])
        for row in rows
    }


def test_starts_are_those_of_the_targets_pods(url, project):
    ours = project(url)
    assert read_startups(ours, NOW) == ({"chat-70b": 6}, {})
    assert seen(ours) == SEEN


def test_read_in_pieces_they_are_the_same_and_readiness_that_comes_back_is_no_start(url, project):
    ours = project(url)
    for hours in (1.05, 2.02, 3.01, 4.5, 6):
        read_startups(ours, T0 + timedelta(hours=hours))
    assert seen(ours) == SEEN
    assert read_startups(ours, NOW)[0]["chat-70b"] <= 3, "only what is not ready yet is read again"


def test_a_start_from_before_all_that_is_read_is_left_out(url, project):
    ours = project(url, window="4h30m")
    read_startups(ours, NOW)
    assert set(seen(ours)) == set(SEEN) - {"llm/chat-70b-6d5f7c9b8-aaaaa", "llm/chat-70b-6d5f7c9b8-bbbbb"}


def test_stages_work_with_what_was_measured_and_a_server_that_is_gone_takes_nothing_away(url, project):
    ours = project(url)
    read_startups(ours, NOW)
    # 200, 250 and 313 s are known, one was gone after 120 s, and ddddd is still starting after 600 s.
    startup = with_measured_startups(ours, NOW).config.pools["chat-70b"].startup
    assert (startup.p90, startup.measured.starts) == (timedelta(minutes=10), 5)
    gone = project("http://127.0.0.1:9")
    read, failed = read_startups(gone, NOW + timedelta(minutes=5))
    assert read == {}
    assert "the connection failed" in failed["chat-70b"]
    assert with_measured_startups(gone, NOW).config.pools["chat-70b"].startup.p90 == timedelta(minutes=10)
